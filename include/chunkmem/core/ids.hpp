// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

/// Indices as types of their own, so that a chunk is never passed where a frame is meant. 32 bits each: four billion
/// chunks of one MiB are four PiB. The largest value of each means none.
enum class tensor_id : std::uint32_t { none = UINT32_MAX };  ///< a declared tensor
enum class list_id : std::uint32_t { none = UINT32_MAX };    ///< value, gradient, or a list of an optimizer
enum class slot_id : std::uint32_t { none = UINT32_MAX };    ///< one tensor in one list: entries of a record have it
enum class chunk_id : std::uint32_t { none = UINT32_MAX };   ///< the unit that moves between tiers
enum class frame_id : std::uint32_t {
  none = UINT32_MAX
};  ///< a place in a tier: a chunk lies in one or in several contiguous frames
enum class group_id : std::uint32_t { none = UINT32_MAX };  ///< parameters that share settings
enum class rank_id : std::uint32_t { none = UINT32_MAX };   ///< one of the processes or threads that train together

/// A place in the record of an iteration: 0 is its first access.
enum class access_index : std::uint32_t { none = UINT32_MAX };

/// The plain number of an id.
template <class Id>
[[nodiscard]] constexpr std::uint32_t index_of(Id id) noexcept
{
  return static_cast<std::uint32_t>(id);
}

/// The frame that lies `count` frames above.
[[nodiscard]] constexpr frame_id operator+(frame_id first, std::uint32_t count) noexcept
{
  return frame_id{index_of(first) + count};
}

/// The ids 0 to `count` - 1, for a range-based for: `for (const chunk_id each : ids<chunk_id>(chunks))`.
template <class Id>
class id_range {
 public:
  class iterator {
   public:
    constexpr explicit iterator(std::uint32_t index) noexcept : index_{index} {}
    [[nodiscard]] constexpr Id operator*() const noexcept { return Id{index_}; }
    constexpr iterator& operator++() noexcept
    {
      ++index_;
      return *this;
    }
    [[nodiscard]] constexpr bool operator==(const iterator&) const noexcept = default;

   private:
    std::uint32_t index_;
  };

  constexpr explicit id_range(std::uint32_t count) noexcept : count_{count} {}
  [[nodiscard]] constexpr iterator begin() const noexcept { return iterator{0}; }
  [[nodiscard]] constexpr iterator end() const noexcept { return iterator{count_}; }

 private:
  std::uint32_t count_;
};

template <class Id>
[[nodiscard]] constexpr id_range<Id> ids(std::uint32_t count) noexcept
{
  return id_range<Id>{count};
}

}  // namespace chunkmem::inline v0
