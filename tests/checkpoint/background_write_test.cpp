// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/save_async.hpp>

#include <support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

namespace background_write_test {

using namespace chunkmem;
using checkpoint::detail::background_write;
using checkpoint::detail::carry_out;

namespace {

/// What it was told to write.
struct told {
  std::uint64_t headers = 0;
  std::uint64_t files = 0;
  std::vector<std::byte> bytes;

  void begin_file(std::uint64_t header) { headers += header; }
  void write(std::span<const std::byte> content) { bytes.insert(bytes.end(), content.begin(), content.end()); }
  void end_file() { ++files; }
};

}  // namespace

TEST_CASE("what is ordered is written by another thread, which ends behind the commit", "[checkpoint]")
{
  told writer;
  bool is_committed = false;
  const std::vector<std::byte> content(5000, std::byte{7});
  {
    background_write writing{1000};
    writing.start([&] {
      carry_out(writing.queue(), writer, [&](const checkpoint::manifest& rest) { is_committed = rest.run == 5; });
    });
    for (int file = 0; file < 2; ++file) {
      writing.queue().begin_file(8);
      writing.queue().write(content);
      writing.queue().end_file();
    }
    checkpoint::manifest rest;
    rest.run = 5;
    writing.queue().commit(rest);
    writing.queue().close();
    writing.join();
    CHECK(writing.queue().is_over());
    CHECK(writing.queue().failure() == nullptr);
  }
  CHECK(is_committed);
  CHECK(writer.headers == 16);
  CHECK(writer.files == 2);
  CHECK(writer.bytes == std::vector<std::byte>(10000, std::byte{7}));
}

TEST_CASE("one whose orders end too early ends without a commit", "[checkpoint]")
{
  told writer;
  bool is_committed = false;
  {
    background_write writing{1000};
    writing.start(
        [&] { carry_out(writing.queue(), writer, [&](const checkpoint::manifest&) { is_committed = true; }); });
    writing.queue().begin_file(8);
  }
  CHECK_FALSE(is_committed);
}

TEST_CASE("what its thread meets is the failure of its queue, and ends it", "[checkpoint]")
{
  background_write writing{1000};
  writing.start([] { throw std::runtime_error{"the disk is gone"}; });
  writing.join();
  CHECK(writing.queue().is_over());
  CHECK(writing.queue().wait_for_more(1));
  CHECK_THROWS_WITH(std::rethrow_exception(writing.queue().failure()), "the disk is gone");
  CHECK_THROWS_WITH(writing.queue().end_file(), "the disk is gone");
}

}  // namespace background_write_test
