// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/splitmix64.hpp>
#include <support/fake_cuda_types.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace support {

struct fake_stream;
struct fake_capture;
struct fake_executable;

/// A position in the work of a stream: all work that was enqueued before.
struct fake_point {
  fake_stream* stream = nullptr;  ///< null: nothing
  std::uint64_t position = 0;
};

struct fake_range {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t size = 0;
};

enum class fake_work : std::uint8_t {
  copy,
  batch,
  fill,
  host,
  kernel,
  graph,
  wait,
  come_to_life,  ///< of an allocation in stream order
  bury,          ///< of a free in stream order
};

/// One operation of a stream. Slots are reused, so a steady state allocates nothing.
struct fake_operation {
  fake_work kind = fake_work::wait;
  fake_range range{};              ///< copy, fill, come_to_life, bury
  int value = 0;                   ///< fill
  std::vector<fake_range> ranges;  ///< batch
  void (*work)(void*) = nullptr;   ///< host
  void* argument = nullptr;        ///< host
  std::function<void()> kernel;
  fake_point point{};  ///< wait
  std::shared_ptr<fake_executable> executable;
  fake_operation* next = nullptr;

  /// Whether a fault can hit this work, and a graph can contain it.
  [[nodiscard]] bool is_counted() const noexcept { return kind <= fake_work::kernel; }
};

/// The queued work, in order, and slots for reuse.
class fake_queue {
 public:
  fake_queue() = default;
  fake_queue(const fake_queue&) = delete;
  fake_queue& operator=(const fake_queue&) = delete;
  ~fake_queue()
  {
    clear(first_);
    clear(unused_);
  }

  [[nodiscard]] fake_operation* first() const noexcept { return first_; }

  /// An empty slot at the end of the queue.
  fake_operation& push(fake_work kind)
  {
    fake_operation* const slot = unused_ != nullptr ? std::exchange(unused_, unused_->next) : new fake_operation;
    slot->kind = kind;
    slot->next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = slot;
    last_ = slot;
    return *slot;
  }

  void pop()
  {
    fake_operation* const done = std::exchange(first_, first_->next);
    done->ranges.clear();
    done->next = std::exchange(unused_, done);
  }

 private:
  static void clear(fake_operation* slot)
  {
    while (slot != nullptr) delete std::exchange(slot, slot->next);
  }

  fake_operation* first_ = nullptr;
  fake_operation* last_ = nullptr;
  fake_operation* unused_ = nullptr;
};

/// Random numbers of one stream.
class fake_random {
 public:
  explicit fake_random(std::uint64_t seed) noexcept : numbers_{seed} {}

  /// From 0 to `end`, without it.
  [[nodiscard]] std::uint64_t below(std::uint64_t end) noexcept { return numbers_.next() % end; }

 private:
  chunkmem::splitmix64 numbers_;
};

struct fake_stream {
  fake_stream(std::uint64_t its_number, int its_device, std::uint64_t seed)
      : number{its_number}, device{its_device}, random{seed * 0x100000001B3u + its_number}
  {
  }

  std::uint64_t number;
  int device;
  int priority = 0;    ///< recorded, and ignored
  bool exists = true;  ///< false once destroyed: queued work still runs
  fake_queue queue;
  std::uint64_t given = 0;  ///< operations ever queued
  std::uint64_t done = 0;
  std::uint64_t demanded = 0;  ///< the furthest wait of a caller, under fake_schedule::latest
  std::shared_ptr<fake_capture> capture;
  std::vector<std::size_t> tail;  ///< nodes that the next captured one follows
  fake_random random;
  std::thread worker;      ///< started with the first operation
  std::thread::id thread;  ///< of the worker while it works
  std::condition_variable arrived;

  [[nodiscard]] fake_point now() noexcept { return {.stream = this, .position = given}; }
};

struct fake_event {
  bool exists = true;
  int device = 0;
  fake_point point{};                     ///< of its latest record
  std::shared_ptr<fake_capture> capture;  ///< where its latest record was captured
  std::vector<std::size_t> nodes;         ///< the nodes that it covers there
};

struct fake_node {
  fake_operation work;
  std::vector<std::size_t> after;
};

struct fake_graph {
  bool exists = true;
  std::vector<fake_node> nodes;
};

/// A graph that may be launched many times, one launch after the other.
struct fake_executable {
  explicit fake_executable(const std::vector<fake_node>& its_nodes)
      : nodes{its_nodes}, before(nodes.size()), missing(nodes.size())
  {
    for (std::size_t i = 0; i < nodes.size(); ++i)
      for (const std::size_t earlier : nodes[i].after) before[earlier].push_back(i);
    ready.reserve(nodes.size());
  }

  std::vector<fake_node> nodes;
  std::vector<std::vector<std::size_t>> before;  ///< successors of each node
  fake_point last{};                             ///< its latest launch
  std::vector<std::size_t> missing;              ///< while it runs: the number of unfinished predecessors
  std::vector<std::size_t> ready;                ///< while it runs
};

}  // namespace support
