// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/save.hpp>

#include "checkpoint_rig.hpp"

#include <chunkmem/checkpoint/load.hpp>
#include <support/memory_folder.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace rank_save_test {

using namespace rank_checkpoints;
namespace checkpoint = cm::checkpoint;
using support::memory_folder;

namespace {

/// Says what it was where it is not.
bool contains(const std::string& text, std::string_view part)
{
  if (text.find(part) != text.npos) return true;
  UNSCOPED_INFO("it says: " << text);
  return false;
}

/// Saves on two ranks, where one of them does something of its own before.
template <class Before>
std::vector<std::string> save_on_two(memory_folder& folder, Before before, const checkpoint::save_options& options = {})
{
  return said_on({2}, [&](std::uint32_t rank, model_type& model, auto& tensors) {
    tensors.fill(1);
    before(rank, model, tensors);
    (void)checkpoint::save(model, folder, options);
  });
}

}  // namespace

TEST_CASE("weights that ranks filled with other values are not saved", "[sharding]")
{
  memory_folder folder;
  const auto said = save_on_two(folder, [](std::uint32_t rank, model_type& model, auto& tensors) {
    model.acquire(tensors.small, cm::access::write).span()[0] = rank == 0 ? 0.0F : -0.0F;
  });
  for (const std::string& it : said) {
    CHECK(contains(it, "weight small filled with values of checksum "));
    CHECK(contains(it, " on rank 1, and weight small filled"));
  }
  CHECK(checkpoint::generations_in(folder).empty());
}

TEST_CASE("a save says on every rank what was written", "[sharding]")
{
  memory_folder folder;
  on_ranks({3}, [&](std::uint32_t, model_type& model, auto& tensors) {
    tensors.fill(1);
    for (std::uint64_t number = 1; number <= 4; ++number) {
      const auto saved = checkpoint::save(model, folder, {.keep = 2, .file_size = 30000_B, .round = 1000_B});
      expect(
          saved.number == number && saved.files > 3 && saved.size.count() > 21000 * 4 && saved.clean_up.view().empty(),
          "another result");
    }
  });
  CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{4, 3});
  const auto names = folder.names();
  CHECK(std::ranges::none_of(
      names, [](const std::string& it) { return it.ends_with(".tmp") || it.starts_with("generation-000002"); }));
}

TEST_CASE("nothing is gathered: a rank writes no more than its shares, and a file for itself", "[sharding]")
{
  memory_folder folder;
  on_ranks({4}, [&](std::uint32_t, model_type& model, auto& tensors) {
    tensors.fill(1);
    (void)checkpoint::save(model, folder);
  });
  const auto whole = checkpoint::check_generation(folder, 1);
  const auto& files = whole.content().files;
  REQUIRE(files.size() == 4);
  // two units, of two blocks for each rank
  for (const auto& it : files) CHECK(it.size - it.header <= 2 * 4096 * 2 * 4);
}

TEST_CASE("a damaged generation does not count as one that is kept, and all ranks look for it", "[sharding]")
{
  memory_folder folder;
  const auto save = [&](std::uint64_t number) {
    return [&, number](std::uint32_t, model_type& model, auto& tensors) {
      number == 1 ? tensors.fill(1)
                  : expect(checkpoint::load(model, folder).number == number - 1, "another one was loaded");
      (void)checkpoint::save(model, folder, {.keep = 2});
    };
  };
  on_ranks({2}, save(1));
  on_ranks({2}, save(2));
  on_ranks({3}, save(3));
  folder.flip("generation-000002-00001.safetensors", 5000);
  on_ranks({2}, [&](std::uint32_t, model_type& model, auto&) {
    expect(checkpoint::load(model, folder).number == 3, "another one was loaded");
    (void)checkpoint::save(model, folder, {.keep = 3});
    (void)checkpoint::save(model, folder, {.keep = 3});
  });
  CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{5, 4, 3});
}

TEST_CASE("where one rank must not save, none does", "[sharding]")
{
  memory_folder folder;
  const auto nothing = [&] { return folder.names().empty(); };
  for (const std::string& it : save_on_two(folder, [](std::uint32_t rank, model_type& m, auto&) {
         if (rank == 1) m.shares().content().begin_load();
       }))
    CHECK(contains(it, "while a checkpoint is loaded"));
  for (const std::string& it : save_on_two(folder, [](std::uint32_t rank, model_type& m, auto& t) {
         if (rank == 0) m.name(t.large, "x");
       }))
    CHECK(contains(it, "ranks have different models: parameter layers[3] of float32 300 70"));
  CHECK(nothing());
}

TEST_CASE("a save that cannot keep anything is refused, on ranks and on a manager", "[sharding]")
{
  memory_folder folder;
  for (const checkpoint::save_options& options :
       {checkpoint::save_options{.keep = 0}, checkpoint::save_options{.file_size = 0_B}}) {
    const auto said = said_by_each_kind([&](std::uint32_t, auto& model, auto& tensors) {
      tensors.fill(1);
      (void)checkpoint::save(model, folder, options);
    });
    for (const std::string& it : said) CHECK(contains(it, "keeps no generation"));
  }
  CHECK(folder.names().empty());
}

TEST_CASE("a rank that is left alone saves nothing, and reads nothing of what all of them loaded", "[sharding]")
{
  memory_folder folder;
  on_ranks({2}, [&](std::uint32_t, model_type& model, auto& tensors) {
    tensors.fill(1);
    (void)checkpoint::save(model, folder);
  });
  const auto before = folder.names();
  for (const bool saves : {true, false}) {
    const auto said = said_on({2}, [&](std::uint32_t rank, model_type& model, auto& tensors) {
      (void)checkpoint::load(model, folder);
      if (rank == 1) return;
      if (!saves) return (void)tensors.holds(1);
      {
        const auto pin = model.acquire(tensors.large, cm::access::read, cm::agent::compute);
      }
      (void)checkpoint::save(model, folder);
    });
    CHECK(contains(said[0], saves ? "rank 1 has left" : "layers[3] has no valid bytes on rank 0"));
    CHECK(said[1].empty());
  }
  CHECK(folder.names() == before);
}

TEST_CASE("gradients that no step has used are not lost in silence", "[sharding]")
{
  memory_folder folder;
  const auto said = said_on({2}, [&](std::uint32_t, model_type& model, auto& tensors) {
    tensors.fill(1);
    {
      auto iteration = model.iteration();
      iteration.pass(cm::pass::backward, 0);
      auto g = model.gradient(model.acquire(tensors.small, cm::access::read));
    }
    (void)checkpoint::save(model, folder);
  });
  for (const std::string& it : said) CHECK(contains(it, "gradients wait for their step"));
}

TEST_CASE("a folder of another training is refused by all ranks and by a manager, and one's own is not", "[sharding]")
{
  memory_folder folder;
  for (const std::string& it : save_on_two(folder, [](std::uint32_t, model_type&, auto&) {})) CHECK(it.empty());
  for (const std::string& it : said_by_each_kind([&](std::uint32_t, auto& model, auto& tensors) {
         tensors.fill(1);
         (void)checkpoint::save(model, folder);
       }))
    CHECK(contains(it, "checkpoints of another training"));
  on_ranks({3}, [&](std::uint32_t, model_type& model, auto&) {
    (void)checkpoint::load(model, folder);
    expect(checkpoint::save(model, folder).number == 2, "another number");
  });
  for (const std::string& it :
       save_on_two(folder, [](std::uint32_t rank, model_type& m, auto&) { m.shares().content().belongs_to(rank + 1); }))
    CHECK_FALSE(it.empty());
  memory_folder empty;
  for (const std::string& it :
       save_on_two(empty, [](std::uint32_t rank, model_type& m, auto&) { m.shares().content().belongs_to(rank + 1); }))
    CHECK(contains(it, "ranks resume different trainings: here run 2"));
  CHECK(empty.names().empty());
}

TEST_CASE("numbers of files that a save left behind are not given again", "[sharding]")
{
  memory_folder folder;
  folder.create("generation-000007-00003.safetensors.tmp").close();  // of one who may still write it
  for (const std::string& it : save_on_two(folder, [](std::uint32_t, model_type&, auto&) {})) CHECK(it.empty());
  CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{8});
}

TEST_CASE("a rank that wakes when its job is dead finds no other job under its number", "[sharding]")
{
  memory_folder folder;
  on_ranks({2}, [&](std::uint32_t rank, model_type& model, auto& tensors) {
    tensors.fill(1);
    std::optional<checkpoint::model_save<model_type, memory_folder>> job;
    job.emplace(model, folder, checkpoint::save_options{});
    job->prepare();
    job->begin();
    const std::uint64_t number = job->part().generation();
    if (rank == 0) job.reset();  // it dies before it has made a file
    expect(checkpoint::save(model, folder).number > number, "the number of a job that is dead");
    if (rank == 0) return;
    job->part().begin_file(8);
    job->part().write(std::as_bytes(std::span{tensors.cursor}));
    job->part().end_file();
    job.reset();
  });
  on_ranks({2}, [&](std::uint32_t, model_type& model, auto& tensors) {
    expect(checkpoint::load(model, folder).number == 2 && tensors.holds(1), "it is damaged");
  });
  CHECK(folder.names() == std::vector<std::string>{"generation-000002-00000.safetensors",
                                                   "generation-000002-00001.safetensors",
                                                   "generation-000002.manifest"});
}

TEST_CASE("ranks that keep other numbers of generations are told so before anything is written", "[sharding]")
{
  memory_folder folder;
  const auto save = [&](auto options_of) {
    return said_on({2}, [&](std::uint32_t rank, model_type& model, auto& tensors) {
      tensors.fill(1);
      (void)checkpoint::save(model, folder, options_of(rank));
    });
  };
  for (const std::string& it : save([](std::uint32_t rank) { return checkpoint::save_options{.keep = 1 + rank}; }))
    CHECK(contains(it, "same keep"));
  for (const std::string& it :
       save([](std::uint32_t rank) { return checkpoint::save_options{.check_older = rank == 0}; }))
    CHECK(contains(it, "same keep"));
  CHECK(folder.names().empty());
}

namespace {

/// A folder that a thread could read too, but for its error.
struct unread_folder : memory_folder {
  [[nodiscard]] unread_folder again() const { throw cm::io_error{"a thread was to read the folder"}; }
  [[nodiscard]] std::array<std::uint64_t, 2> identity() const { return {1, 1}; }
};
static_assert(cm::shareable_folder<unread_folder>);

}  // namespace

TEST_CASE("older generations are gone when a save over one rank returns, and no thread reads them", "[sharding]")
{
  unread_folder folder;
  on_self([&](auto& model, auto& tensors) {
    tensors.fill(1);
    for (int each = 0; each < 3; ++each) CHECK(checkpoint::save(model, folder, {.keep = 2}).clean_up.view().empty());
    CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{3, 2});
    CHECK_THROWS_AS(checkpoint::save(model, folder, {.round = 0_B}), cm::usage_error);  // as of any ranks
  });
}

}  // namespace rank_save_test
