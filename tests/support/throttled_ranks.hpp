// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/collective/simulated_ranks.hpp>
#include <support/throttled_arena.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace support {

/// The port of a rank to the network, which all its groups share: one collective at a time, as line_by_clocks serves.
/// @threads   any
class network_port {
 public:
  using moment = throttled_arena::moment;

  explicit network_port(const chunkmem::backend::link_cost& cost) noexcept : cost_{cost} {}

  /// @return   the time when this many bytes have left, if they may leave from `now` on
  [[nodiscard]] moment serve(moment now, chunkmem::bytes size)
  {
    return line_.serve(now, moment{static_cast<moment::rep>(cost_.nanoseconds_for(size))});
  }
  [[nodiscard]] moment latency() const noexcept { return moment{static_cast<moment::rep>(cost_.latency_nanoseconds)}; }
  /// Busy time so far.
  [[nodiscard]] moment busy() { return line_.busy(); }

 private:
  chunkmem::backend::link_cost cost_;
  line_by_clocks line_;
};

/// The clocks of ranks at their collectives. One for each group, which outlives the ranks.
class clocks_of_ranks {
 public:
  static constexpr std::size_t most_ranks = 8;
  using row = std::array<std::atomic<throttled_arena::moment::rep>, most_ranks>;

  /// A rank begins a collective when the previous one is over for all ranks, so two rows are enough.
  [[nodiscard]] row& at(std::uint64_t collective) noexcept { return rows_[collective % rows_.size()]; }

 private:
  std::array<row, 4> rows_{};
};

/// One rank's end of a group whose collectives take time, on throttled_arenas by the clocks of agents: a collective
/// begins at the latest clock of all ranks, and takes the time in which the rank's port sends its bytes around a ring.
template <class Communicator>
class throttled_ranks {
 public:
  using policy_kind = chunkmem::communicator_kind;
  static constexpr std::string_view name = "throttled_ranks";

  /// @param memory   of the rank; as all other arguments it outlives this
  throttled_ranks(Communicator& real, throttled_arena& memory, network_port& port, clocks_of_ranks& clocks)
      : real_{&real}, memory_{&memory}, port_{&port}, clocks_{&clocks}
  {
  }

  [[nodiscard]] chunkmem::rank_id rank() const noexcept { return real_->rank(); }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return real_->ranks(); }
  void all_gather(throttled_arena& memory, chunkmem::agent stream, std::byte* whole,
                  const chunkmem::collective::shares& parts, std::uint32_t label)
  {
    const auto moved = chunkmem::collective::ring_traffic::of_all_gather(parts, index_of(rank()));
    take_time(stream, moved.sent, [&] { real_->all_gather(memory, stream, whole, parts, label); });
  }
  void reduce_scatter(throttled_arena& memory, chunkmem::agent stream, std::byte* whole,
                      const chunkmem::collective::shares& parts, chunkmem::collective::sum how, std::uint32_t label)
  {
    const auto moved = chunkmem::collective::ring_traffic::of_reduce_scatter(parts, index_of(rank()));
    take_time(stream, moved.sent, [&] { real_->reduce_scatter(memory, stream, whole, parts, how, label); });
  }
  void all_reduce(throttled_arena& memory, chunkmem::agent stream, std::byte* whole,
                  const chunkmem::collective::shares& parts, chunkmem::collective::sum how, std::uint32_t label)
  {
    const auto moved = chunkmem::collective::ring_traffic::of_all_gather(parts, index_of(rank()));
    take_time(stream, 2 * moved.sent, [&] { real_->all_reduce(memory, stream, whole, parts, how, label); });
  }
  void broadcast(throttled_arena& memory, chunkmem::agent stream, std::byte* place, chunkmem::bytes size,
                 chunkmem::rank_id root, std::uint32_t label)
  {
    take_time(stream, size.count(), [&] { real_->broadcast(memory, stream, place, size, root, label); });
  }
  void send(throttled_arena& memory, chunkmem::agent stream, std::byte* place, chunkmem::bytes size,
            chunkmem::rank_id to, std::uint32_t label)
  {
    real_->send(memory, stream, place, size, to, label);
  }
  void receive(throttled_arena& memory, chunkmem::agent stream, std::byte* place, chunkmem::bytes size,
               chunkmem::rank_id from, std::uint32_t label)
  {
    real_->receive(memory, stream, place, size, from, label);
  }
  void barrier(throttled_arena& memory, chunkmem::agent stream, std::uint32_t label)
  {
    take_time(stream, 0, [&] { real_->barrier(memory, stream, label); });
  }
  void exchange(std::span<const std::uint64_t> mine, std::span<std::uint64_t> all)
  {
    real_->exchange(mine, all);
    const std::uint64_t clock[] = {static_cast<std::uint64_t>(memory_->caller_clock().count())};
    std::vector<std::uint64_t> clocks(ranks());
    real_->exchange(clock, clocks);
    const auto latest = static_cast<throttled_arena::moment::rep>(std::ranges::max(clocks));
    memory_->advance_caller(throttled_arena::moment{latest} + port_->latency());
  }
  void check() { real_->check(); }
  void revoke() noexcept { real_->revoke(); }

 private:
  template <class Call>
  void take_time(chunkmem::agent stream, std::uint64_t sent, Call call)
  {
    using moment = throttled_arena::moment;
    clocks_of_ranks::row& clocks = clocks_->at(given_++);
    memory_->move_clock(stream, [&clocks, own = index_of(rank())](moment now) {
      clocks[own] = now.count();
      return now;
    });
    call();
    memory_->move_clock(stream, [&clocks, ranks = ranks(), port = port_, sent](moment now) {
      for (std::uint32_t other = 0; other < ranks; ++other) now = std::max(now, moment{clocks[other].load()});
      return port->serve(now, chunkmem::bytes{sent});
    });
  }

  Communicator* real_;
  throttled_arena* memory_;
  network_port* port_;
  clocks_of_ranks* clocks_;
  std::uint64_t given_ = 0;
};

}  // namespace support
