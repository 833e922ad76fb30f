// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/arranging_layout.hpp>
#include <chunkmem/core/expects.hpp>

#include <cstddef>
#include <span>

namespace chunkmem::inline v0 {

/// All tensors of one list and role through a layout that was reset: at once where it can arrange, else one by one.
///
/// @throws usage_error   not one place for each size; size_overflow
template <chunk_layout Layout>
void place_all(Layout& layout, std::span<const bytes> sizes, std::span<chunk_place> places)
{
  expects(sizes.size() == places.size(), "a layout needs one place for each size");
  if constexpr (arranging_layout<Layout>)
    layout.arrange(sizes, places);
  else
    for (std::size_t index = 0; index < sizes.size(); ++index) places[index] = layout.place(sizes[index]);
}

}  // namespace chunkmem::inline v0
