// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/chunk_mover.hpp>
#include <chunkmem/ownership/ownership_policy.hpp>
#include <chunkmem/ownership/ownerships.hpp>
#include <chunkmem/sharding/process_groups.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

/// Units as runs of chunks, for an ownership.
///
///     unit_runs units;
///     units.runs = {{.first = 0, .chunks = 3}, {.first = 1, .chunks = 3}, {.first = 2, .chunks = 3}};
///     const gathering<collective::self> mover{ranks, worker, &units};
struct unit_runs {
  struct run {
    std::uint32_t first = 0;   ///< chunk, of the list of its kind
    std::uint32_t chunks = 1;  ///< of that list
  };
  std::uint32_t chunks = 1;       ///< of a unit
  std::uint32_t model = 0;        ///< distinguishes these units from those of another model over the same ranks
  std::vector<run> runs;          ///< by label
  collective::fingerprint moved;  ///< hash of all gathers and sums so far, in their order
};

/// A mover for ranks: copies chunks of one rank, and gathers and sums units of all ranks by the steps of an ownership.
///
///     using mover = gathering<Communicator>;
///     manager<backend::host_arena, mover> m{memory, {}, mover{ranks, memory.adopt()}};
///
/// Cost: that of the steps, and O(1). Under ownership::sharded a gather of n bytes over W ranks moves n (W-1)/W to each
/// and from each, a sum the same. Source: ZeRO-3 (Rajbhandari et al. 2021, arXiv 2104.07857), on the chunks of
/// PatrickStar (Fang et al. 2021, arXiv 2108.05818).
template <class Communicator, ownership_policy Ownership = ownership::sharded>
class gathering {
  using ranks_type = process_groups_of<Communicator>;

 public:
  using policy_kind = mover_kind;
  static constexpr std::string_view name = "gathering";

  gathering() = default;  ///< must be assigned a mover with ranks before the first move
  /// @param ranks    a communicator or process groups, which outlive this object   @param worker   an agent for the
  ///   work of these ranks alone: adopt() one
  /// @param units    outlives this object. Null: each unit is a chunk
  gathering(Communicator& ranks, agent worker, unit_runs* units = nullptr, Ownership ownership = {}) noexcept
      : gathering{ranks, worker, worker, agent::to_device, units, ownership}
  {
  }
  /// As above, with another worker for sums, which have groups of their own: see sums_apart. @param shares   copies
  /// this rank's share to the device: see gathering_mover
  gathering(Communicator& ranks, agent worker, agent sums, agent shares, unit_runs* units, Ownership ownership) noexcept
      : ranks_{ranks_type{ranks}},
        worker_{worker},
        worker_of_sums_{sums},
        worker_of_shares_{shares},
        units_{units},
        ownership_{ownership}
  {
  }

  template <class Backend>
  void bring(Backend& backend, std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    copy_mover{}.bring(backend, to, from, size, stream);
  }
  template <class Backend>
  void take(Backend& backend, std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    copy_mover{}.take(backend, to, from, size, stream);
  }

  [[nodiscard]] agent worker() const noexcept { return worker_; }
  [[nodiscard]] agent worker_of_sums() const noexcept { return worker_of_sums_; }
  [[nodiscard]] agent worker_of_shares() const noexcept { return worker_of_shares_; }
  template <class Backend>
  void gather(Backend& backend, std::byte* whole, bytes size, std::uint32_t label)
  {
    const ownership::owned_chunk first = first_of(size, label);
    end_all_on_failure(*ranks_, [&] {
      for (const auto& step : ownership_.fetch(first, rank(), ranks_->world()))
        run(backend, step, whole, first, {}, label);
    });
    note(collective::operation::all_gather, size, label);
  }
  /// Only the first operation of a reduction scales: later operations add numbers that are scaled already.
  template <class Backend>
  void sum(Backend& backend, std::byte* whole, bytes size, std::uint32_t label, collective::sum how)
  {
    const ownership::owned_chunk first = first_of(size, label);
    end_all_on_failure(*ranks_, [&] {
      for (const auto& step : ownership_.reduction(first, rank(), ranks_->world())) {
        run(backend, step, whole, first, how, label);
        how.scale = 1;
      }
    });
    note(collective::operation::reduce_scatter, size, label);
  }

  /// The calling thread is about to wait for `point`, which may depend on work of these ranks. @throws comm_error   a
  /// group without deadlines of its own failed, or the deadline passed
  template <class Backend>
  void await(Backend& backend, event point)
  {
    if (ranks_)
      end_all_on_failure(*ranks_, [&] {
        ranks_->for_each([&](auto& group) {
          if constexpr (requires { group.await(backend, point); }) group.await(backend, point);
        });
      });
  }
  /// @throws comm_error   work of these ranks has failed: the first cause
  void check()
  {
    if (ranks_) end_all_on_failure(*ranks_, [&] { ranks_->for_each([](auto& group) { group.check(); }); });
  }

 private:
  [[nodiscard]] rank_id rank() const noexcept { return ranks_->of(ownership::process_group::all).rank(); }
  /// Called after the work was enqueued, so that a failed call that is repeated counts once.
  void note(collective::operation what, bytes size, std::uint32_t label) noexcept
  {
    if (units_ != nullptr) units_->moved.add({what, dtype::float32, size.count(), 0, label, 0});
  }
  /// The first chunk of a unit of `size` bytes.
  [[nodiscard]] ownership::owned_chunk first_of(bytes size, std::uint32_t label) const
  {
    if (units_ == nullptr) return {chunk_id{0}, size, 1};
    const unit_runs::run& it = units_->runs[label];
    return {chunk_id{it.first}, bytes{size.count() / units_->chunks}, it.chunks};
  }

  template <class Backend>
  void run(Backend& backend, const ownership::collective_step& step, std::byte* whole,
           const ownership::owned_chunk& first, collective::sum how, std::uint32_t label)
  {
    using collective::operation;
    auto& among = step.what == operation::all_gather ? ranks_->of(step.among) : ranks_->of_sums(step.among);
    if (units_ != nullptr) label ^= units_->model;
    std::byte* const begin = whole + (index_of(step.first) - index_of(first.id)) * first.size.count() + step.begin;
    switch (step.what) {
      case operation::all_gather: return among.all_gather(backend, worker_, begin, step.parts, label);
      case operation::reduce_scatter:
        return among.reduce_scatter(backend, worker_of_sums_, begin, step.parts, how, label);
      case operation::all_reduce: return among.all_reduce(backend, worker_of_sums_, begin, step.parts, how, label);
      default:
        throw usage_error{
            "an ownership with steps that units of equal shares do not need (use all_gather, reduce_scatter and "
            "all_reduce)"};
    }
  }

  std::optional<ranks_type> ranks_;
  agent worker_ = agent::to_device;
  agent worker_of_sums_ = agent::to_device;
  agent worker_of_shares_ = agent::to_device;
  unit_runs* units_ = nullptr;
  [[no_unique_address]] Ownership ownership_;
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
