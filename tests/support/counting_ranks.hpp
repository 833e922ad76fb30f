// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/collective/simulated_ranks.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace support {

/// A communicator that counts the bytes it moves, and calls `before(number)` at each call; and `into(number)` and
/// `out(number)` around each wait for the words of others.
template <class Inner>
class counting {
  Inner& inner_;

 public:
  using policy_kind = chunkmem::communicator_kind;
  static constexpr std::string_view name = "counting_ranks";

  explicit counting(Inner& inner) : inner_{inner} {}

  chunkmem::collective::collective_counts counts;
  std::vector<std::uint32_t> gathered;  ///< labels, in order
  std::vector<std::uint32_t> summed;
  std::function<void(std::uint64_t)> before = [](std::uint64_t) {};
  std::uint64_t calls = 0;
  std::function<void(std::uint64_t)> into = [](std::uint64_t) {};
  std::function<void(std::uint64_t)> out = [](std::uint64_t) {};
  std::uint64_t exchanges = 0;

  [[nodiscard]] chunkmem::rank_id rank() const noexcept { return inner_.rank(); }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return inner_.ranks(); }
  template <class Backend>
  void all_gather(Backend& backend, chunkmem::agent stream, std::byte* whole, const chunkmem::collective::shares& parts,
                  std::uint32_t label)
  {
    before(calls++);
    add(chunkmem::collective::operation::all_gather,
        chunkmem::collective::ring_traffic::of_all_gather(parts, index_of(rank())));
    gathered.push_back(label);
    inner_.all_gather(backend, stream, whole, parts, label);
  }
  template <class Backend>
  void reduce_scatter(Backend& backend, chunkmem::agent stream, std::byte* whole,
                      const chunkmem::collective::shares& parts, chunkmem::collective::sum how, std::uint32_t label)
  {
    before(calls++);
    add(chunkmem::collective::operation::reduce_scatter,
        chunkmem::collective::ring_traffic::of_reduce_scatter(parts, index_of(rank())));
    summed.push_back(label);
    inner_.reduce_scatter(backend, stream, whole, parts, how, label);
  }
  template <class Backend>
  void all_reduce(Backend& backend, chunkmem::agent stream, std::byte* whole, const chunkmem::collective::shares& parts,
                  chunkmem::collective::sum how, std::uint32_t label)
  {
    inner_.all_reduce(backend, stream, whole, parts, how, label);
  }
  template <class Backend>
  void broadcast(Backend& backend, chunkmem::agent stream, std::byte* place, chunkmem::bytes size,
                 chunkmem::rank_id root, std::uint32_t label)
  {
    inner_.broadcast(backend, stream, place, size, root, label);
  }
  template <class Backend>
  void send(Backend& backend, chunkmem::agent stream, std::byte* place, chunkmem::bytes size, chunkmem::rank_id to,
            std::uint32_t label)
  {
    inner_.send(backend, stream, place, size, to, label);
  }
  template <class Backend>
  void receive(Backend& backend, chunkmem::agent stream, std::byte* place, chunkmem::bytes size, chunkmem::rank_id from,
               std::uint32_t label)
  {
    inner_.receive(backend, stream, place, size, from, label);
  }
  template <class Backend>
  void barrier(Backend& backend, chunkmem::agent stream, std::uint32_t label)
  {
    inner_.barrier(backend, stream, label);
  }
  void exchange(std::span<const std::uint64_t> mine, std::span<std::uint64_t> all)
  {
    before(calls++);
    ++counts[chunkmem::collective::operation::exchange].calls;
    const std::uint64_t number = exchanges++;
    into(number);
    inner_.exchange(mine, all);
    out(number);
  }
  template <class Backend>
  void finish(Backend& backend, chunkmem::agent stream)
    requires requires { inner_.finish(backend, stream); }
  {
    inner_.finish(backend, stream);
  }
  template <class Backend>
  void await(Backend& backend, chunkmem::event point)
    requires requires { inner_.await(backend, point); }
  {
    inner_.await(backend, point);
  }
  void check() { inner_.check(); }
  void revoke() noexcept { inner_.revoke(); }

 private:
  void add(chunkmem::collective::operation what, const chunkmem::collective::ring_traffic& moved)
  {
    auto& entry = counts[what];
    ++entry.calls;
    entry.sent += moved.sent;
    entry.received += moved.received;
  }
};

using counting_ranks = counting<chunkmem::collective::local_threads>;

/// A backend whose streams run only while a caller waits for them, such as `adversarial`.
template <class Backend>
inline constexpr bool stands_still = requires(Backend& memory) { memory.drain(); };

/// Runs queued work before this rank waits for words: a real stream runs by itself, and ranks that have not yet given
/// their words may wait for that work.
template <class Inner, class Backend>
void run_queues_before_words(counting<Inner>& ranks, Backend& memory)
{
  if constexpr (stands_still<Backend>) ranks.into = [&memory](std::uint64_t) { memory.drain(); };
}

}  // namespace support
