#pragma once

#include <chunkmem/chunk/chunk_layout.hpp>

#include <concepts>

namespace chunkmem::inline v0 {

/// A layout that knows how far its decisions reach, which makes a search over frame sizes exact.
///
/// `changes_at()` is the least frame size above the current one, or anything between them, at which a decision since the
/// reset could have been another: with frames below it the same tensors get the same chunks and offsets, and every chunk
/// as many frames. `bytes{UINT64_MAX}` where no frame changes anything.
/// Every comparison of a layout asks whether something fits; what did not fit `frames * frame - used` fits from
/// `(used + padded) / frames` on.
template <class Layout>
concept searchable_layout = chunk_layout<Layout> && requires(const Layout layout) {
  { layout.changes_at() } -> std::same_as<bytes>;
};

}  // namespace chunkmem::inline v0
