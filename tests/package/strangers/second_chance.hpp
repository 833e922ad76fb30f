#pragma once

#include <chunkmem/core/index_set.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>

#include <cstdint>
#include <string_view>

/// Walks the chunks in a circle: what was used since the last round stays for one more, the next one that was not goes.
///
/// Nearly lru, and cheaper where most decisions find an unused chunk at once.
/// Source: the clock of Multics (Corbato 1968). Cost: O(1) words for each step of the hand; each use pays for one step.
class second_chance {
 public:
  using policy_kind = chunkmem::eviction_kind;
  static constexpr std::string_view name = "second_chance";

  void reset(std::uint32_t chunks)
  {
    waiting_.reset(chunks);
    used_.reset(chunks);
    hand_ = 0;
  }
  void on_profile(const chunkmem::access_record&) {}

  void enter(const chunkmem::eviction::candidate& item) noexcept
  {
    waiting_.insert(index_of(item.chunk));
    used_.insert(index_of(item.chunk));  // a chunk comes here at the end of a use
  }
  void leave(const chunkmem::eviction::candidate& item) noexcept { waiting_.erase(index_of(item.chunk)); }

  /// Asked twice, the hand still points at the same chunk.
  [[nodiscard]] chunkmem::chunk_id victim(chunkmem::moment) noexcept
  {
    while (!waiting_.empty()) {
      hand_ = waiting_.first_from(hand_);
      if (hand_ == chunkmem::index_set::none) hand_ = waiting_.first_from(0);
      if (!used_.contains(hand_)) return chunkmem::chunk_id{hand_};
      used_.erase(hand_++);
    }
    return chunkmem::chunk_id::none;
  }

 private:
  chunkmem::index_set waiting_;
  chunkmem::index_set used_;
  std::uint32_t hand_ = 0;
};

static_assert(chunkmem::eviction_policy<second_chance>);
