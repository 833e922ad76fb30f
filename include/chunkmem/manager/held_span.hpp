// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstddef>
#include <span>
#include <utility>

namespace chunkmem::inline v0 {

/// The elements of a pin or lease together with the pin or lease itself: what `span()` of a temporary one gives.
///
/// `for (float& x : m.acquire(w, access::read).span())` would otherwise walk over bytes that were released before the
/// loop began. Copy it to a plain `std::span` only where the holder has a name.
template <class Element, class Holder>
class held_span : public std::span<Element> {
 public:
  held_span(std::span<Element> elements, Holder&& owner) : std::span<Element>{elements}, owner_{std::move(owner)} {}

 private:
  Holder owner_;
};

}  // namespace chunkmem::inline v0
