// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/ids.hpp>

#include <support/refusal.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace support {

/// Runs `body(rank)` on this many threads; returns when all have ended.
inline void on_ranks(std::uint32_t ranks, chunkmem::call_ref<void(std::uint32_t)> body)
{
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) threads.emplace_back([body, rank] { body(rank); });
  for (std::thread& each : threads) each.join();
}

/// One rank on its thread: its objects, and its first complaint. Assertions of Catch2 are for one thread.
template <class Communicator, class Backend>
struct rank_stage {
  Communicator& ranks;
  Communicator& others;  ///< a second group of the same ranks
  Backend& backend;
  chunkmem::agent stream = chunkmem::agent::to_device;
  chunkmem::agent other = chunkmem::agent::to_host;
  std::string complaint{};

  [[nodiscard]] std::uint32_t rank() const { return chunkmem::index_of(ranks.rank()); }
  void expect(bool holds, std::string_view what, std::uint64_t number = 0)
  {
    if (!holds && complaint.empty())
      complaint = "rank " + std::to_string(rank()) + " of " + std::to_string(ranks.ranks()) + ": " + std::string{what} +
                  " (" + std::to_string(number) + ")";
  }
  /// Waits for all work of the agents.
  void finish()
  {
    backend.wait(chunkmem::agent::host, backend.record(stream));
    backend.wait(chunkmem::agent::host, backend.record(other));
  }
};

/// Ranks that are threads, each with a host_arena as its device: a harness for the laws of communicators.
struct thread_harness {
  using communicator = chunkmem::collective::local_threads;
  using backend = chunkmem::backend::host_arena;
  using stage = rank_stage<communicator, backend>;

  std::vector<std::uint32_t> worlds{1, 2, 3, 4, 5, 6, 7, 8};
  chunkmem::collective::thread_group_options options{};

  /// The complaint of each rank; empty: none.
  std::vector<std::string> run(std::uint32_t ranks, chunkmem::call_ref<void(stage&)> body) const
  {
    std::vector<std::string> complaints(ranks);
    const chunkmem::collective::thread_group group{ranks, options};
    const chunkmem::collective::thread_group second{ranks, options};
    on_ranks(ranks, [&](std::uint32_t rank) {
      complaints[rank] = support::complaint_of([&] {
        backend memory{{.device_capacity = chunkmem::bytes{1U << 20U}, .host_capacity = chunkmem::bytes{1U << 20U}}};
        communicator one{group, chunkmem::rank_id{rank}};
        communicator two{second, chunkmem::rank_id{rank}};
        stage here{.ranks = one, .others = two, .backend = memory};
        body(here);
        return here.complaint;
      });
    });
    return complaints;
  }
};

}  // namespace support
