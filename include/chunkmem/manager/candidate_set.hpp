#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <cstdint>
#include <span>
#include <utility>

namespace chunkmem::inline v0 {

/// Tells an eviction policy which chunks may leave the device, or tells it nothing while a plan is followed.
///
/// A chunk is a candidate when it is on the device without pins. Its key changes only while it is outside the set.
/// Cost: one test of a flag, and the policy's own.
template <eviction_policy Eviction>
class candidate_set {
 public:
  explicit candidate_set(Eviction policy) : policy_{std::move(policy)} {}

  void reset(std::uint32_t chunks)
  {
    policy_.reset(chunks);
    telling_ = true;
  }

  /// Starts over with what is on the device now. O(chunks).
  void tell(const access_record& record, std::span<const chunk> chunks)
  {
    policy_.reset(static_cast<std::uint32_t>(chunks.size()));
    policy_.on_profile(record);
    telling_ = true;
    for (std::uint32_t at = 0; at < chunks.size(); ++at)
      if (is_candidate(chunks[at])) policy_.enter(key_of(at, chunks[at]));
  }

  /// The policy hears nothing until `tell`.
  void silence() noexcept { telling_ = false; }
  [[nodiscard]] bool is_telling() const noexcept { return telling_; }

  void enter(std::uint32_t at, const chunk& it) noexcept
  {
    if (telling_) policy_.enter(key_of(at, it));
  }
  void leave(std::uint32_t at, const chunk& it) noexcept
  {
    if (telling_) policy_.leave(key_of(at, it));
  }

  /// Changes whether the host's copy is valid, which is part of the key.
  void set_host_valid(std::uint32_t at, chunk& it, bool valid) noexcept
  {
    const bool listed = is_candidate(it);
    if (listed) leave(at, it);
    it.host_valid = valid;
    if (listed) enter(at, it);
  }

  [[nodiscard]] chunk_id victim(moment now) const noexcept { return policy_.victim(now); }

 private:
  [[nodiscard]] static bool is_candidate(const chunk& it) noexcept { return it.on_device() && it.device_pins == 0; }
  [[nodiscard]] static eviction::candidate key_of(std::uint32_t at, const chunk& it) noexcept
  {
    return {chunk_id{at}, moment{it.next_use}, it.frames, !it.host_valid};
  }

  Eviction policy_;
  bool telling_ = true;
};

}  // namespace chunkmem::inline v0
