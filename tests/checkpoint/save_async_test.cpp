#include <chunkmem/checkpoint/save_async.hpp>

#include "rig.hpp"

#include <chunkmem/checkpoint/load.hpp>

#include <utility>

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using cm::io::posix_folder;

TEST_CASE("a save in the background keeps the bits of its moment while training goes on", "[checkpoint]")
{
  const mixed::recipe how = recipe_for(mixed::precision::bf16, 6);
  const mixed::outcome right = uninterrupted<cm::bf16>(how);
  for (const cm::bytes buffer : {1_B, 700_B, 64_KiB, 64_MiB}) {
    INFO("buffer of " << buffer.count() << " B");
    temporary_folder place;
    posix_folder folder{place.path()};
    arena_rig<cm::bf16> run{surroundings{}, how};
    run.initialise();
    run.train(3);
    const mixed::outcome then = run.values();
    auto pending = checkpoint::save_async(run.m, folder, {.files = {.file_size = 16_KiB}, .buffer = buffer});
    run.train(6);
    CHECK(right.difference(run.values()) == "");
    const auto saved = pending.wait();
    CHECK(saved.number == 1);
    CHECK(saved.files > 1);
    CHECK(pending.most_buffered() <= buffer);
    CHECK(pending.wait().number == 1);

    arena_rig<cm::bf16> after{surroundings{}, how};
    CHECK(checkpoint::load(after.m, folder).number == 1);
    CHECK(then.difference(after.values()) == "");
    after.train(6);
    CHECK(right.difference(after.values()) == "");
  }
}

TEST_CASE("a pending save that nobody waits for ends before its folder", "[checkpoint]")
{
  temporary_folder place;
  posix_folder folder{place.path()};
  arena_rig<cm::bf16> run{surroundings{}, recipe_for(mixed::precision::bf16, 2)};
  run.initialise();
  for (int turn = 0; turn < 3; ++turn) (void)checkpoint::save_async(run.m, folder);
  CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{3, 2});
  auto first = checkpoint::save_async(run.m, folder);
  auto second = std::move(first);
  CHECK_THROWS_AS(first.wait(), cm::usage_error);
  CHECK(second.wait().number == 4);
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

TEST_CASE("a full disk is said by the save or by its wait, and training goes on", "[checkpoint]")
{
  const mixed::recipe how = recipe_for(mixed::precision::bf16, 4);
  const mixed::outcome right = uninterrupted<cm::bf16>(how);
  for (const cm::bytes buffer : {2_KiB, 64_MiB}) {
    temporary_folder place;
    arena_rig<cm::bf16> run{surroundings{}, how};
    run.initialise();
    run.train(2);
    {
      posix_folder folder{place.path()};
      (void)checkpoint::save(run.m, folder);
    }
    for (int writes = 0; writes < 12; writes += 3) {
      full_folder folder{place.path(), writes};
      CHECK_THROWS_AS(checkpoint::save_async(run.m, folder, {.buffer = buffer}).wait(), cm::io_error);
      CHECK(folder.names().size() == 2);  // nothing is left behind
    }
    run.train(4);
    CHECK(right.difference(run.values()) == "");
    posix_folder folder{place.path()};
    arena_rig<cm::bf16> after{surroundings{}, how};
    CHECK(checkpoint::load(after.m, folder).number == 1);
    CHECK(after.cursor == 2);
  }
}
