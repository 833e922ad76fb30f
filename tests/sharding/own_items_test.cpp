// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/own_items.hpp>

#include "checkpoint_rig.hpp"

#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <support/memory_folder.hpp>

#include <cstdint>
#include <set>
#include <string>

namespace own_items_test {

using namespace rank_checkpoints;
namespace checkpoint = cm::checkpoint;
using support::memory_folder;

namespace {

/// Names of the entries of a generation that begin so.
std::set<std::string> entries(const memory_folder& folder, std::string_view begin)
{
  std::set<std::string> found;
  const checkpoint::whole_generation all = checkpoint::check_generation(folder, 1).generation();
  for (const auto& file : all.files)
    for (const auto& it : file.tensors)
      if (it.name.starts_with(begin)) found.insert(it.name);
  return found;
}

/// @param differs   each rank has its own bytes of the state and of the buffer
void save(memory_folder& folder, std::uint32_t ranks, bool differs)
{
  on_ranks({ranks}, [&](std::uint32_t rank, model_type& model, auto& tensors) {
    tensors.fill(1);
    tensors.cursor = {7, 8, differs ? rank : 9};
    if (differs) model.acquire(tensors.buffer, cm::access::write).span()[3] = static_cast<float>(rank) + 40;
    (void)checkpoint::save(model, folder);
  });
}

}  // namespace

TEST_CASE("what all ranks have the same bytes of is stored once, and loads on any number of them", "[sharding]")
{
  memory_folder folder;
  save(folder, 3, false);
  CHECK(entries(folder, "state/") == std::set<std::string>{"state/cursor"});
  CHECK(entries(folder, "running") == std::set<std::string>{"running mean"});
  for (std::uint32_t ranks = 1; ranks <= 4; ++ranks)
    on_ranks({ranks}, [&](std::uint32_t, model_type& model, auto& tensors) {
      (void)checkpoint::load(model, folder);
      expect(tensors.cursor == std::array<std::uint32_t, 3>{7, 8, 9}, "another state");
      expect(model.acquire(tensors.buffer, cm::access::read).span()[3] == 1, "another buffer");
    });
}

TEST_CASE("where ranks have different bytes each gets its own back, and other numbers of ranks are refused",
          "[sharding]")
{
  memory_folder folder;
  save(folder, 3, true);
  CHECK(entries(folder, "state/") ==
        std::set<std::string>{"state/cursor[rank 0 of 3]", "state/cursor[rank 1 of 3]", "state/cursor[rank 2 of 3]"});
  on_ranks({3}, [&](std::uint32_t rank, model_type& model, auto& tensors) {
    (void)checkpoint::load(model, folder);
    expect(tensors.cursor == std::array<std::uint32_t, 3>{7, 8, rank}, "another state");
    expect(model.acquire(tensors.buffer, cm::access::read).span()[3] == static_cast<float>(rank) + 40,
           "another buffer");
  });
  for (const std::uint32_t ranks : {1U, 2U, 4U})
    for (const std::string& it :
         said_on({ranks}, [&](std::uint32_t, model_type& model, auto&) { (void)checkpoint::load(model, folder); })) {
      INFO(it);
      CHECK(it.find("each rank saved its own bytes of running mean, as running mean[rank 0 of 3], and this job has " +
                    std::to_string(ranks)) != it.npos);
    }
  arena memory{{.device_capacity = room, .host_capacity = room}};
  manager_type m{memory, {.chunk_bytes = 256_KiB}};
  declared<manager_type> tensors{m};
  CHECK_THROWS_AS(checkpoint::load(m, folder), cm::config_error);
}

TEST_CASE("a buffer that some ranks have not filled is not taken for that of others", "[sharding]")
{
  const auto with_another = [](memory_folder& folder, std::uint32_t filled, bool loads) {
    on_ranks({3}, [&](std::uint32_t rank, model_type& model, auto& tensors) {
      const auto more = model.add<float>({4}, cm::role::buffer);
      model.name(more, "more");
      if (loads) {
        (void)checkpoint::load(model, folder);
        return;
      }
      tensors.fill(1);
      if (rank < filled) model.acquire(more, cm::access::write).span()[0] = 5;
      (void)checkpoint::save(model, folder);
    });
  };
  for (const std::uint32_t filled : {0U, 2U, 3U}) {
    INFO(filled << " ranks have filled it");
    memory_folder folder;
    with_another(folder, filled, false);
    const std::set<std::string> two{"more[rank 0 of 3]", "more[rank 1 of 3]"};
    CHECK(entries(folder, "more") == (filled == 0   ? std::set<std::string>{}
                                      : filled == 2 ? two
                                                    : std::set<std::string>{"more"}));
    with_another(folder, filled, true);
  }
}

}  // namespace own_items_test
