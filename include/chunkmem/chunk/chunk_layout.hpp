#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/policy.hpp>

#include <concepts>
#include <cstdint>

namespace chunkmem::inline v0 {

/// Where a tensor of one list lies: its chunk, counted from 0 inside that list, and its first byte there.
struct chunk_place {
  std::uint32_t chunk = 0;
  std::uint64_t offset = 0;  ///< [bytes], a multiple of tensor_alignment
  std::uint32_t frames = 1;  ///< of that chunk
};

/// Places the tensors of one list and role, in the order they were declared, into chunks.
///
/// Laws: a fresh model starts with chunk 0 and opens chunks in order; places are aligned to `tensor_alignment`, disjoint
/// and inside their chunk; a chunk has as many frames as its largest tensor needs; the same sizes give the same places.
template <class Layout>
concept chunk_layout = names_itself<Layout> && std::same_as<typename Layout::policy_kind, layout_kind> &&
                       std::constructible_from<Layout, bytes> && requires(Layout layout, bytes size) {
                         { layout.place(size) } -> std::same_as<chunk_place>;
                       };

}  // namespace chunkmem::inline v0
