// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_layout.hpp>

#include <concepts>
#include <span>

namespace chunkmem::inline v0 {

/// A layout whose places can be given back, and which can put several tensors into one chunk or none of them.
///
/// `erase(place, size)` takes what `place` gave for that size; its bytes may be handed out again, never to two at once.
/// A chunk keeps its length for good. `place_together(sizes, places)` puts the tensors, say those of one module, into
/// one chunk; it returns false, with nothing changed, where they do not fit into a chunk of the frames that the largest
/// of them needs.
/// Laws: places of live tensors are aligned, disjoint and inside their chunk after any sequence of calls; sizes beyond
/// the numbers of a chunk throw size_overflow, with nothing changed; erasing what was not placed is a usage_error where
/// the layout can see it.
template <class Layout>
concept reusing_layout = chunk_layout<Layout> && requires(Layout layout, const chunk_place& place, bytes size,
                                                          std::span<const bytes> sizes, std::span<chunk_place> places) {
  layout.erase(place, size);
  {
    layout.place_together(sizes, places)
  } -> std::same_as<bool>;
};

}  // namespace chunkmem::inline v0
