// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/control_block.hpp>
#include <chunkmem/manager/engine.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace chunkmem::inline v0 {

/// The elements of a pin or lease together with the pin or lease itself: the result of `span()` on a temporary.
///
/// `for (float& x : m.acquire(w, access::read).span())` would otherwise read bytes that were released before the loop
/// began. Copy it to a plain `std::span` only where the pin or lease has a name.
template <class Element, class Holder>
class held_span : public std::span<Element> {
 public:
  held_span(std::span<Element> elements, Holder&& owner) : std::span<Element>{elements}, owner_{std::move(owner)} {}

 private:
  Holder owner_;
};

/// A tensor element, const or not.
template <class Element>
concept pinned_element = element<std::remove_const_t<Element>>;

/// A tensor whose bytes stay where they are while the pin lives.
///
/// `acquire(w, access::read)` gives a pin of const elements: the compiler refuses to write through it. A pin ends with
/// its scope or by `release()`. Move-only. A named pin converts to a pointer, for functions of C. In a rehearsal a pin
/// has no bytes, unless it runs on `rehearse_on::scratch`: `data()` is null and `span()` is empty. A pin may outlive
/// its manager, but each use of it is then a typed error.
/// @tparam Element   const where the pin was acquired for reading, or by a variable of type `access`
/// @threads one caller per manager
template <pinned_element Element, class Engine>
class pin : public holder<Engine, access_token> {
  using mutable_element = std::remove_const_t<Element>;

 public:
  using element_type = Element;
  pin() = default;
  template <class Take>
  [[gnu::always_inline]] pin(control_block<Engine>* link, Take take) : holder<Engine, access_token>{link, take}
  {
  }
  /// Converts a writable pin to a read-only one. The manager still counts the access as a write.
  template <class Other>
    requires(std::is_const_v<Element> && std::is_same_v<Other, mutable_element>)
  pin(pin<Other, Engine>&& other) noexcept : holder<Engine, access_token>{std::move(other)}
  {
  }

  /// @throws usage_error   released, moved from, or its manager is gone
  [[nodiscard]] Element* data() const& { return reinterpret_cast<Element*>(this->held().data); }
  Element* data() const&& = delete;  // the bytes would be released before the address is used

  /// For functions that take a pointer. @throws usage_error   as data()
  operator Element*() const& { return data(); }
  operator Element*() const&& = delete;  // the bytes would be released before the function returns

  /// The elements, where the calling thread may read the device tier or the pin is on the host. For a pin of a stream:
  /// after a wait for this stream.
  /// @throws usage_error   as data(), or the calling thread cannot reach these bytes
  /// @throws comm_error    a pin for a stream, over ranks: work of ranks has failed, and these bytes may depend on it
  [[nodiscard]] std::span<Element> span() const& { return span_of<Element>(); }

  /// For a temporary pin: the span keeps the pin.
  [[nodiscard]] held_span<Element, pin> span() &&
  {
    const std::span<Element> elements = std::as_const(*this).span();
    return {elements, std::move(*this)};
  }

  /// The writable elements of a pin that was acquired by a variable of type `access`.
  /// @throws usage_error   as span(), or the mode was `access::read`
  [[nodiscard]] std::span<mutable_element> writable() const&
    requires std::is_const_v<Element>
  {
    expects(writes(access_of(this->held().kind)),
            "a pin that was acquired with access::read cannot be written (acquire it with access::read_write or "
            "access::write)");
    return span_of<mutable_element>();
  }

  /// The address without const, for readers whose interface has no const, such as `torch::from_blob`. Writing through
  /// the address of a pin for reading is an error: the written bytes may be lost, depending on the capacity.
  /// `checks::full` reports it.
  /// @throws usage_error   as data()
  [[nodiscard]] mutable_element* data_without_const() const&
  {
    return reinterpret_cast<mutable_element*>(this->held().data);
  }
  mutable_element* data_without_const() const&& = delete;

  /// Number of elements, also in a rehearsal. @throws usage_error   as data()
  [[nodiscard]] std::uint64_t size() const
  {
    const access_token& held = this->held();
    return this->link()->engine->size_of_slot(held.slot) / sizeof(Element);
  }

  /// The tensor's slot, for the manager.
  [[nodiscard]] const access_token& details() const { return this->held(); }
  [[nodiscard]] bool is_of(const control_block<Engine>* manager) const noexcept { return this->link() == manager; }

 private:
  template <class Other>
  [[nodiscard]] std::span<Other> span_of() const
  {
    const access_token& held = this->held();
    if constexpr (!Engine::host_addressable)
      if (place_of(held.kind) == memory_location::device)
        throw usage_error{"span() of a pin in device memory (use data(), or acquire with memory_location::host)"};
    if (held.data == nullptr) return {};
    if constexpr (Engine::gathers)
      if (held.stream != agent::host) this->link()->engine->check_ranks();
    return {reinterpret_cast<Other*>(held.data), this->link()->engine->size_of_slot(held.slot) / sizeof(Other)};
  }
};

/// The gradient of a parameter while it is being written.
///
/// `beta()` is the factor of the present bytes: 0 on the first write of a step (the bytes are undefined, overwrite
/// them), else 1 (add to them).
template <element Element, class Engine>
class gradient_pin : public pin<Element, Engine> {
 public:
  gradient_pin(pin<Element, Engine>&& from, float beta) noexcept : pin<Element, Engine>{std::move(from)}, beta_{beta} {}
  [[nodiscard]] float beta() const noexcept
  {
    if constexpr (Engine::checks_type::is_on)
      if (this->is_live()) this->link()->engine->beta_was_read(this->held());
    return beta_;
  }

 private:
  float beta_;
};

/// Scratch bytes for activations and workspace, from the same arena and budget as the chunks. Contents undefined.
///
///     const auto workspace = m.lease(tier::device, 64_MiB);
///     const std::span<float> numbers = workspace.span<float>();  // until `workspace` ends
template <class Engine>
class lease : public holder<Engine, lease_token> {
 public:
  using holder<Engine, lease_token>::holder;

  /// @throws usage_error   released, moved from, or its manager is gone
  [[nodiscard]] std::byte* data() const& { return this->held().data; }
  std::byte* data() const&& = delete;  // the bytes would be released before the address is used
  [[nodiscard]] bytes size() const { return bytes{this->held().size}; }

  /// The bytes as elements. Empty in a rehearsal.
  template <element Element>
  [[nodiscard]] std::span<Element> span() const&
  {
    const lease_token& held = this->held();
    if (held.data == nullptr) return {};
    return {reinterpret_cast<Element*>(held.data), static_cast<std::size_t>(held.size / sizeof(Element))};
  }
  /// For a temporary lease: the span keeps the lease.
  template <element Element>
  [[nodiscard]] held_span<Element, lease> span() &&
  {
    const std::span<Element> elements = std::as_const(*this).template span<Element>();
    return {elements, std::move(*this)};
  }
};

}  // namespace chunkmem::inline v0
