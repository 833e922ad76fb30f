// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_layout.hpp>

#include <span>

namespace chunkmem::inline v0 {

/// A layout that sees all tensors of one list and role at once, so that large ones may come before small ones.
///
/// `arrange(sizes, places)` writes the place of each tensor, in their order.
/// Laws: those of chunk_layout hold for the places in the order of the sizes; it is called once after a reset, without
/// `place`; where it throws, reset comes next.
template <class Layout>
concept arranging_layout =
    chunk_layout<Layout> && requires(Layout layout, std::span<const bytes> sizes, std::span<chunk_place> places) {
      layout.arrange(sizes, places);
    };

}  // namespace chunkmem::inline v0
