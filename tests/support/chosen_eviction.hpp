#pragma once

#include <chunkmem/eviction/belady.hpp>
#include <chunkmem/eviction/lru.hpp>

#include <cstdint>
#include <string_view>

namespace support {

/// `lru` or `belady`, chosen when the program runs, so that a matrix of tests needs one type of manager.
class chosen_eviction {
 public:
  using policy_kind = chunkmem::eviction_kind;
  static constexpr std::string_view name = "chosen_eviction";
  enum class rule : std::uint8_t { lru, belady };

  chosen_eviction() = default;
  explicit chosen_eviction(rule which) noexcept : which_{which} {}

  void reset(std::uint32_t chunks)
  {
    lru_.reset(chunks);
    belady_.reset(chunks);
  }
  void on_profile(const chunkmem::access_record& record)
  {
    if (which_ == rule::belady) belady_.on_profile(record);
  }
  void enter(const chunkmem::eviction::candidate& item) noexcept { which_ == rule::lru ? lru_.enter(item) : belady_.enter(item); }
  void leave(const chunkmem::eviction::candidate& item) noexcept { which_ == rule::lru ? lru_.leave(item) : belady_.leave(item); }
  [[nodiscard]] chunkmem::chunk_id victim(chunkmem::moment now) const noexcept
  {
    return which_ == rule::lru ? lru_.victim(now) : belady_.victim(now);
  }

 private:
  rule which_ = rule::belady;
  chunkmem::eviction::lru lru_;
  chunkmem::eviction::belady belady_;
};

static_assert(chunkmem::eviction_policy<chosen_eviction>);

}  // namespace support
