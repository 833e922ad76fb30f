// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/nccl.hpp>
#include <support/catch.hpp>
#include <support/fake_nccl.hpp>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace nccl_rig {

using namespace chunkmem;
using support::fake_nccl;

/// The threads that a control communicator joins.
struct board {
  explicit board(std::uint32_t its_ranks) : ranks{its_ranks} {}
  std::uint32_t ranks;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::uint64_t> words;
  std::vector<std::uint64_t> told;
  std::uint32_t arrived = 0;
  std::uint64_t round = 0;
  bool is_revoked = false;
};

/// Exchanges words until a rank leaves or revokes.
class control {
 public:
  control(board& on, std::uint32_t rank) : on_{&on}, rank_{rank} {}
  ~control() { revoke(); }
  [[nodiscard]] rank_id rank() const noexcept { return rank_id{rank_}; }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return on_->ranks; }
  void exchange(std::span<const std::uint64_t> mine, std::span<std::uint64_t> all)
  {
    std::unique_lock lock{on_->mutex};
    if (on_->is_revoked) raise();
    on_->words.resize(all.size());
    std::copy(mine.begin(), mine.end(), on_->words.begin() + static_cast<std::ptrdiff_t>(rank_ * mine.size()));
    const std::uint64_t round = on_->round;
    if (++on_->arrived == on_->ranks) {
      on_->arrived = 0;
      ++on_->round;
      on_->told = on_->words;
      on_->changed.notify_all();
    }
    on_->changed.wait(lock, [&] { return on_->round != round || on_->is_revoked; });
    if (on_->round == round) raise();
    std::copy(on_->told.begin(), on_->told.end(), all.begin());
  }
  void check()
  {
    const std::lock_guard lock{on_->mutex};
    if (on_->is_revoked) raise();
  }
  void revoke() noexcept
  {
    const std::lock_guard lock{on_->mutex};
    on_->is_revoked = true;
    on_->changed.notify_all();
  }

 private:
  [[noreturn]] static void raise()
  {
    throw comm_error{error_text{} << "chunkmem: revoked", {.failure = comm_failure::revoked}};
  }
  board* on_;
  std::uint32_t rank_;
};

using device = backend::cuda_device<support::fake_cuda>;
using group = collective::nccl<fake_nccl, control>;

/// The state and the work of a rank.
struct rank_rig {
  device& gpu;
  group& all;
  fake_nccl& api;
  std::byte* place;  ///< 4096 B of the device
};
using body = std::function<void(rank_rig&)>;

struct outcome {
  std::vector<std::optional<comm_fault>> faults;
  std::vector<int> calls;
  std::shared_ptr<support::fake_nccl_world> world;
};

/// A thread for each rank.
inline outcome run(std::uint32_t ranks, const body& work, const std::vector<fake_nccl::plan>& plans = {},
                   std::uint64_t deadline = 20'000'000'000)
{
  board meeting{ranks};
  outcome result{std::vector<std::optional<comm_fault>>(ranks), std::vector<int>(ranks),
                 std::make_shared<support::fake_nccl_world>(static_cast<int>(ranks))};
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const support::fake_cuda cuda{support::fake_cuda_options{.seed = rank + 1}};
      device gpu{{.device_capacity = bytes{1 << 20}, .host_capacity = bytes{1 << 20}}, cuda};
      control mine{meeting, rank};
      fake_nccl api{result.world, cuda, static_cast<int>(rank), rank < plans.size() ? plans[rank] : fake_nccl::plan{}};
      try {
        std::byte* const place = gpu.allocate(tier::device, bytes{4096});
        group all{mine, {.deadline = deadline}, api};
        rank_rig rig{gpu, all, api, place};
        work(rig);
      } catch (const comm_error& error) {
        result.faults[rank] = error.fault();
      }
      result.calls[rank] = api.calls();
    });
  for (auto& it : threads) it.join();
  return result;
}

inline void fill(float* to, std::size_t count, std::uint32_t rank)
{
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<float>((i * 7 + rank * 13) % 101);
}

/// All operations, each finished and compared with a plain loop. Counts errors.
inline int wrong_results(rank_rig& rig, std::size_t count)
{
  const std::uint32_t ranks = rig.all.ranks();
  const std::uint32_t me = index_of(rig.all.rank());
  const agent stream = agent::compute;
  const auto parts = collective::shares::of(bytes{count * 4}, ranks);
  auto* const values = reinterpret_cast<float*>(rig.place);
  const auto total = [&](std::size_t i, float scale) {
    float sum = 0;
    for (std::uint32_t r = 0; r < ranks; ++r) sum += scale * static_cast<float>((i * 7 + r * 13) % 101);
    return sum;
  };
  int wrong = 0;
  const auto compare = [&](std::size_t from, std::size_t to, auto&& expected) {
    rig.all.finish(rig.gpu, stream);
    for (std::size_t i = from; i < to; ++i) wrong += values[i] == expected(i) ? 0 : 1;
    rig.all.barrier(rig.gpu, stream, 0);
  };
  fill(values, count, me);
  rig.all.all_gather(rig.gpu, stream, rig.place, parts, 1);
  compare(0, count, [&](std::size_t i) { return static_cast<float>((i * 7 + i * 4 / parts.each * 13) % 101); });
  for (const float scale : {1.0F, 0.5F, 2.0F, 2.0F}) {
    fill(values, count, me);
    rig.all.reduce_scatter(rig.gpu, stream, rig.place, parts, {.scale = scale}, 2);
    compare(parts.begin(me) / 4, parts.end(me) / 4, [&](std::size_t i) { return total(i, scale); });
    fill(values, count, me);
    rig.all.all_reduce(rig.gpu, stream, rig.place, parts, {.scale = scale}, 3);
    compare(0, count, [&](std::size_t i) { return total(i, scale); });
  }
  fill(values, count, me);
  rig.all.broadcast(rig.gpu, stream, rig.place, bytes{count * 4}, rank_id{ranks - 1}, 4);
  compare(0, count, [&](std::size_t i) { return static_cast<float>((i * 7 + (ranks - 1) * 13) % 101); });
  if (ranks == 1) return wrong;
  fill(values, count, me);
  if (me == 0) rig.all.send(rig.gpu, stream, rig.place, bytes{count * 4}, rank_id{1}, 5);
  if (me == 1) rig.all.receive(rig.gpu, stream, rig.place, bytes{count * 4}, rank_id{0}, 5);
  compare(0, count, [&](std::size_t i) { return static_cast<float>((i * 7 + (me < 2 ? 0 : me) * 13) % 101); });
  return wrong;
}

}  // namespace nccl_rig
