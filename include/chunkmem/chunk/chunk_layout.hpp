// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/policy.hpp>

#include <concepts>
#include <cstdint>

namespace chunkmem::inline v0 {

/// Where a tensor of one list lies: its chunk, counted from 0 inside that list, and its first byte there.
///
///     const chunk_place place = layout.place(4_KiB);
struct chunk_place {
  std::uint32_t chunk = 0;
  std::uint64_t offset = 0;  ///< [bytes], a multiple of tensor_alignment
  std::uint32_t frames = 1;  ///< of that chunk

  [[nodiscard]] bool operator==(const chunk_place&) const noexcept = default;
};

/// Places the tensors of one list and role, one after the other, into chunks. A value: its copies are independent.
///
/// `reset(frame)` forgets all and takes frames of that size; `place(size)` finds room for one tensor. Laws: after a
/// reset a model starts with chunk 0 and opens chunks in order; places are aligned to `tensor_alignment`, disjoint and
/// inside their chunk; a chunk has as many frames as its largest tensor needs; the same sizes give the same places; a
/// frame that is no positive multiple of `tensor_alignment` is a usage_error. It may do more, and say so by more
/// operations: see arranging_layout, reusing_layout and searchable_layout.
template <class Layout>
concept chunk_layout = names_itself<Layout> && std::same_as<typename Layout::policy_kind, layout_kind> &&
                       std::semiregular<Layout> && requires(Layout layout, bytes count) {
                         layout.reset(count);
                         {
                           layout.place(count)
                         } -> std::same_as<chunk_place>;
                       };

}  // namespace chunkmem::inline v0
