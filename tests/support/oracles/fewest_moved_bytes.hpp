// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/record_uses.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace support {

/// The fewest bytes that an iteration moves, by trying every way to keep or drop every chunk after every use. For a
/// dozen uses. Where the host is short a chunk has a host copy on it, or never loads, leaves with bytes, or is used on
/// the host.
///
/// Uses of one chunk must not overlap. Independent of gaps, epochs and prices: it simulates each chunk.
class fewest_moved_bytes {
 public:
  explicit fewest_moved_bytes(const chunkmem::transfer::retention_input& what)
      : what_{what}, access_count_{what.device_bytes.size()}
  {
    if (!what.host_bytes.empty()) host_ = *std::ranges::min_element(what.host_bytes);
    for (std::uint32_t chunk = 0; chunk < what.chunk_bytes.size(); ++chunk) collect(chunk);
    std::ranges::stable_sort(ways_, [](const auto& left, const auto& right) { return left.size() > right.size(); });
    rest_.assign(ways_.size() + 1, 0);
    for (std::size_t index = ways_.size(); index-- > 0;) rest_[index] = rest_[index + 1] + ways_[index].front().bytes;
  }

  /// @return   UINT64_MAX where it does not fit
  std::uint64_t operator()()
  {
    best_ = UINT64_MAX;
    std::vector<std::uint64_t> taken(access_count_, 0);
    choose(0, 0, 0, taken);
    return best_;
  }

 private:
  using use = chunkmem::transfer::retention_use;
  using use_kind = chunkmem::transfer::use_kind;
  struct way {
    std::uint64_t bytes;               // moved
    std::uint64_t host_copy;           // on the host
    std::vector<std::uint64_t> taken;  // on the device, at each access
  };

  void collect(std::uint32_t chunk)
  {
    std::vector<use> uses;
    for (const use& it : what_.uses)
      if (it.chunk == chunk) uses.push_back(it);
    std::vector<way> mine;
    for (std::uint32_t retained = 0; retained < (1U << uses.size()); ++retained)
      mine.push_back(play(uses, retained, what_.chunk_bytes[chunk]));
    std::ranges::stable_sort(mine, {}, &way::bytes);
    std::vector<way> useful;
    for (const way& it : mine) {
      const auto is_no_worse = [&](const way& other) {
        for (std::size_t now = 0; now < access_count_; ++now)
          if (other.taken[now] > it.taken[now]) return false;
        return host_ == UINT64_MAX || other.host_copy <= it.host_copy;
      };
      if (std::ranges::none_of(useful, is_no_worse)) useful.push_back(it);
    }
    ways_.push_back(useful);
  }

  /// The history of one chunk that stays after the uses whose bit is set.
  [[nodiscard]] way play(const std::vector<use>& uses, std::uint32_t retained, std::uint64_t size) const
  {
    way result{0, uses.empty() || !what_.repeats ? size : 0, std::vector<std::uint64_t>(access_count_, 0)};
    bool resident = false;
    bool dirty = false;
    bool empty = false;
    std::size_t left = 0;  // access since which it only waits
    for (int lap = 0; lap < (what_.repeats ? 3 : 1); ++lap) {
      result.bytes = 0;
      std::ranges::fill(result.taken, 0);
      for (std::size_t index = 0; index < uses.size(); ++index) {
        const use& it = uses[index];
        if (it.kind == use_kind::host_read || it.kind == use_kind::host_update) {
          result.bytes += dirty ? size : 0;
          dirty = false;
        }
        if (!chunkmem::transfer::is_on_device(it.kind) && it.kind != use_kind::drop) result.host_copy = size;
        if (it.kind == use_kind::host_read) continue;
        if (resident) fill(result.taken, left, it.begin, size);
        if (it.kind > use_kind::overwrite) {
          resident = dirty = false;
          empty = it.kind == use_kind::drop;
          continue;
        }
        if (!resident && !empty && it.kind != use_kind::overwrite) result.bytes += size;
        dirty = dirty || empty || it.kind != use_kind::read;
        empty = false;
        for (std::size_t now = it.begin; now < it.end; ++now) result.taken[now] = size;
        left = it.end % access_count_;
        // Free at the end of a single iteration, since later moves do not count.
        resident = (retained >> index & 1U) != 0;
        if (resident) continue;
        if (uses[(index + 1) % uses.size()].kind != use_kind::drop || left != uses[(index + 1) % uses.size()].begin)
          result.host_copy = size;
        result.bytes += dirty ? size : 0;
        dirty = false;
      }
    }
    return result;
  }
  void fill(std::vector<std::uint64_t>& taken, std::size_t from, std::size_t to, std::uint64_t size) const
  {
    for (std::size_t now = from; now != to; now = (now + 1) % access_count_) taken[now] = size;
  }

  void choose(std::size_t chunk, std::uint64_t bytes, std::uint64_t host_copies, std::vector<std::uint64_t>& taken)
  {
    if (bytes + rest_[chunk] >= best_ || host_copies > host_) return;
    if (chunk == ways_.size()) {
      best_ = bytes;
      return;
    }
    for (const way& it : ways_[chunk]) {
      bool fits = true;
      for (std::size_t now = 0; now < access_count_; ++now) {
        taken[now] += it.taken[now];
        fits = fits && taken[now] <= what_.device_bytes[now];
      }
      if (fits) choose(chunk + 1, bytes + it.bytes, host_copies + it.host_copy, taken);
      for (std::size_t now = 0; now < access_count_; ++now) taken[now] -= it.taken[now];
    }
  }

  const chunkmem::transfer::retention_input& what_;
  std::size_t access_count_;
  std::vector<std::vector<way>> ways_;  // of each chunk, none worse than another one
  std::vector<std::uint64_t> rest_;     // the least of this chunk and those after it
  std::uint64_t best_ = UINT64_MAX;
  std::uint64_t host_ = UINT64_MAX;
};

}  // namespace support
