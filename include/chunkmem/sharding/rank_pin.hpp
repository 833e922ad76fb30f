// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/pin.hpp>
#include <chunkmem/sharding/first_values.hpp>
#include <chunkmem/sharding/gathered_units.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

/// A whole weight that is being written on the calling thread; at its end, this rank keeps its share.
///
///     const auto pin = model.acquire(weight, access::write);  // has a `filling` until it ends
template <element Element, class Manager>
struct filling {
  std::vector<Element> all;
  /// the own share of the unit; `elements` of it belong to this tensor
  typename Manager::template pin_type<Element> kept;
  typename Manager::template pin_type<std::uint8_t> unit;  ///< changes: not gathered meanwhile
  Element* whole = nullptr;                                ///< the tensor, where this rank keeps it whole
  std::uint64_t first = 0;                                 ///< element of the tensor at which `whole` begins
  std::uint64_t begin = 0;                                 ///< element of the share for `whole`
  std::uint64_t elements = 0;
  first_values* filled = nullptr;  ///< is notified of the values at the end
  std::uint32_t planned = 0;       ///< number of the tensor in the plan

  ~filling()
  {
    if (!kept.is_live()) return;
    if (filled != nullptr) filled->note(planned, std::as_bytes(std::span{all}));
    if constexpr (!Manager::engine_type::has_bytes) return;
    if (whole != nullptr) std::copy_n(all.data(), all.size(), whole);
    std::copy_n(all.data() + first, elements, std::as_const(kept).data() + begin);
  }
};

/// A tensor of a sharded_model whose bytes stay in place while the pin lives. As pin.
///
///     const auto pin = model.acquire(weight, access::read);
///     const std::span<const float> whole = pin.span();  // on the device
///
/// A weight for reading is gathered on the device. A weight for writing is whole on the host, and becomes a share when
/// the pin ends.
/// @tparam Element   const where the pin was acquired for reading, or by a variable of type `access`
template <pinned_element Element, class Manager>
class rank_pin {
  using mutable_element = std::remove_const_t<Element>;

 public:
  using element_type = Element;
  using unit_pin = typename Manager::template pin_type<
      std::conditional_t<std::is_const_v<Element>, const std::uint8_t, std::uint8_t>>;
  using plain_pin = typename Manager::template pin_type<Element>;

  rank_pin() = default;
  /// For a weight that is read, or a gradient. @param first   its first element in the unit
  rank_pin(unit_pin&& unit, tensor<mutable_element> of, std::uint64_t first, std::uint64_t elements, agent stream)
      : unit_{std::move(unit)}, is_in_unit_{true}, of_{of}, first_{first}, elements_{elements}, stream_{stream}
  {
  }
  /// For a tensor that is not sharded.
  rank_pin(plain_pin&& own, tensor<mutable_element> of, agent stream)
      : own_{std::move(own)}, of_{of}, elements_{own_.size()}, stream_{stream}
  {
  }
  /// For a weight that is written.
  rank_pin(std::unique_ptr<filling<mutable_element, Manager>> fill, tensor<mutable_element> of, std::uint64_t elements)
      : fill_{std::move(fill)}, of_{of}, elements_{elements}
  {
  }

  /// The address; null in a rehearsal. @throws usage_error   released, moved from, or its model is gone
  [[nodiscard]] Element* data() const&
  {
    if (fill_ != nullptr) return fill_->all.data();
    if (!is_in_unit_) return own_.data();
    auto* const begin = unit_.data();
    return begin == nullptr ? nullptr : reinterpret_cast<Element*>(begin) + first_;
  }
  Element* data() const&& = delete;
  /// For functions that take a pointer. @throws usage_error   as data()
  operator Element*() const& { return data(); }
  operator Element*() const&& = delete;
  /// The elements, where the calling thread may read them; empty in a rehearsal.
  /// @throws usage_error   as data(), or the calling thread cannot read these bytes
  [[nodiscard]] std::span<Element> span() const&
  {
    if (fill_ != nullptr) return fill_->all;
    if (!is_in_unit_) return own_.span();
    return unit_.span().empty() ? std::span<Element>{}
                                : std::span<Element>{data(), static_cast<std::size_t>(elements_)};
  }
  [[nodiscard]] held_span<Element, rank_pin> span() &&
  {
    const std::span<Element> elements = std::as_const(*this).span();
    return {elements, std::move(*this)};
  }
  /// As pin::writable. @throws usage_error   as span(), or the mode was `access::read`
  [[nodiscard]] std::span<mutable_element> writable() const&
    requires std::is_const_v<Element>
  {
    if (fill_ != nullptr) return fill_->all;
    expects(!is_in_unit_,
            "a weight that was acquired with access::read cannot be written (acquire it with access::write)");
    return own_.writable();
  }
  /// For a weight that is being written: its values on this rank. Empty for other tensors.
  [[nodiscard]] std::span<mutable_element> being_filled() const noexcept
  {
    return fill_ != nullptr ? std::span<mutable_element>{fill_->all} : std::span<mutable_element>{};
  }
  [[nodiscard]] std::uint64_t size() const noexcept { return elements_; }
  void release() noexcept
  {
    unit_.release();
    own_.release();
    fill_.reset();
  }
  [[nodiscard]] tensor<mutable_element> of() const noexcept { return of_; }
  [[nodiscard]] agent stream() const noexcept { return stream_; }

 private:
  unit_pin unit_;
  bool is_in_unit_ = false;
  plain_pin own_;
  std::unique_ptr<filling<mutable_element, Manager>> fill_;
  tensor<mutable_element> of_;
  std::uint64_t first_ = 0;
  std::uint64_t elements_ = 0;
  agent stream_ = agent::host;
};

/// The gradient of a weight while it is being written: this rank's contribution to the sum. As gradient_pin.
///
///     auto gradient = model.gradient(weight);
///     for (float& it : gradient.span()) it = gradient.beta() == 0 ? of_this_rank : it + of_this_rank;
///     model.gradient_done(std::move(gradient));
template <element Element, class Manager>
class rank_gradient : public rank_pin<Element, Manager> {
 public:
  rank_gradient(rank_pin<Element, Manager>&& from, bool adds) noexcept
      : rank_pin<Element, Manager>{std::move(from)}, beta_{adds ? 1.0F : 0.0F}
  {
  }
  [[nodiscard]] float beta() const noexcept { return beta_; }

 private:
  float beta_;
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
