// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/policy.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

struct mover_kind {};

/// Fills a chunk's frames from its host frames, and the other way: a copy by default, a gather where a chunk is
/// sharded.
///
/// Laws: both enqueue on `stream` alone and return; they throw `device_error` with nothing enqueued; `take` after
/// `bring` leaves the host frames unchanged. The next `bring` brings the taken bytes back; bytes outside of the frame
/// run are unchanged.
template <class Mover, class Backend>
concept chunk_mover =
    names_itself<Mover> && std::same_as<typename Mover::policy_kind, mover_kind> &&
    requires(Mover mover, Backend& backend, std::byte* to, const std::byte* from, bytes size, agent stream) {
      mover.bring(backend, to, from, size, stream);
      mover.take(backend, to, from, size, stream);
    };

/// One copy each way; the default.
///
///     manager<backend::host_arena, copy_mover> m{memory};  // the same type as manager<backend::host_arena>
struct copy_mover {
  using policy_kind = mover_kind;
  static constexpr std::string_view name = "copy_mover";

  template <class Backend>
  void bring(Backend& backend, std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    backend.copy(to, from, size, stream);
  }
  template <class Backend>
  void take(Backend& backend, std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    backend.copy(to, from, size, stream);
  }
};

/// A run of bytes of this rank's share of a gathered chunk: where it is kept, and its place in the whole.
///
///     for (const chunk_share& it : shares.of(whole)) std::cout << it.size << " B from byte " << it.begin << '\n';
struct chunk_share {
  chunk_id whole{0};         ///< the gathered chunk
  chunk_id chunk{0};         ///< that keeps these bytes
  std::uint64_t offset = 0;  ///< in it [bytes]
  std::uint64_t begin = 0;   ///< in the gathered chunk [bytes]
  std::uint64_t size = 0;    ///< [bytes]

  [[nodiscard]] constexpr bool operator==(const chunk_share&) const noexcept = default;
};

/// This rank's shares of all gathered chunks.
///
///     const chunk_shares shares = gathered.shares(tensors);
///     for (const chunk_share& run : shares.of(whole)) copy(run);
class chunk_shares {
 public:
  chunk_shares() = default;
  /// Sorts them, and joins runs that follow each other in both places. O(n log n)
  /// @param labels   by chunk: its name on all ranks
  chunk_shares(sequence<chunk_share> all, sequence<std::uint32_t> labels)
      : runs_{std::move(all)}, labels_{std::move(labels)}
  {
    sort_records(std::span{runs_}, [](const chunk_share& left, const chunk_share& right) {
      return left.whole != right.whole ? left.whole < right.whole : left.begin < right.begin;
    });
    std::size_t last = 0;
    for (std::size_t index = 1; index < runs_.size(); ++index) {
      if (follows(runs_[last], runs_[index]))
        runs_[last].size += runs_[index].size;
      else
        runs_[++last] = runs_[index];
    }
    if (!runs_.empty()) runs_.resize(last + 1);
  }

  /// Of one chunk, in the order of their places. O(log n)
  [[nodiscard]] std::span<const chunk_share> of(chunk_id whole) const noexcept
  {
    std::size_t first = 0, last = runs_.size();
    while (first < last) {
      const std::size_t middle = first + (last - first) / 2;
      if (runs_[middle].whole < whole)
        first = middle + 1;
      else
        last = middle;
    }
    while (last < runs_.size() && runs_[last].whole == whole) ++last;
    return {runs_.data() + first, last - first};
  }

  [[nodiscard]] std::uint32_t label_of(chunk_id whole) const noexcept { return labels_[index_of(whole)]; }

 private:
  [[nodiscard]] static bool follows(const chunk_share& left, const chunk_share& right) noexcept
  {
    return left.whole == right.whole && left.chunk == right.chunk && left.begin + left.size == right.begin &&
           left.offset + left.size == right.offset;
  }

  sequence<chunk_share> runs_;
  sequence<std::uint32_t> labels_;
};

/// A mover that makes chunks whole from the shares of all ranks, and sums of what all ranks have in a chunk.
///
/// Laws: `worker` and `worker_of_sums` are agents that do nothing else, so that all ranks enqueue the work of each in
/// one order. Both may be the same agent. `worker_of_shares` is agent::to_device, or an agent that does nothing else:
/// on it the manager copies this rank's share of a chunk to the device before `gather`. `gather` enqueues on the first,
/// `sum` on the second, and both return. Before `gather`, this rank's share lies in its place; after `gather`, all
/// shares do. After `sum`, the own share is the sum, and the rest is unspecified. `label` names the chunk alike on all
/// ranks. Before the calling thread waits for anything that may depend on this work, it calls `await`, which ends by
/// the deadline of the ranks and throws where the work failed. `check` throws a failure that is known already, and
/// never waits.
template <class Mover, class Backend>
concept gathering_mover =
    chunk_mover<Mover, Backend> &&
    requires(Mover mover, Backend& backend, std::byte* whole, bytes size, std::uint32_t label, collective::sum how) {
      {
        mover.worker()
      } noexcept -> std::same_as<agent>;
      {
        mover.worker_of_sums()
      } noexcept -> std::same_as<agent>;
      {
        mover.worker_of_shares()
      } noexcept -> std::same_as<agent>;
      mover.gather(backend, whole, size, label);
      mover.sum(backend, whole, size, label, how);
      mover.await(backend, event{});
      mover.check();
    };

}  // namespace chunkmem::inline v0
