// SPDX-License-Identifier: Apache-2.0
// The queue of a save in virtual time copies the same pieces as the real one, and waits at the same places.
#include <saving/virtual_queue.hpp>

#include <chunkmem/checkpoint/save_queue.hpp>
#include <support/catch.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace virtual_queue_test {

using chunkmem::agent;
using chunkmem::checkpoint::detail::save_queue;
using saving_bench::virtual_queue;
namespace backend = chunkmem::backend;

namespace {

constexpr std::uint64_t piece = 5'120;
constexpr std::uint64_t buffer = 4 * piece;
constexpr std::uint64_t in_item = 3;  // pieces
constexpr std::uint64_t items = 6;
constexpr std::uint64_t millisecond = 1'000'000;

/// A disk that takes a millisecond for a piece, and copies of 10 microseconds.
struct virtual_side {
  backend::simulated clocks{{.host_runs_ahead = true}};
  virtual_queue queue;

  explicit virtual_side(std::uint32_t copying_threads)
      : queue{clocks, clocks.adopt(), clocks.adopt(), {piece * 1e3, buffer, copying_threads, {0, piece * 1e5}}}
  {
    for (std::uint32_t item = 0; item < items; ++item) queue.lend(in_item * piece, item, clocks.record(agent::to_host));
    queue.close();
  }
  void go_on_to(std::uint64_t time) { clocks.advance(agent::host, time - clocks.now()); }
};

/// The same bytes in a real queue, whose disk is the caller.
struct real_side {
  std::vector<std::byte> bytes = std::vector<std::byte>(in_item * piece);
  save_queue queue{buffer};
  std::vector<bool> copies;  // of the pieces that were taken
  save_queue::order now;

  real_side()
  {
    for (std::uint64_t item = 0; item < items; ++item) {
      queue.lend(bytes, queue.add_item());
      queue.arrive(item + 1);
    }
    queue.close();
  }
  void take()
  {
    REQUIRE(queue.take(now));
    REQUIRE(now.bytes().size() == piece);
    copies.push_back(now.borrowed.empty());
  }
  void written() { queue.written(now); }
  /// Another thread has filled the buffer.
  void wait_until_full() const
  {
    while (queue.has_room(piece)) std::this_thread::yield();
  }
  void take_rest()
  {
    while (copies.size() < in_item * items) take(), written();
  }
};

void expect_equal(const real_side& real, const virtual_side& other)
{
  REQUIRE(other.queue.pieces() == real.copies.size());
  for (std::size_t index = 0; index < real.copies.size(); ++index) {
    INFO("piece " << index);
    CHECK(real.copies[index] == other.queue.is_copy(index));
  }
  CHECK(real.queue.most_held() == other.queue.most_held());
}

}  // namespace

TEST_CASE("both queues copy the last pieces of an item, and wait for the piece that is written", "[saving]")
{
  virtual_side other{0};
  other.go_on_to(3 * millisecond + millisecond / 2);
  other.queue.take_back(1);  // pieces 3, 4 and 5
  CHECK(other.clocks.now() == 4 * millisecond);
  other.queue.take_back(0);
  CHECK(other.clocks.now() == 4 * millisecond);

  real_side real;
  for (int written = 0; written < 3; ++written) real.take(), real.written();
  real.take();
  std::thread caller{[&] { real.queue.take_back(1 + 1); }};
  while (real.queue.most_held() < 2 * piece) std::this_thread::yield();
  real.written();
  caller.join();
  real.queue.take_back(0 + 1);
  real.take_rest();
  expect_equal(real, other);
}

TEST_CASE("both queues wait for room, or for the disk", "[saving]")
{
  virtual_side other{0};
  other.go_on_to(millisecond / 2);
  other.queue.take_back(1);
  other.queue.take_back(2);  // pieces 6, 7 and 8: there is room for one, until pieces 3 and 4 are written
  CHECK(other.clocks.now() == 5 * millisecond + millisecond / 100);

  real_side real;
  real.take();
  std::thread caller{[&] {
    real.queue.take_back(1 + 1);
    real.queue.take_back(2 + 1);
  }};
  real.wait_until_full();
  real.written();
  real.take(), real.written();
  real.take(), real.written();
  for (int room = 0; room < 2; ++room) {
    real.take(), real.written();
    real.wait_until_full();
  }
  caller.join();
  real.take_rest();
  expect_equal(real, other);
}

TEST_CASE("both queues copy ahead what is not written soon, and no more than the buffer holds", "[saving]")
{
  virtual_side other{1};
  other.queue.take_back(1);  // pieces 3 to 5 are the first copies
  CHECK(other.clocks.now() == 3 * millisecond / 100);
  other.queue.take_back(2);  // pieces 7 and 8 wait until pieces 3 and 4 are written
  CHECK(other.clocks.now() == 5 * millisecond + millisecond / 100);
  CHECK(other.queue.copied() == (in_item * items - 3) * piece);

  real_side real;
  real.take();
  std::thread copier{[&] { real.queue.copy_ahead(); }};
  real.wait_until_full();
  for (std::uint64_t index = 0; index < in_item * items; ++index) {
    if (index > 0) real.take();
    real.written();
    if (index >= 3 && index + 5 <= in_item * items) real.wait_until_full();
  }
  copier.join();
  expect_equal(real, other);
}

TEST_CASE("both queues write behind a promise once it is kept", "[saving]")
{
  backend::simulated clocks{{.host_runs_ahead = true}};
  virtual_queue queue{clocks, clocks.adopt(), clocks.adopt(), {piece * 1e3, buffer, 0, {0, piece * 1e5}}};
  queue.lend(in_item * piece, 0, clocks.record(agent::to_host));
  queue.promise(in_item * piece, 1);
  queue.lend(in_item * piece, 2, clocks.record(agent::to_host));
  queue.close();
  CHECK(queue.end() == UINT64_MAX);
  clocks.advance(agent::host, 10 * millisecond);
  queue.keep_promise(1, clocks.record(agent::to_host));
  CHECK(queue.end() == (10 + 2 * in_item) * millisecond);
  queue.take_back(1);  // the first piece is being written, the others are copied
  CHECK(clocks.now() == 11 * millisecond);
  CHECK(queue.most_held() == 2 * piece);

  const std::vector<std::byte> bytes(in_item * piece);
  save_queue real{buffer};
  real.lend(bytes, real.add_item());
  real.promise(0, bytes.size(), real.add_item());
  real.lend(bytes, real.add_item());
  for (const std::uint64_t item : {1U, 3U}) real.arrive(item);
  real.close();
  save_queue::order now;
  for (std::uint64_t index = 0; index < in_item; ++index) {
    REQUIRE(real.take(now));
    real.written(now);
  }
  real.keep_promise(bytes, 2);
  real.arrive(2);
  REQUIRE(real.take(now));
  CHECK(now.borrowed.data() == bytes.data());
  std::thread caller{[&] { real.take_back(2); }};
  while (real.most_held() < queue.most_held()) std::this_thread::yield();
  real.written(now);
  caller.join();
  CHECK(real.most_held() == queue.most_held());
  for (std::uint64_t index = 1; index < 2 * in_item; ++index) {
    REQUIRE(real.take(now));
    CHECK(now.borrowed.empty() == (index < in_item));
    real.written(now);
  }
}

TEST_CASE("threads copy ahead only where no promise is open", "[saving]")
{
  backend::simulated clocks{{.host_runs_ahead = true}};
  virtual_queue queue{clocks, clocks.adopt(), clocks.adopt(), {piece * 1e3, buffer, 1, {0, piece * 1e5}}};
  for (std::uint32_t item = 0; item < 4; ++item) queue.lend(in_item * piece, item, clocks.record(agent::to_host));
  queue.promise(in_item * piece, 4);
  queue.close();
  CHECK(queue.copied() == 0);
  queue.keep_promise(4, clocks.record(agent::to_host));
  CHECK(queue.copied() > 0);

  const std::vector<std::byte> bytes(in_item * piece);
  save_queue real{buffer};
  for (std::uint64_t item = 0; item < 4; ++item) {
    real.lend(bytes, real.add_item());
    real.arrive(item + 1);
  }
  real.promise(0, bytes.size(), real.add_item());
  real.close();
  std::thread copier{[&] { real.copy_ahead(); }};
  CHECK(real.most_held() == 0);
  real.keep_promise(bytes, 5);
  real.arrive(5);
  while (real.has_room(piece)) std::this_thread::yield();
  CHECK(real.most_held() == buffer);
  real.cancel();
  copier.join();
}

TEST_CASE("both disks pause in an update, and write what it copied behind it", "[saving]")
{
  backend::simulated clocks{{.host_runs_ahead = true}};
  constexpr std::uint64_t size = 2 * piece;  // of an item; the buffer holds two
  virtual_queue queue{clocks, clocks.adopt(), clocks.adopt(), {piece * 1e3, buffer, 0, {0, piece * 1e5}}};
  for (std::uint32_t item = 0; item < 2; ++item) queue.lend(size, item, clocks.record(agent::to_host));
  queue.close(millisecond);  // one piece is written until the first update
  clocks.advance(agent::host, millisecond);
  queue.begin_update(clocks.now(), UINT64_MAX);
  queue.take_back(0);  // its second piece is copied
  queue.take_back(1);
  clocks.advance(agent::host, millisecond);
  CHECK(clocks.now() == 2 * millisecond + 3 * millisecond / 100);
  queue.end_update(clocks.now() + 2 * millisecond);
  CHECK(queue.end() == UINT64_MAX);
  clocks.advance(agent::host, 2 * millisecond);
  queue.begin_update(clocks.now(), UINT64_MAX);  // two more are written
  clocks.advance(agent::host, millisecond);
  queue.end_update(UINT64_MAX);
  CHECK(queue.end() == 6 * millisecond + 3 * millisecond / 100);

  static std::atomic<std::int64_t> milliseconds{0};
  const std::vector<std::byte> bytes(size);
  save_queue real{buffer, []() noexcept { return save_queue::time{std::chrono::milliseconds{milliseconds.load()}}; }};
  for (std::uint64_t item = 1; item <= 2; ++item) {
    real.lend(bytes, real.add_item());
    real.arrive(item);
  }
  real.close();
  save_queue::order now;
  std::vector<bool> copies;
  const auto take = [&] {
    REQUIRE(real.take(now));
    copies.push_back(now.borrowed.empty());
    real.written(now);
  };
  take();
  milliseconds = 1;
  real.begin_update();
  real.take_back(1);
  real.take_back(2);
  std::atomic<bool> has_ended = false;
  std::thread disk{[&] {
    take();
    CHECK(has_ended);
  }};
  has_ended = true;
  real.end_update();
  disk.join();
  while (copies.size() < queue.pieces()) take();
  for (std::size_t index = 0; index < copies.size(); ++index) CHECK(copies[index] == queue.is_copy(index));
  CHECK(real.most_held() == queue.most_held());
}

TEST_CASE("the disk in virtual time writes from their place what an update has not taken back", "[saving]")
{
  backend::simulated clocks{{.host_runs_ahead = true}};
  virtual_queue queue{clocks, clocks.adopt(), clocks.adopt(), {piece * 1e3, buffer, 0, {0, piece * 1e5}}};
  queue.lend(4 * piece, 0, clocks.record(agent::to_host));
  queue.close(0);
  clocks.advance(agent::host, millisecond);
  queue.begin_update(3 * millisecond, UINT64_MAX);
  clocks.advance(agent::host, 2 * millisecond);  // two pieces
  queue.end_update(UINT64_MAX);
  CHECK(queue.end() == 5 * millisecond);
}

TEST_CASE("the disk in virtual time writes beside updates where they can wait for it", "[saving]")
{
  backend::simulated clocks{{.host_runs_ahead = true}};
  virtual_queue queue{clocks, clocks.adopt(), clocks.adopt(), {piece * 1e3, buffer, 0, {0, piece * 1e5}}};
  queue.lend(in_item * items * piece, 0, clocks.record(agent::to_host));
  queue.close(0);  // the buffer holds the last four pieces
  clocks.advance(agent::host, millisecond);
  queue.begin_update(clocks.now(), UINT64_MAX);
  clocks.advance(agent::host, millisecond);
  queue.end_update(UINT64_MAX);
  CHECK(queue.end() == in_item * items * millisecond);
}

TEST_CASE("threads that copy share the host's memory, and wait for bytes of the device", "[saving]")
{
  backend::simulated clocks{{.costs = {.host_memory_bytes_per_second = 20e9}, .host_runs_ahead = true}};
  virtual_queue queue{clocks, clocks.adopt(), clocks.adopt(), {1e6, std::uint64_t{1} << 30, 3, {0, 10e9}}};
  clocks.advance(agent::to_host, millisecond);
  constexpr std::uint64_t size = virtual_queue::most_of_piece;
  queue.lend(3 * size, 0, clocks.record(agent::to_host));  // one is written, two are written soon
  queue.lend(100 * size, 1, clocks.record(agent::to_host));
  queue.close();
  queue.take_back(1);
  CHECK(clocks.now() == Catch::Approx(millisecond + 100 * size / 10e9 * 1e9).epsilon(0.001));  // not 30e9
  CHECK(queue.copied() == 100 * size);
  queue.take_back(0);
  CHECK(clocks.now() == Catch::Approx(millisecond + 3 * size / 1e6 * 1e9).epsilon(0.001));
}

}  // namespace virtual_queue_test
