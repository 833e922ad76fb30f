#include <chunkmem/checkpoint/save_queue.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <thread>
#include <vector>

namespace save_queue_test {

using chunkmem::checkpoint::detail::save_queue;

namespace {

std::vector<std::byte> bytes_of(std::size_t size, unsigned value) { return std::vector<std::byte>(size, std::byte{static_cast<unsigned char>(value)}); }

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
  CHECK_THROWS_AS([&] { for (;;) queue.write(bytes_of(10, 1)); }(), std::runtime_error);
  writer.join();
  CHECK(queue.failure() != nullptr);
}

}  // namespace save_queue_test
