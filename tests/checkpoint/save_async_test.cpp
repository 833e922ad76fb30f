// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/save_async.hpp>

#include "small_model.hpp"

#include <chunkmem/checkpoint/load.hpp>

#include <algorithm>
#include <utility>

namespace save_async_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using cm::io::posix_folder;

TEST_CASE("a save in the background keeps the bits of its moment, whatever is written meanwhile", "[checkpoint]")
{
  for (const cm::bytes buffer : {1_B, 700_B, 64_KiB, 64_MiB}) {
    INFO("buffer of " << buffer.count() << " B");
    temporary_folder place;
    posix_folder folder{place.path()};
    small_model model;
    auto pending = checkpoint::save_async(model.m, folder, {.files = {.file_size = 100_B}, .buffer = buffer});
    model.fill(9.0F);
    const auto saved = pending.wait();
    CHECK(saved.number == 1);
    CHECK(saved.files > 1);
    CHECK(pending.most_buffered() <= std::max(buffer, checkpoint::async_save_options::least_buffer));
    CHECK(pending.wait().number == 1);
    CHECK(model.holds(9.0F));
    small_model after;
    CHECK(checkpoint::load(after.m, folder).number == 1);
    CHECK(after.holds(1.5F));
  }
}

TEST_CASE("a pending save that nobody waits for ends before its folder", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  small_model model;
  for (int turn = 0; turn < 3; ++turn) (void)checkpoint::save_async(model.m, folder);
  CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{3, 2});
  auto first = checkpoint::save_async(model.m, folder);
  auto second = std::move(first);
  CHECK_THROWS_AS(first.wait(), cm::usage_error);
  CHECK_THROWS_AS(first.most_buffered(), cm::usage_error);
  CHECK(second.wait().number == 4);
}

TEST_CASE("a save in the background lets as many older generations go before as it is told", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  small_model model;
  for (int turn = 0; turn < 2; ++turn) (void)checkpoint::save(model.m, folder);
  (void)checkpoint::finish_save(model.m);
  CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{2, 1});
  auto third = checkpoint::save_async(model.m, folder, {.files = {.keep = 2, .keep_while_writing = 1}});
  CHECK(checkpoint::generations_in(folder).back() == 2);
  CHECK(third.wait().number == 3);
  CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{3, 2});
}

TEST_CASE("a tiny buffer is made one that is worth waking a thread for, and is never exceeded", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  arena memory{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 256_KiB}};
  const auto it = m.add<float>({32 << 10}, cm::role::buffer);
  for (float& value : m.acquire(it, cm::access::write).span()) value = 1.0F;
  auto pending = checkpoint::save_async(m, folder, {.files = {}, .buffer = 1_B});
  CHECK(pending.wait().size > 128_KiB);
  CHECK(pending.most_buffered() <= checkpoint::async_save_options::least_buffer);
  CHECK(pending.most_buffered() >= 1_KiB);
}

namespace {

/// A folder that takes a few writes and then no more.
class full_folder : public posix_folder {
 public:
  class writer : public posix_folder::writer {
   public:
    writer(posix_folder::writer file, int* left) : posix_folder::writer{std::move(file)}, left_{left} {}
    [[nodiscard]] std::size_t write(std::span<const std::byte> content)
    {
      if ((*left_)-- <= 0) throw cm::io::failed("writing", "a file", 28);
      return posix_folder::writer::write(content);
    }

   private:
    int* left_;
  };
  full_folder(const std::string& path, int writes) : posix_folder{path}, left_{writes} {}
  [[nodiscard]] writer create(std::string_view name) { return {posix_folder::create(name), &left_}; }

 private:
  int left_;
};

}  // namespace

TEST_CASE("a full disk is said by the save or by its wait, and the model goes on", "[checkpoint]")
{
  for (const cm::bytes buffer : {64_B, 64_MiB}) {
    temporary_folder place;
    small_model model;
    {
      posix_folder folder{place.path()};
      (void)checkpoint::save(model.m, folder);
    }
    for (int writes = 0; writes < 4; ++writes) {
      full_folder folder{place.path(), writes};
      CHECK_THROWS_AS(checkpoint::save_async(model.m, folder, {.files = {}, .buffer = buffer}).wait(), cm::io_error);
      CHECK(folder.names().size() == 2);  // nothing is left behind
    }
    model.fill(2.0F);
    CHECK(model.holds(2.0F));
    const posix_folder folder{place.path()};
    CHECK(checkpoint::load(model.m, folder).number == 1);
    CHECK(model.holds(1.5F));
  }
}

}  // namespace save_async_test
