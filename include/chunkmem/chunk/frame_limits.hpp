// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/frame_size.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/core/sort_records.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

/// Between which sizes a frame is searched, both included.
///
///     const bytes frame = search.find(frame_limits::of(sizes)).frame;
struct frame_limits {
  bytes least{tensor_alignment};
  bytes most{64_MiB};

  /// From the largest tensor of the body: at most 1.25 times that, or 64 MiB if that is larger; at least 1/64 of it, so
  /// that no window of it is longer than 64 frames of its own list.
  /// @throws size_overflow
  [[nodiscard]] static frame_limits around(bytes largest_of_body)
  {
    const std::uint64_t unit = tensor_alignment.count();
    const std::uint64_t largest = frame_size::padded(largest_of_body);
    const bytes most = std::max(bytes{largest} + bytes{largest / 4 / unit * unit}, bytes{64_MiB});
    return {align_up(bytes{largest / 64}, tensor_alignment), most};
  }
  /// From the sizes of the list that has the shortest elements; see largest_of_body.
  [[nodiscard]] static frame_limits of(std::span<const bytes> sizes) { return around(largest_of_body(sizes)); }

  /// The largest tensor that is no vocabulary: the largest size that three tensors have, since a model has many layers
  /// but at most two vocabularies and few tables of positions. Where all such tensors are less than 1/100 of the bytes,
  /// the largest tensor of all.
  [[nodiscard]] static bytes largest_of_body(std::span<const bytes> sizes)
  {
    sequence<bytes> sorted(sizes);
    sort_records(std::span{sorted}, [](bytes a, bytes b) { return a > b; });
    double all = 0;
    for (const bytes size : sorted) all += static_cast<double>(size.count());
    for (std::size_t first = 0; first + 2 < sorted.size();) {
      std::size_t last = first + 1;
      while (last < sorted.size() && sorted[last] == sorted[first]) ++last;
      const double same = static_cast<double>(sorted[first].count()) * static_cast<double>(last - first);
      if (last - first > 2 && same * 100 >= all) return sorted[first];
      first = last;
    }
    return sorted.empty() ? bytes{0} : sorted.front();
  }
};

}  // namespace chunkmem::inline v0
