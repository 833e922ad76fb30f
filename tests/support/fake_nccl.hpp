// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/nccl_api.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <support/fake_cuda.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace support {

/// One operation as a rank requested it.
struct fake_nccl_operation {
  char what = ' ';  ///< g all_gather, s reduce_scatter, a all_reduce, b broadcast, r reduce
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t count = 0;
  chunkmem::dtype type{};
  int root = 0;
  float scale = 1;

  [[nodiscard]] bool fits(const fake_nccl_operation& o) const noexcept
  {
    return std::tuple{what, count, type, root, scale} == std::tuple{o.what, o.count, o.type, o.root, o.scale};
  }
  [[nodiscard]] std::size_t size() const noexcept { return count * chunkmem::size_of(type); }
};

/// The state that all ranks of one process share. Adds float32 and bfloat16 only.
struct fake_nccl_world {
  struct member {
    bool is_there = false, is_aborted = false, is_destroyed = false, is_finalizing = false;
    int state = 0, polls = 0;
    std::uint64_t given = 0, done = 0;
    std::map<float, int> sums;
    int enrolled = 0;
    std::atomic<int> inside{0};
  };
  struct meeting {
    std::vector<fake_nccl_operation> all;
    int arrived = 0;
    bool is_over = false;
  };
  explicit fake_nccl_world(int its_ranks) : ranks{its_ranks}, members(static_cast<std::size_t>(its_ranks)) {}

  const int ranks;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<member> members;
  std::map<std::uint64_t, meeting> meetings;
  std::map<std::tuple<int, int, std::uint64_t>, fake_nccl_operation> letters;
  std::atomic<int> misuses{0}, aborts{0}, destroys{0}, after_failure{0};
  std::atomic<int> ended_on{-1};  ///< the current device of the last call that ended a communicator

  bool is_released = false;
  /// Releases the calls that `plan::abort_waits` and `plan::abort_leaves` hold.
  void release()
  {
    const std::lock_guard lock{mutex};
    is_released = true;
    changed.notify_all();
  }
  void wait_for_release()
  {
    std::unique_lock lock{mutex};
    changed.wait(lock, [this] { return is_released; });
  }

  /// On a stream: waits for the others, until they come or this rank aborts.
  void meet(int rank, std::uint64_t number, const fake_nccl_operation& mine)
  {
    std::unique_lock lock{mutex};
    member& own = members[static_cast<std::size_t>(rank)];
    if (own.is_aborted) return (void)++own.done;
    meeting& it = meetings[number];
    it.all.resize(members.size());
    it.all[static_cast<std::size_t>(rank)] = mine;
    if (++it.arrived == ranks) {
      it.is_over = true;
      for (const auto& one : it.all) it.is_over = it.is_over && one.fits(mine);
      if (it.is_over) move(it.all);
      changed.notify_all();
    }
    changed.wait(lock, [&] { return it.is_over || own.is_aborted || is_released; });
    if (!it.is_over) --it.arrived;  // its memory may be freed when another rank arrives
    ++own.done;
  }
  void pass(int rank, int from, int to, std::uint64_t number, const fake_nccl_operation& mine)
  {
    std::unique_lock lock{mutex};
    member& own = members[static_cast<std::size_t>(rank)];
    const std::tuple key{from, to, number};
    if (rank == from) {
      letters[key] = mine;
      changed.notify_all();
      changed.wait(lock, [&] { return !letters.contains(key) || own.is_aborted; });
      letters.erase(key);
    } else {
      changed.wait(lock, [&] { return (letters.contains(key) && letters[key].count == mine.count) || own.is_aborted; });
      if (!own.is_aborted) {
        std::memcpy(mine.to, letters[key].from, mine.size());
        letters.erase(key);
        changed.notify_all();
      }
    }
    ++own.done;
  }

 private:
  /// In order of ranks, in single precision, rounded once.
  template <class Element>
  [[nodiscard]] static std::vector<std::byte> sum_of(const std::vector<fake_nccl_operation>& all, std::size_t index)
  {
    const auto& first = all[0];
    std::vector<std::byte> result(first.size());
    for (std::size_t i = 0; i < first.count; ++i) {
      float total = 0;
      for (const auto& one : all) {
        Element value{};
        std::memcpy(&value, one.from + index + i * sizeof value, sizeof value);
        total += chunkmem::to_float(value) * first.scale;
      }
      const auto rounded = chunkmem::round_to<Element>(total);
      std::memcpy(result.data() + i * sizeof rounded, &rounded, sizeof rounded);
    }
    return result;
  }
  void move(const std::vector<fake_nccl_operation>& all)
  {
    const auto& first = all[0];
    const std::size_t size = first.size();
    std::vector<std::vector<std::byte>> results;
    const auto sum = [&](std::size_t index) {
      switch (first.type) {
        case chunkmem::dtype::bfloat16: return sum_of<chunkmem::bf16>(all, index);
        case chunkmem::dtype::float16: return sum_of<chunkmem::fp16>(all, index);
        default: return sum_of<float>(all, index);
      }
    };
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (first.what == 's') results.push_back(sum(rank * size));
      if (first.what == 'a' || (first.what == 'r' && static_cast<int>(rank) == first.root))
        results.push_back(sum(0));
      else if (first.what == 'r')
        results.emplace_back();
      const auto& root = all[static_cast<std::size_t>(first.root)];
      if (first.what == 'b') results.emplace_back(root.from, root.from + size);
      if (first.what == 'g') {
        results.emplace_back();
        for (const auto& one : all) results.back().insert(results.back().end(), one.from, one.from + size);
      }
    }
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      if (!results[rank].empty()) std::memcpy(all[rank].to, results[rank].data(), results[rank].size());
  }
};

/// NCCL on threads, over streams of a `fake_cuda`: models `chunkmem::nccl_api`.
///
/// As in the real one, operations that differ between ranks wait on the stream until an abort, and every call may
/// return "in progress". Fails at the k-th call of a rank with any number; counts concurrent calls, calls after an end
/// and calls after a failure.
class fake_nccl {
 public:
  using comm_type = int;  ///< rank + 1
  using stream_type = fake_stream_handle;
  using sum_type = int;  ///< 0 sum, 1 mean, others are scales
  static constexpr std::size_t id_size = 128;

  struct plan {
    int fail_at = -1;             ///< which call of this rank, counted from 0
    int number = 0;               ///< with which result
    int in_progress = 0;          ///< polls that each call takes until it is done
    std::size_t connections = 0;  ///< device memory that the first operation takes, for good [bytes]
    bool is_async = false;      ///< async_error reports the failure from then on, the call itself returns "in progress"
    bool abort_waits = false;   ///< an abort or a destruction returns when the world releases it
    bool abort_leaves = false;  ///< an abort returns at once, but its operations stay on their streams until then
  };
  struct log {
    plan what;
    int calls = 0;
    bool is_connected = false;
    bool has_failed = false;
  };

  fake_nccl(std::shared_ptr<fake_nccl_world> world, fake_cuda cuda, int rank, plan what)
      : world_{std::move(world)}, cuda_{std::move(cuda)}, rank_{rank}, log_{std::make_shared<log>(log{.what = what})}
  {
  }
  [[nodiscard]] int calls() const { return log_->calls; }

  int make_id(std::span<std::byte> id) const noexcept
  {
    return call(false, [&] { std::memset(id.data(), 0x5a, id.size()); });
  }
  int create(comm_type& fresh, int, std::span<const std::byte> id, int rank) const noexcept
  {
    if (id[0] != std::byte{0x5a} || rank != rank_) ++world_->misuses;
    own().is_there = true;
    fresh = rank + 1;
    return call(true, [] {});
  }
  int async_error(comm_type, int& error) const noexcept
  {
    return call(false, [&] {
      const std::lock_guard lock{world_->mutex};
      fake_nccl_world::member& mine = own();
      const bool is_busy = mine.is_finalizing && mine.done != mine.given;
      error = mine.state != 0 ? mine.state : mine.polls > 0 ? (--mine.polls, 7) : is_busy ? 7 : 0;
    });
  }
  int rank_of(comm_type group, int& rank) const noexcept
  {
    own().is_there = true;
    return call(false, [&] { rank = group - 1; });
  }
  int ranks_of(comm_type, int& ranks) const noexcept
  {
    return call(false, [&] { ranks = world_->ranks; });
  }
  /// As in the real one: in progress until the enqueued operations are done.
  int finalize(comm_type) const noexcept
  {
    const int number = call(true, [] {});
    const std::lock_guard lock{world_->mutex};
    own().is_finalizing = true;
    return number == 0 && own().done != own().given ? 7 : number;
  }
  int destroy(comm_type) const noexcept
  {
    ++world_->destroys;
    note_device();
    if (log_->what.abort_waits) world_->wait_for_release();
    end(own().is_destroyed);
    return 0;
  }
  int abort(comm_type) const noexcept
  {
    ++world_->aborts;
    note_device();
    if (log_->what.abort_waits) world_->wait_for_release();
    if (!log_->what.abort_leaves) end(own().is_aborted);
    return 0;
  }
  int current_device(int& device) const noexcept { return cuda_.current_device(device); }
  int use_device(int device) const noexcept { return cuda_.use_device(device); }
  int begin_calls() const noexcept
  {
    return call(false, [] {});
  }
  int end_calls() const noexcept
  {
    if (log_->has_failed) return 0;  // has to be balanced
    return call(true, [] {});
  }
  int all_gather(const void* from, void* to, std::size_t count, chunkmem::dtype type, comm_type,
                 stream_type on) const noexcept
  {
    return give(on, make('g', from, to, count, type));
  }
  int reduce_scatter(const void* from, void* to, std::size_t count, chunkmem::dtype type, sum_type how, comm_type,
                     stream_type on) const noexcept
  {
    return give(on, make('s', from, to, count, type, 0, scale_of(how)));
  }
  int all_reduce(const void* from, void* to, std::size_t count, chunkmem::dtype type, sum_type how, comm_type,
                 stream_type on) const noexcept
  {
    return give(on, make('a', from, to, count, type, 0, scale_of(how)));
  }
  int broadcast(const void* from, void* to, std::size_t count, chunkmem::dtype type, int root, comm_type,
                stream_type on) const noexcept
  {
    return give(on, make('b', from, to, count, type, root));
  }
  int reduce(const void* from, void* to, std::size_t count, chunkmem::dtype type, sum_type how, int root, comm_type,
             stream_type on) const noexcept
  {
    return give(on, make('r', from, to, count, type, root, scale_of(how)));
  }
  int send(const void* from, std::size_t count, chunkmem::dtype type, int to, comm_type, stream_type on) const noexcept
  {
    return pass(on, rank_, to, make('p', from, nullptr, count, type));
  }
  int receive(void* to, std::size_t count, chunkmem::dtype type, int from, comm_type, stream_type on) const noexcept
  {
    return pass(on, from, rank_, make('p', nullptr, to, count, type));
  }
  sum_type plain_sum() const noexcept { return 0; }
  sum_type mean() const noexcept { return 1; }
  int create_scaled_sum(sum_type& how, chunkmem::dtype, float scale, comm_type) const noexcept
  {
    return call(false, [&] {
      if (own().sums.contains(scale)) ++world_->misuses;  // made once
      how = own().sums[scale] = 2 + static_cast<int>(own().sums.size());
    });
  }
  int destroy_sum(sum_type, comm_type) const noexcept
  {
    return call(false, [] {});
  }
  int enroll(comm_type, void* place, std::size_t, void*& handle) const noexcept
  {
    return call(false, [&] { ++own().enrolled, handle = place; });
  }
  int dismiss(comm_type, void*) const noexcept
  {
    return call(false, [&] { --own().enrolled; });
  }
  int is_done(stream_type, bool& done) const noexcept
  {
    return call(false, [&] {
      const std::lock_guard lock{world_->mutex};
      done = own().done == own().given;
    });
  }
  const char* name_of(int) const noexcept { return "a fake number"; }

 private:
  [[nodiscard]] fake_nccl_world::member& own() const { return world_->members[static_cast<std::size_t>(rank_)]; }
  [[nodiscard]] float scale_of(sum_type how) const
  {
    if (how == 0) return 1;
    if (how == 1) return 1 / static_cast<float>(world_->ranks);
    for (const auto& [scale, number] : own().sums)
      if (number == how) return scale;
    ++world_->misuses;
    return 0;
  }
  [[nodiscard]] static fake_nccl_operation make(char what, const void* from, void* to, std::size_t count,
                                                chunkmem::dtype type, int root = 0, float scale = 1)
  {
    return {what, static_cast<const std::byte*>(from), static_cast<std::byte*>(to), count, type, root, scale};
  }
  /// One call: counted, then failed as planned or done.
  template <class Body>
  int call(bool may_last, Body&& body) const
  {
    if (own().inside.fetch_add(1) != 0) ++world_->misuses;
    int number = 0;
    if (own().is_aborted || own().is_destroyed) ++world_->misuses;
    if (log_->has_failed) ++world_->after_failure;
    if (log_->calls++ == log_->what.fail_at) {
      if (log_->what.is_async) {
        const std::lock_guard lock{world_->mutex};
        own().state = log_->what.number;
      } else {
        log_->has_failed = true;
        number = log_->what.number;
      }
    }
    if (number == 0) body();
    if (number == 0 && may_last && log_->what.in_progress > 0) {
      const std::lock_guard lock{world_->mutex};
      own().polls = log_->what.in_progress;
      number = 7;
    }
    own().inside.fetch_sub(1);
    return number;
  }
  void note_device() const noexcept
  {
    int device = -1;
    if (cuda_.current_device(device) == 0) world_->ended_on = device;
  }
  void end(bool& how) const
  {
    if (own().inside.fetch_add(1) != 0) ++world_->misuses;
    {
      const std::lock_guard lock{world_->mutex};
      if (own().is_aborted || own().is_destroyed) ++world_->misuses;
      how = true;
    }
    world_->changed.notify_all();
    own().inside.fetch_sub(1);
  }
  /// NCCL connects with the first operation. @return   false: the device has too little memory
  [[nodiscard]] bool connects(stream_type on) const
  {
    if (std::exchange(log_->is_connected, true)) return true;
    if (cuda_.take_for_library(cuda_.device_of(on), log_->what.connections)) return true;
    log_->has_failed = true;
    return false;
  }
  int give(stream_type on, const fake_nccl_operation& mine) const
  {
    if (!connects(on)) return 1;
    return call(true, [&] {
      const std::uint64_t number = next();
      cuda_.launch_kernel(on, [world = world_, rank = rank_, number, mine] { world->meet(rank, number, mine); });
    });
  }
  int pass(stream_type on, int from, int to, const fake_nccl_operation& mine) const
  {
    if (!connects(on)) return 1;
    return call(true, [&] {
      (void)next();
      cuda_.launch_kernel(on, [world = world_, rank = rank_, from, to, mine] { world->pass(rank, from, to, 0, mine); });
    });
  }
  std::uint64_t next() const
  {
    const std::lock_guard lock{world_->mutex};
    return own().given++;
  }

  std::shared_ptr<fake_nccl_world> world_;
  fake_cuda cuda_;
  int rank_;
  std::shared_ptr<log> log_;
};

static_assert(chunkmem::nccl_api<fake_nccl>);

}  // namespace support
