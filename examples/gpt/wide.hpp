// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model.hpp"
#include "precision.hpp"
#include "virtual_clocks.hpp"

#include <chunkmem/chunkmem.hpp>

#include <concepts>
#include <optional>
#include <utility>

namespace gpt {

/// The floats of a lease. Null in a rehearsal.
template <class Lease>
[[nodiscard]] float* floats(const Lease& lease)
{
  return lease.template span<float>().data();
}

/// Temporary room on the device for `count` floats.
template <class Manager>
[[nodiscard]] auto lease_floats(Manager& manager, std::uint64_t count)
{
  return manager.lease(chunkmem::tier::device, chunkmem::bytes{count * sizeof(float)});
}

/// Versions of weights can be pinned.
template <class Manager>
inline constexpr bool has_lists = requires(Manager& m, const weight& which) {
  m.template acquire<float>(which.as<float>(), chunkmem::value_list, chunkmem::access::read, chunkmem::agent::host);
};

/// A weight to compute with, in single precision.
///
/// A 32-bit weight is pinned in place, for each use alone: between two uses its chunk may be evicted. A 16-bit weight
/// is widened once, into a lease that lives as long as this object, and its chunk may be evicted at once.
template <class Manager>
class wide_weight {
 public:
  /// @param list   the newest weights, or an older version
  wide_weight(Manager& manager, const weight& which, chunkmem::list_id list = chunkmem::value_list)
      : m_{manager}, which_{which}, list_{list}
  {
    with_element(which.type, [&](auto element) { this->template widen<decltype(element)>(); });
  }
  wide_weight(const wide_weight&) = delete;
  wide_weight& operator=(const wide_weight&) = delete;

  /// The numbers for one use.
  struct opened {
    typename Manager::template pin_type<const float> pin;
    const float* numbers = nullptr;

    /// Null in a rehearsal.
    [[nodiscard]] const float* data() const noexcept { return numbers; }
  };
  /// @pre   this outlives the use
  [[nodiscard]] opened open() const
  {
    if (lease_) return {{}, floats(*lease_)};
    auto pin = stored<float>();
    const float* const numbers = pin.data();
    return {std::move(pin), numbers};
  }

 private:
  template <class Element>
  [[nodiscard]] auto stored() const
  {
    if constexpr (has_lists<Manager>)
      if (list_ != chunkmem::value_list)
        return m_.template acquire<Element>(which_.as<Element>(), list_, chunkmem::access::read, chunkmem::agent::host);
    return m_.acquire(which_.as<Element>(), chunkmem::access::read);
  }
  template <class Element>
  void widen()
  {
    if constexpr (!std::same_as<Element, float>) {
      const auto narrow = stored<Element>();
      lease_.emplace(lease_floats(m_, which_.elements));
      if (!computes(m_)) return;
      kernels::widen(narrow.data(), floats(*lease_), static_cast<kernels::index>(which_.elements));
    }
  }

  Manager& m_;
  const weight& which_;
  chunkmem::list_id list_;
  std::optional<decltype(lease_floats(std::declval<Manager&>(), 1))> lease_;
};

/// The gradient of a weight while the rows of a micro-batch add to it, in single precision.
///
/// A 32-bit gradient is written in place. A 16-bit one is added up in a lease and rounded once, by `finish`: only then
/// are the bytes of the gradient pinned, which may be those of the weight.
template <class Manager>
class wide_gradient {
 public:
  /// @param is_wanted   false: every call does nothing, as with a frozen weight
  wide_gradient(Manager& manager, const weight& of, bool is_wanted = true)
      : m_{manager}, of_{of}, is_wanted_{is_wanted && of.is_trained}
  {
    if (is_wanted_ && of.type != chunkmem::dtype::float32) lease_.emplace(lease_floats(manager, of.elements));
  }
  wide_gradient(const wide_gradient&) = delete;
  wide_gradient& operator=(const wide_gradient&) = delete;

  /// Calls `kernel(beta, numbers)`, which leaves `beta * numbers` and its part there, with beta 0 or 1. A rehearsal
  /// takes the same pins and calls no kernel.
  /// @param operations   see computes
  template <class Kernel>
  void add(Kernel kernel, double operations = 0)
  {
    if (!is_wanted_) return;
    if (lease_) {
      if (computes(m_, operations)) kernel(std::exchange(beta_, 1.0f), floats(*lease_));
    } else {
      const auto pin = m_.gradient(of_.as<float>());
      if (computes(m_, operations)) kernel(pin.beta(), pin.data());
    }
  }

  /// Ends the part of this micro-batch. @pre something was added
  /// @param last   no other part of this step adds to the gradient
  void finish(bool last)
  {
    if (!is_wanted_) return;
    with_element(of_.type, [&](auto element) { this->close(of_.as<decltype(element)>(), last); });
  }

 private:
  template <class Element>
  void close(chunkmem::tensor<Element> of, bool last)
  {
    if constexpr (std::same_as<Element, float>) {
      if (last) m_.gradient_done(of);
    } else {
      auto stored = m_.gradient(of);
      if (computes(m_)) {
        kernels::add_rounded(floats(*lease_), stored.beta(), stored.data(), static_cast<kernels::index>(of_.elements));
      }
      lease_.reset();
      if (last) m_.gradient_done(std::move(stored));
    }
  }

  Manager& m_;
  const weight& of_;
  bool is_wanted_;
  std::optional<decltype(lease_floats(std::declval<Manager&>(), 1))> lease_;
  float beta_ = 0.0f;
};

}  // namespace gpt
