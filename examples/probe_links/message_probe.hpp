// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "process_group.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/message_work.hpp>
#include <chunkmem/collective/mpi.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <thread>

namespace probe_links {

using chunkmem::collective::message_work;

namespace detail {

/// The processor time of all threads of this process so far [s].
[[nodiscard]] inline double processor_seconds() noexcept
{
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The processors that two busy threads of this process get, at most 2. Takes 0.2 s.
[[nodiscard]] inline double processors_of_two_threads()
{
  using clock = std::chrono::steady_clock;
  const auto begin = clock::now();
  const double before = processor_seconds();
  const auto work = [&] {
    while (clock::now() - begin < std::chrono::milliseconds{200}) continue;
  };
  std::thread other{work};
  work();
  other.join();
  const double seconds = std::chrono::duration<double>(clock::now() - begin).count();
  return std::min(2.0, (processor_seconds() - before) / seconds);
}

/// The arithmetic that a thread loses while another thread needs a second of processor time [s]: all of it where the
/// process has one processor or less, and none where each of the threads has one.
[[nodiscard]] inline double lost_per_processor_second(double processors) noexcept
{
  return std::clamp(2 - processors, 0.0, 1.0) / std::min(processors, 1.0);
}

/// The processor time of messages, from that of gathers of two sizes [s].
[[nodiscard]] inline message_work work_of(std::uint32_t ranks, double of_small, double of_large, double more_bytes,
                                          double lost)
{
  return {.seconds_per_message = lost * of_small / message_work::messages_of_group(ranks),
          .seconds_per_byte = lost * std::max(0.0, of_large - of_small) / more_bytes};
}

}  // namespace detail

/// Measures how much arithmetic a process loses to its messages. Every rank makes the same call.
///
/// All ranks gather over `collective::mpi`, as trainers do, and count the processor time of the process. So the waits
/// of the library count too. From the processors that two threads of this process get follows how much of that time a
/// thread that computes would lose.
/// @param size   of a large gather [bytes]   @param rounds   large gathers
[[nodiscard]] inline message_work measure_messages(const process_group& all, std::uint64_t size, std::uint32_t rounds)
{
  using chunkmem::bytes;
  using chunkmem::collective::shares;
  all.barrier();
  const double processors = detail::processors_of_two_threads();
  chunkmem::collective::mpi ranks{all.session(), MPI_COMM_WORLD};
  chunkmem::backend::host_arena memory{{.device_capacity = bytes{4096}, .host_capacity = bytes{size + (1U << 20U)}}};
  const chunkmem::agent agent = memory.adopt();
  std::byte* const place = memory.allocate(chunkmem::tier::host, bytes{size});
  const auto of_gather = [&](const shares& parts, std::uint32_t count) {
    const auto gather = [&] {
      ranks.all_gather(memory, agent, place, parts, 0);
      memory.wait(chunkmem::agent::host, memory.record(agent));
    };
    gather();
    const double before = detail::processor_seconds();
    for (std::uint32_t index = 0; index < count; ++index) gather();
    return (detail::processor_seconds() - before) / count;
  };
  const shares small = shares::of(bytes{std::uint64_t{64} * all.ranks()}, all.ranks());
  const shares large = shares::of(bytes{size}, all.ranks());
  constexpr std::uint32_t small_gathers = 100;
  const double of_small = of_gather(small, small_gathers);
  const double of_large = of_gather(large, rounds);
  memory.release(chunkmem::tier::host, place);
  const double more_bytes = 2.0 * static_cast<double>(large.each - small.each) * (all.ranks() - 1);
  return detail::work_of(all.ranks(), of_small, of_large, more_bytes, detail::lost_per_processor_second(processors));
}

}  // namespace probe_links
