// SPDX-License-Identifier: Apache-2.0
// Wrong models, missing shards, mixed folders, a rank with other settings: a typed error on every rank that names what
// differs.
#include "cut_rig.hpp"

#include <support/catch.hpp>
#include <support/memory_folder.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bad_input_test {

using namespace resharding;
using support::memory_folder;
namespace checkpoint = cm::checkpoint;

namespace {

/// The declarations and settings of a rank; the same on all ranks where nothing is wrong.
struct seat {
  std::uint64_t elements = 40000;  ///< over three ranks, and more
  std::string name = "weight";
  bool has_more = false;
  std::string state = "cursor";
  std::size_t state_size = 8;
  std::uint32_t list_version = 1;
  std::uint64_t chunk = 12 * 16384;  ///< bytes: of 1, 2, 3, 4 ranks
  cm::sharding::zero divided = cm::sharding::zero_3;
  float scale = 1;
  std::uint64_t device = 1U << 20U;
  std::uint64_t run = 0;
  memory_folder* folder = nullptr;
};
enum class act : std::uint8_t { save, load };

std::string at_seat(counting_ranks& ranks, const seat& it, act what)
{
  return outcome_of([&] {
    tiny_arena memory{support::failure_plan{}, cm::backend::host_arena_options{.device_capacity = cm::bytes{it.device},
                                                                               .host_capacity = cm::bytes{1U << 20U}}};
    tiny_type model{
        memory, ranks, {.chunk_bytes = cm::bytes{it.chunk}}, {.divided = it.divided, .sum_scale = it.scale}};
    const std::array<cm::list_spec, 1> lists{{{"momentum", cm::dtype::float32, it.list_version}}};
    model.use(lists);
    const auto weight = model.add<float>({it.elements}, cm::role::parameter);
    const auto buffer = model.add<float>({7}, cm::role::buffer);
    if (it.has_more) (void)model.add<float>({5}, cm::role::frozen);
    model.name(weight, it.name);
    model.name(buffer, "mean");
    std::vector<std::uint32_t> state(it.state_size / 4);
    model.state(it.state, std::as_writable_bytes(std::span{state}));
    for (float& each : model.acquire(weight, cm::access::write).span()) each = 1;
    for (float& each : model.acquire(buffer, cm::access::write).span()) each = 1;
    if (it.run != 0) model.shares().content().belongs_to(it.run);
    if (what == act::save)
      (void)checkpoint::save(model, *it.folder);
    else
      (void)checkpoint::load(model, *it.folder);
  });
}
/// How each rank ends. @param change   `change(rank, seat)`: what is other than usual
template <class Change>
std::vector<std::string> ends_of(std::uint32_t ranks, memory_folder& folder, act what, Change change)
{
  std::vector<std::string> ends(ranks);
  const cm::collective::thread_group group{ranks};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    cm::collective::local_threads inner{group, cm::rank_id{rank}};
    counting_ranks all{inner};
    seat mine;
    mine.folder = &folder;
    change(rank, mine);
    ends[rank] = at_seat(all, mine, what);
  });
  return ends;
}
void nothing(std::uint32_t, seat&) {}

/// On every rank an error of this class, which has each of these words.
void expect(const std::vector<std::string>& ends, std::string_view kind, const std::vector<std::string>& words)
{
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    INFO("rank " << rank << " says: " << ends[rank]);
    CHECK(ends[rank].starts_with(kind));
    for (const std::string& it : words) CHECK(ends[rank].find(it) != std::string::npos);
  }
}
void save(memory_folder& folder, std::uint32_t ranks, std::uint64_t run = 0)
{
  expect(ends_of(ranks, folder, act::save, [&](std::uint32_t, seat& it) { it.run = run; }), "saved", {});
}

}  // namespace

TEST_CASE("another model than the saved one is refused on every rank by the name of what differs", "[resharding]")
{
  for (const std::uint32_t ranks : {1U, 3U, 4U}) {
    memory_folder folder;
    save(folder, 2);
    const auto refused = [&](const std::vector<std::string>& words, auto change) {
      expect(ends_of(ranks, folder, act::load, [&](std::uint32_t, seat& it) { change(it); }), "config: ", words);
    };
    refused({"another shape: weight"}, [](seat& it) { it.elements = 40001; });
    refused({"other"}, [](seat& it) { it.name = "other"; });
    refused({"tensor.2"}, [](seat& it) { it.has_more = true; });
    refused({"state/place"}, [](seat& it) { it.state = "place"; });
    refused({"state/cursor"}, [](seat& it) { it.state_size = 12; });
    refused({"another version of a list: momentum"}, [](seat& it) { it.list_version = 2; });
  }
}

TEST_CASE("a rank with another model is named on every rank, and nothing is written", "[resharding]")
{
  memory_folder full;
  save(full, 3, 5);
  const auto before = full.names();
  for (const act what : {act::save, act::load}) {
    const auto refused = [&](std::string_view kind, const std::vector<std::string>& words, auto change) {
      for (const std::uint32_t other : {1U, 2U})
        expect(ends_of(3, full, what,
                       [&](std::uint32_t rank, seat& it) {
                         it.run = 5;
                         if (rank == other) change(it);
                       }),
               kind, words);
    };
    refused("config: ", {"ranks have different models", "parameter weight of float32 40001"},
            [](seat& it) { it.elements = 40001; });
    refused("config: ", {"ranks have different models", "parameter other"}, [](seat& it) { it.name = "other"; });
    refused("config: ", {"ranks have different models", "tensor.2"}, [](seat& it) { it.has_more = true; });
    refused("config: ", {"ranks have different models", "state place 8"}, [](seat& it) { it.state = "place"; });
    refused("config: ", {"ranks have different models", "list momentum 2"}, [](seat& it) { it.list_version = 2; });
    CHECK(full.names() == before);
  }
}

TEST_CASE("a rank with other settings is named on every rank, and nothing is written", "[resharding]")
{
  memory_folder full;
  save(full, 3, 5);
  const auto before = full.names();
  for (const act what : {act::save, act::load}) {
    const auto refused = [&](const std::string& word, auto change) {
      expect(ends_of(3, full, what,
                     [&](std::uint32_t rank, seat& it) {
                       it.run = 5;
                       if (rank == 2) change(it);
                     }),
             "usage: ", {"ranks have different " + word, "rank 2 and rank 0"});
    };
    refused("chunk_bytes", [](seat& it) { it.chunk *= 2; });
    refused("sharding_options", [](seat& it) { it.divided = cm::sharding::zero_1; });
    refused("sharding_options", [](seat& it) { it.scale = 0.5F; });
    refused("capacities of the device", [](seat& it) { it.device *= 2; });
    CHECK(full.names() == before);
  }
  expect(ends_of(3, full, act::save, [](std::uint32_t rank, seat& it) { it.run = rank == 1 ? 6 : 5; }),
         "config: ", {"run"});
  CHECK(full.names() == before);
}

TEST_CASE("a shard that is missing, short or another's is named on every rank", "[resharding]")
{
  const std::string shard = "generation-000001-00001.safetensors";
  const auto damaged = [&](auto damage) {
    memory_folder folder;
    save(folder, 3);
    damage(folder);
    return ends_of(2, folder, act::load, nothing);
  };
  expect(damaged([&](memory_folder& it) { (void)it.remove(shard); }), "io: ", {"none of the 1 generations", shard});
  expect(damaged([&](memory_folder& it) { it.flip(shard, 5000); }), "io: ", {"none of the 1 generations", shard});
  expect(damaged([&](memory_folder& it) {  // of another rank
           const auto other = it.last_of("00002.safetensors");
           (void)it.remove(shard);
           auto file = it.create(shard);
           cm::io::write_all(file, other, shard);
         }),
         "io: ", {"none of the 1 generations", shard});
  expect(damaged([&](memory_folder& it) { it.flip("generation-000001.manifest", 30); }),
         "io: ", {"the newest, number 1", "the manifest of a checkpoint is damaged"});
}

TEST_CASE("two trainings in one folder are told apart on every rank", "[resharding]")
{
  memory_folder folder;
  save(folder, 2, 5);
  expect(ends_of(3, folder, act::save, [](std::uint32_t, seat& it) { it.run = 6; }), "config: ", {"another training"});
  CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{1});
  memory_folder other;
  save(other, 3, 6);
  save(other, 3, 6);
  for (const std::string& name : other.names()) {
    if (name.find("000002") == name.npos) continue;
    auto file = folder.create(name);
    cm::io::write_all(file, other.last_of(name), name);
  }
  expect(ends_of(3, folder, act::load, nothing),
         "config: ", {"two trainings", "generation-000002.manifest", "generation-000001.manifest"});
}

TEST_CASE("ranks that see different folders are told so", "[resharding]")
{
  memory_folder one, two, empty;
  save(one, 2);
  save(two, 2);
  expect(ends_of(2, one, act::load,
                 [&](std::uint32_t rank, seat& it) {
                   if (rank == 1) it.folder = &two;
                 }),
         "config: ", {"generation 1 is another one than rank 0 sees"});
  const auto ends = ends_of(2, one, act::load, [&](std::uint32_t rank, seat& it) {
    if (rank == 1) it.folder = &empty;
  });
  for (const std::string& it : ends) CHECK_FALSE(it.starts_with("saved"));
  memory_folder first, second;
  for (const std::string& it : ends_of(2, first, act::save, [&](std::uint32_t rank, seat& at) {
         if (rank == 1) at.folder = &second;
       })) {
    INFO(it);
    CHECK((it.starts_with("io: ") || it.starts_with("corrupt: ") || it.starts_with("config: ")));
  }
  CHECK(checkpoint::generations_in(first).empty());
  CHECK(first.names() == std::vector<std::string>{checkpoint::detail::claim_name(1)});  // the number is not given again
  CHECK(second.names().empty());
}

}  // namespace bad_input_test
