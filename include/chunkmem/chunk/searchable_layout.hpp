// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_layout.hpp>

#include <concepts>

namespace chunkmem::inline v0 {

/// A layout that knows how far its decisions reach, which makes a search over frame sizes exact.
///
/// `changes_at()` is a frame size above the current one, and with every frame between the two the same tensors get the
/// same chunks, offsets and numbers of frames as they did since the reset. The larger it is, the faster is the search.
/// `bytes{UINT64_MAX}` where no larger frame changes anything; after an erasure it means nothing.
/// Every comparison of a layout asks whether something fits; what did not fit `frames * frame - used` fits from
/// `(used + padded) / frames` on.
template <class Layout>
concept searchable_layout = chunk_layout<Layout> && requires(const Layout layout) {
  {
    layout.changes_at()
  } -> std::same_as<bytes>;
};

}  // namespace chunkmem::inline v0
