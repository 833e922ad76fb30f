// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace chunkmem::inline v0 {
namespace backend {

/// The groups of ranks that have operations on the streams of one device.
///
///     peer_groups groups;
///     groups.join({.group = &mine, .check = ..., .mark = ..., .abort = ..., .deadline = 60'000'000'000});
///     if (groups.look(start, deadline, now) == peer_groups::found::lost) keep_memory();
///
/// An operation of a group waits on its stream for other ranks, and for ever where one of them is gone. All work after
/// it on the stream waits too, also that of other groups. So the groups of a device end together. First all are marked,
/// then each is aborted: NCCL's abort may wait for a kernel of another communicator of the same device. New groups may
/// join when the failed ones have ended and their operations have left the streams.
///
/// The device and its groups share the ownership: either may end first. @threads   any
class peer_groups {
 public:
  using clock = std::chrono::steady_clock;

  /// The functions of a group that a device calls. None of them throws or waits for other ranks.
  struct member {
    void* group = nullptr;
    bool (*check)(void* group) noexcept = nullptr;  ///< false: the group has failed, and is marked
    void (*mark)(void* group, const comm_error& why) noexcept = nullptr;  ///< tells the ranks, unless it has failed
    void (*abort)(void* group) noexcept = nullptr;                        ///< takes its operations off the streams
    std::uint64_t deadline = 0;                                           ///< longest wait for other ranks [ns]
  };

  /// How long operations of a group may stay on a stream after its abort, where the deadline has passed.
  static constexpr std::chrono::milliseconds time_to_drain{300};

  /// @throws usage_error   a group of this device failed and has not ended; nothing was changed
  void join(const member& fresh)
  {
    const std::lock_guard lock{mutex_};
    if (why_)
      throw usage_error{
          "a group of ranks was used on a device where another one failed (destroy all groups that have work on it "
          "before you use new ones, outside of a capture)"};
    members_.push_back(fresh);
  }
  /// Removes a group that ends.
  void leave(const void* group) noexcept
  {
    const std::lock_guard lock{mutex_};
    std::erase_if(members_, [=](const member& it) { return it.group == group; });
  }

  /// Whether groups failed and have all left: call `drained` once none of their operations is on a stream.
  [[nodiscard]] bool waits_to_drain() const noexcept
  {
    const std::lock_guard lock{mutex_};
    return why_ && members_.empty();
  }
  void drained() noexcept
  {
    const std::lock_guard lock{mutex_};
    if (members_.empty()) why_.reset();
  }
  /// Notes that the device has ended.
  void close() noexcept
  {
    const std::lock_guard lock{mutex_};
    is_closed_ = true;
  }
  [[nodiscard]] bool is_closed() const noexcept
  {
    const std::lock_guard lock{mutex_};
    return is_closed_;
  }

  /// The first failure, until all groups have ended.
  [[nodiscard]] std::optional<comm_error> failure() const
  {
    const std::lock_guard lock{mutex_};
    return why_;
  }
  /// Ends every group because one of them failed.
  void end_all(const comm_error& why) noexcept
  {
    const std::lock_guard lock{mutex_};
    end_members(why, of_another_group());
  }

  enum class found : std::uint8_t {
    well,
    ended,  ///< by a failure; their operations are leaving the streams
    lost,   ///< ended, and the time for leaving the streams is over
  };
  /// For a wait that began at `start` and is held up by an operation with this deadline: asks the groups, and ends them
  /// where one has failed or the deadline has passed.
  [[nodiscard]] found look(clock::time_point start, std::chrono::nanoseconds deadline, clock::time_point now) noexcept
  {
    const std::lock_guard lock{mutex_};
    if (!why_) {
      bool are_well = true;
      for (const member& it : members_) are_well = it.check(it.group) && are_well;
      if (!are_well)
        end_members(of_another_group(), of_another_group());
      else if (now - start >= deadline)
        end_members(late(now - start), late(now - start));
    }
    if (!why_) return found::well;
    return now < gives_up_ ? found::ended : found::lost;
  }

 private:
  void end_members(const comm_error& why, const comm_error& others) noexcept
  {
    if (!why_) {
      std::uint64_t longest = 0;
      for (const member& it : members_) longest = std::max(longest, it.deadline);
      const bool was_late = why.fault().failure == comm_failure::deadline;
      gives_up_ = clock::now() + time_to_drain + std::chrono::nanoseconds{was_late ? 0 : longest};
      why_ = why;
    }
    for (const member& it : members_) it.mark(it.group, others);
    for (const member& it : members_) it.abort(it.group);
  }

  /// The error of groups that end because another one failed.
  [[nodiscard]] static comm_error of_another_group() noexcept
  {
    return {error_text{} << "chunkmem: another group of ranks with work on the same device failed, so this one ended "
                            "too (see the error of that group)",
            {.failure = comm_failure::revoked}};
  }
  [[nodiscard]] static comm_error late(std::chrono::nanoseconds waited) noexcept
  {
    const auto time = static_cast<std::uint64_t>(waited.count());
    return {error_text{} << "chunkmem: an operation with other ranks did not leave a stream of the device within "
                         << time
                         << " ns: a rank is missing, or much work of this rank lies ahead of the operation (look at "
                            "the first rank that failed, or make the deadline longer)",
            {.failure = comm_failure::deadline, .waited = time}};
  }

  mutable std::mutex mutex_;
  std::vector<member> members_;
  std::optional<comm_error> why_;  ///< of the end of all groups, until they have left and drained
  clock::time_point gives_up_;     ///< where there is a `why_`
  bool is_closed_ = false;
};

}  // namespace backend
}  // namespace chunkmem::inline v0
