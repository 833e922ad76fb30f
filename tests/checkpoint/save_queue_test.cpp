// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/save_queue.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <thread>
#include <vector>

namespace save_queue_test {

using chunkmem::checkpoint::detail::save_queue;

namespace {

std::vector<std::byte> bytes_of(std::size_t size, unsigned value)
{
  return std::vector<std::byte>(size, std::byte{static_cast<unsigned char>(value)});
}

/// A clock of a test. A thread that pauses reads it again and again.
struct clock {
  static inline std::atomic<std::int64_t> seconds{0};
  static inline std::atomic<int> reads{0};

  static save_queue::time now() noexcept
  {
    ++reads;
    return save_queue::time{std::chrono::seconds{seconds.load()}};
  }
};

constexpr std::size_t least = 4'096;

/// A queue with a buffer for `room` pieces, of which four were lent and are copies now, and a disk that writes one.
struct paused_disk {
  std::vector<std::byte> bytes = bytes_of(4 * least, 7);
  save_queue queue;
  save_queue::order first;
  std::atomic<bool> is_taken = false;
  std::thread disk;

  explicit paused_disk(std::uint64_t room) : queue{room * least, (clock::seconds = 0, clock::now)}
  {
    lend();
    queue.take_back(1);
  }
  ~paused_disk() { disk.join(); }
  /// Four pieces more.
  void lend()
  {
    const std::uint64_t item = queue.add_item();
    queue.lend(bytes, item);
    queue.arrive(item);
  }
  /// All items are passed, and an update begins.
  void update()
  {
    queue.close();
    clock::seconds = 100;
    queue.begin_update();
    disk = std::thread{[this] {
      if (queue.take(first)) queue.written(first);
      is_taken = true;
    }};
  }
  /// Returns when the disk pauses, or does not.
  [[nodiscard]] bool pauses() const
  {
    clock::reads = 0;
    while (clock::reads < 3 && !is_taken) std::this_thread::yield();
    return !is_taken;
  }
  void expect_taken() const
  {
    while (!is_taken) std::this_thread::yield();
    CHECK(first.bytes().size() == least);
  }
};

}  // namespace

TEST_CASE("orders arrive in order, and never more bytes wait than may", "[checkpoint]")
{
  save_queue queue{1'000};
  std::vector<std::byte> written;
  int files = 0;
  std::uint64_t headers = 0;
  bool committed = false;
  std::thread writer{[&] {
    for (save_queue::order next; queue.take(next);) {
      if (next.what == save_queue::kind::begin_file) headers += next.header, ++files;
      if (next.what == save_queue::kind::commit) committed = next.rest.lists.size() == 1 && next.rest.empty.size() == 2;
      written.insert(written.end(), next.content.begin(), next.content.end());
      queue.written(next);
    }
  }};
  std::vector<std::byte> expected;
  for (unsigned file = 0; file < 20; ++file) {
    queue.begin_file(file);
    const auto content = bytes_of(137 * file, file);
    expected.insert(expected.end(), content.begin(), content.end());
    queue.write(content);
    queue.end_file();
  }
  queue.commit({.lists = {{"momentum", 1}}, .empty = {"a", "b"}});
  queue.close();
  writer.join();
  CHECK(written == expected);
  CHECK(files == 20);
  CHECK(headers == 190);
  CHECK(committed);
  CHECK(queue.most_held() <= 1'000);
  CHECK(queue.failure() == nullptr);
}

TEST_CASE("who gives orders hears that they cannot be done", "[checkpoint]")
{
  save_queue queue{10};
  std::thread writer{[&] {
    save_queue::order next;
    (void)queue.take(next);
    queue.fail(std::make_exception_ptr(std::runtime_error{"full"}));
  }};
  CHECK_THROWS_AS(
      [&] {
        for (;;) queue.write(bytes_of(10, 1));
      }(),
      std::runtime_error);
  writer.join();
  CHECK(queue.failure() != nullptr);
}

TEST_CASE("who waits for more hears of each part, and of the end", "[checkpoint]")
{
  save_queue queue{1'000};
  queue.write(bytes_of(300, 1));
  queue.write(bytes_of(300, 2));
  const auto write_one = [&] {
    save_queue::order next;
    REQUIRE(queue.take(next));
    queue.written(next);
  };
  std::thread writer{[&] {
    write_one();
    write_one();
    write_one();
    queue.progress(1'000'000);
    queue.end();
  }};
  CHECK_FALSE((queue.wait_for_more(250) && !queue.is_over()));
  writer.join();
  CHECK(queue.is_over());
  CHECK(queue.wait_for_more(UINT64_MAX));
}

TEST_CASE("a queue that is cancelled gives no more orders", "[checkpoint]")
{
  save_queue queue{1'000};
  const auto borrowed = bytes_of(300, 2);
  queue.write(bytes_of(300, 1));
  queue.lend(borrowed, 0);
  queue.cancel();
  save_queue::order next;
  CHECK_FALSE(queue.take(next));
  queue.take_back();  // returns
  CHECK_FALSE(queue.is_over());
  queue.end();
  CHECK(queue.is_over());
}

TEST_CASE("one item is taken back at a time, by copies that never exceed the bound", "[checkpoint]")
{
  constexpr std::size_t size = 5'000;
  constexpr std::size_t items = 12;
  std::vector<std::vector<std::byte>> lent;
  std::vector<std::byte> expected;
  for (unsigned item = 0; item < items; ++item) lent.push_back(bytes_of(size, item + 1));
  for (const auto& it : lent) expected.insert(expected.end(), it.begin(), it.end());
  for (const std::uint64_t bound : {4'096U, 11'000U, 100'000U}) {
    auto source = lent;
    save_queue queue{bound};
    for (std::size_t item = 0; item < items; ++item) {
      queue.lend(source[item], queue.add_item());
      queue.arrive(item + 1);
    }
    queue.close();
    if (bound == 100'000) {  // nobody writes: what was taken back is a copy, the others are in their place
      queue.take_back(3);
      source[2] = bytes_of(size, 99);
      CHECK(queue.most_held() == size);
    }
    std::vector<std::byte> written;
    std::thread writer{[&] {
      for (save_queue::order next; queue.take(next); queue.written(next))
        written.insert(written.end(), next.bytes().begin(), next.bytes().end());
    }};
    for (const std::size_t item : {0U, 4U, 2U, 1U, 11U, 3U, 10U, 5U, 6U, 9U, 7U, 8U}) {
      queue.take_back(item + 1);
      std::ranges::fill(source[item], std::byte{0xff});
    }
    writer.join();
    CHECK(written == expected);
    CHECK(queue.most_held() <= bound);
  }
}

TEST_CASE("threads that copy ahead leave the next pieces to the disk, and stop where the buffer is full",
          "[checkpoint]")
{
  constexpr std::size_t size = 4'096;
  constexpr std::size_t items = 10;
  std::vector<std::vector<std::byte>> lent;
  for (unsigned item = 0; item < items; ++item) lent.push_back(bytes_of(size, item + 1));
  save_queue queue{5 * size};
  for (std::size_t item = 0; item < items; ++item) {
    queue.lend(lent[item], queue.add_item());
    queue.arrive(item + 1);
  }
  queue.close();
  std::thread copier{[&] { queue.copy_ahead(); }};
  for (std::size_t item = 2; item < 7; ++item) {
    queue.take_back(item + 1);  // nothing is written: these are copied, by whichever thread
    std::ranges::fill(lent[item], std::byte{0xff});
  }
  CHECK(queue.most_held() == 5 * size);
  for (unsigned item = 0; item < 3; ++item) {
    save_queue::order next;
    REQUIRE(queue.take(next));
    CHECK(next.borrowed.empty() == (item == 2));
    CHECK(std::ranges::equal(next.bytes(), bytes_of(size, item + 1)));
    if (item < 2) queue.written(next);  // a copy that is not written makes no room
  }
  queue.cancel();
  copier.join();
}

TEST_CASE("copies ahead take no room from what the caller still writes", "[checkpoint]")
{
  constexpr std::size_t size = 4'096;
  std::vector<std::vector<std::byte>> lent;
  for (unsigned item = 0; item < 20; ++item) lent.push_back(bytes_of(size, item + 1));
  save_queue queue{5 * size};
  std::thread copier{[&] { queue.copy_ahead(); }};
  for (std::size_t item = 0; item < lent.size(); ++item) {
    queue.lend(lent[item], queue.add_item());
    queue.arrive(item + 1);
  }
  for (int piece = 0; piece < 5; ++piece) queue.write(bytes_of(size, 99));  // nobody makes room
  CHECK(queue.most_held() == 5 * size);
  queue.close();
  queue.cancel();
  copier.join();
}

TEST_CASE("what is promised, copied ahead, taken back and written at once is written as it was", "[checkpoint]")
{
  constexpr std::size_t size = 9'000;
  constexpr std::size_t items = 60;
  std::vector<std::vector<std::byte>> lent;
  std::vector<std::byte> expected;
  for (unsigned item = 0; item < items; ++item) lent.push_back(bytes_of(size, item + 1));
  for (const auto& it : lent) expected.insert(expected.end(), it.begin(), it.end());
  enum : int { all, failing, cancelled, refused };
  for (const int end : {all, failing, cancelled, refused})
    for (const std::uint64_t bound : {4'096U, 30'000U, 1'000'000U}) {
      auto source = lent;
      save_queue queue{bound};
      std::vector<std::byte> written;
      std::vector<std::thread> threads;
      threads.emplace_back([&] {
        for (save_queue::order next; queue.take(next); queue.written(next)) {
          written.insert(written.end(), next.bytes().begin(), next.bytes().end());
          if (end == failing && written.size() > expected.size() / 2)
            return queue.fail(std::make_exception_ptr(std::runtime_error{"full"}));
        }
      });
      for (int each = 0; each < 2; ++each) threads.emplace_back([&] { queue.copy_ahead(); });
      try {
        for (std::size_t item = 0; item < items; ++item) {
          const std::uint64_t number = queue.add_item();
          if (item % 3 != 1) {
            queue.lend(source[item], number);
            queue.arrive(number);
            continue;
          }
          queue.promise(0, size / 2, number);
          queue.promise(size / 2, size - size / 2, number);
        }
      } catch (const std::runtime_error&) {
        CHECK(end == failing);
      }
      queue.close();
      for (std::size_t item = 1; item < items && queue.failure() == nullptr; item += 3) {
        queue.keep_promise(source[item], item + 1);
        queue.arrive(item + 1);
      }
      for (std::size_t item = 0; item < items; ++item) {
        queue.take_back(item + 1);
        std::ranges::fill(source[item], std::byte{0xff});
        if (item == items / 2 && end == cancelled) queue.cancel();
        if (item == items / 2 && end == refused)
          queue.refuse(std::make_exception_ptr(std::runtime_error{"a device that is lost"}));
      }
      for (std::thread& it : threads) it.join();
      REQUIRE(written.size() <= expected.size());
      CHECK((end != all || written.size() == expected.size()));
      CHECK(std::equal(written.begin(), written.end(), expected.begin()));
      CHECK(queue.most_held() <= bound);
      queue.take_back();
    }
}

TEST_CASE("the disk takes no copies while updates run", "[checkpoint]")
{
  paused_disk it{4};
  it.queue.begin_update();
  it.update();
  CHECK(it.pauses());
  it.queue.end_update();
  CHECK(it.pauses());
  it.queue.end_update();
  it.expect_taken();
}

TEST_CASE("the disk pauses only where the buffer has room for all that is lent", "[checkpoint]")
{
  for (const std::uint64_t room : {7U, 8U}) {
    paused_disk it{room};
    it.lend();
    it.update();
    CHECK(it.pauses() == (room == 8));
    it.queue.end_update();
  }
}

TEST_CASE("the disk pauses only where the buffer has room for all that is promised", "[checkpoint]")
{
  for (const std::uint64_t room : {7U, 8U}) {
    paused_disk it{room};
    it.queue.promise(0, 4 * least, it.queue.add_item());
    it.update();
    CHECK(it.pauses() == (room == 8));
    it.queue.end_update();
  }
}

TEST_CASE("the disk writes bytes from their place while updates run, and pauses once they are copies", "[checkpoint]")
{
  const auto bytes = bytes_of(4 * least, 7);
  clock::seconds = 0;
  save_queue queue{3 * least, clock::now};  // what is written needs no room any more
  queue.lend(bytes, queue.add_item());
  queue.arrive(1);
  queue.close();
  clock::seconds = 100;
  queue.begin_update();
  save_queue::order piece;
  REQUIRE(queue.take(piece));
  queue.written(piece);
  queue.take_back(1);
  std::atomic<bool> is_taken = false;
  clock::reads = 0;
  std::thread disk{[&] {
    if (queue.take(piece)) queue.written(piece);
    is_taken = true;
  }};
  while (clock::reads < 3 && !is_taken) std::this_thread::yield();
  CHECK_FALSE(is_taken);
  queue.end_update();
  disk.join();
  CHECK(std::ranges::equal(piece.bytes(), bytes_of(least, 7)));
}

TEST_CASE("the disk pauses for nine tenths of the time of a save, and writes then also while an update runs",
          "[checkpoint]")
{
  paused_disk it{4};
  it.update();
  CHECK(it.pauses());
  clock::seconds = 980;  // 880 of them in the pause
  CHECK(it.pauses());
  clock::seconds = 1'001;  // 901
  it.expect_taken();
}

TEST_CASE("a save that is cancelled, or fails, ends the pause of its disk", "[checkpoint]")
{
  for (const bool fails : {false, true}) {
    paused_disk it{4};
    it.update();
    CHECK(it.pauses());
    if (fails)
      it.queue.refuse(std::make_exception_ptr(std::runtime_error{"a device that is lost"}));
    else
      it.queue.cancel();
    while (!it.is_taken) std::this_thread::yield();
    CHECK(it.first.bytes().empty());
  }
}

TEST_CASE("an item whose promise is kept is taken back while promises behind it are open", "[checkpoint]")
{
  constexpr std::size_t size = 10'000;
  save_queue queue{4'096};
  std::vector<std::byte> expected;
  for (unsigned value = 1; value <= 3; ++value) {
    queue.write(bytes_of(10, value + 10U));
    const std::uint64_t item = queue.add_item();
    queue.promise(1'000, size - 1'000, item);
    for (const auto& part : {bytes_of(10, value + 10U), bytes_of(size - 1'000, value)})
      expected.insert(expected.end(), part.begin(), part.end());
  }
  queue.close();
  std::vector<std::byte> written;
  std::thread writer{[&] {
    for (save_queue::order next; queue.take(next); queue.written(next))
      written.insert(written.end(), next.bytes().begin(), next.bytes().end());
  }};
  for (unsigned value = 1; value <= 3; ++value) {
    std::vector<std::byte> lent = bytes_of(size, value);
    queue.keep_promise(lent, value);
    queue.arrive(value);
    queue.take_back(value);
    std::ranges::fill(lent, std::byte{0});
  }
  writer.join();
  CHECK(written == expected);
  CHECK(queue.most_held() <= 4'096);
}

TEST_CASE("a queue whose lent bytes do not arrive gives nothing to write, and keeps the first reason", "[checkpoint]")
{
  save_queue queue{1};
  queue.refuse(std::make_exception_ptr(std::runtime_error{"a device that is lost"}));
  queue.refuse(std::make_exception_ptr(std::runtime_error{"a later reason"}));
  REQUIRE(queue.failure() != nullptr);
  CHECK_THROWS_WITH(std::rethrow_exception(queue.failure()), "a device that is lost");
  save_queue::order next;
  CHECK_FALSE(queue.take(next));
}

}  // namespace save_queue_test
