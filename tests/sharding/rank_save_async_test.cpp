// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/save_async.hpp>

#include "checkpoint_rig.hpp"

#include <chunkmem/checkpoint/load.hpp>
#include <support/fault_control.hpp>
#include <support/gated_folder.hpp>
#include <support/memory_folder.hpp>
#include <support/rank_training.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace rank_save_async_test {

using namespace rank_checkpoints;
namespace checkpoint = cm::checkpoint;
using support::gated_folder;
using support::memory_folder;
using trainer = support::ranks::one_of_many<float, model_type, cm::optimizer::adam>;

namespace {

constexpr std::uint32_t saved_at = 2;

/// Trains on ranks with a save in flight from step `saved_at` on; what is written has to be what a save that waits
/// writes.
/// @param opens_late   the disk begins to write behind the update that changes what is saved
void save_in_flight(const support::ranks::job& how, const support::ranks::history<float>& values, cm::bytes buffer,
                    bool lends, bool opens_late)
{
  memory_folder right;
  gated_folder folder;
  cm::sharding::thread_ranks{how.ranks, how.ranks}.run([&](cm::sharding::thread_ranks::place& here) {
    arena memory{{.device_capacity = 64_MiB, .host_capacity = 64_MiB}};
    model_type model{memory, here.process_groups(), {.chunk_bytes = how.frame_bytes()}, {.divided = how.divided}};
    trainer it{model, cm::optimizer::adam{{}}, how, values};
    it.fill();
    model.seal();
    model.shares().content().belongs_to(1);
    for (std::uint32_t step = 0; step < saved_at; ++step) it.step(step);
    const checkpoint::save_options files{.file_size = 100_KiB, .round = 50_KiB};
    (void)checkpoint::save(model, right, files);
    if (here.rank() == 0) folder.set_open(!opens_late);
    auto pending = checkpoint::save_async(
        model, folder, {.files = files, .buffer = buffer, .lends = lends, .copying_threads = opens_late ? 1U : 0U});
    it.step(saved_at);
    expect(!opens_late || !pending.is_over(), "a disk that stands still has written all");
    if (here.rank() == 0) folder.set_open(true);
    it.step(saved_at + 1);
    const auto saved = pending.wait();
    expect(saved.number == 1 && saved.files >= how.ranks && pending.wait().size == saved.size && pending.is_over(),
           "another result");
    expect(pending.most_buffered() <= std::max(buffer, checkpoint::async_save_options::least_buffer),
           "more copies than the buffer holds");
    it.check_all(saved_at + 2);
    expect(it.complaint.empty(), it.complaint);
    (void)checkpoint::save(model, folder, files);
  });
  for (const std::string& name : right.names()) CHECK(folder.content_of(name) == right.content_of(name));
  CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{2, 1});
}

constexpr std::uint32_t late_saved_at = 3;

/// What a rank does behind a save of a late step.
enum class behind : std::uint8_t { finishes_before, steps, rank_0_detaches, waits_at_once, finishes };

/// Saves behind a late step, and trains on.
/// @param buffer   of the save
/// @return   updates of each rank that waited in the save
std::vector<std::size_t> save_behind_late_step(const support::ranks::job& how,
                                               const support::ranks::history<float>& values, memory_folder& folder,
                                               behind what, cm::bytes buffer = 100_KiB)
{
  std::vector<std::size_t> waited(how.ranks);
  std::vector<std::byte> state(8'192);  // copied in the call: more than the smallest buffer
  cm::sharding::thread_ranks{how.ranks, how.ranks}.run([&](cm::sharding::thread_ranks::place& here) {
    arena memory{{.device_capacity = 64_MiB, .host_capacity = 64_MiB}};
    model_type model{memory, here.process_groups(), {.chunk_bytes = how.frame_bytes()}, {.divided = how.divided}};
    trainer it{model, cm::optimizer::adam{{}}, how, values};
    it.fill();
    model.state("cursor", std::span{state});
    model.seal();
    model.shares().content().belongs_to(1);
    for (std::uint32_t step = 0; step < late_saved_at; ++step) it.step(step);
    const std::size_t all = model.shares().updates_pending();
    expect(all > 0, "nothing waits");
    if (what == behind::finishes_before) model.finish_updates();
    auto pending = checkpoint::save_async(
        model, folder, {.files = {.file_size = 100_KiB, .round = 50_KiB}, .buffer = buffer, .lends = true});
    waited[here.rank()] = model.shares().updates_pending();
    expect(waited[here.rank()] == 0 || waited[here.rank()] == all, "some updates are done");
    if (what == behind::rank_0_detaches && here.rank() == 0) pending.detach();
    if (what == behind::waits_at_once) expect(pending.wait().number == 1, "another generation");
    if (what == behind::finishes) model.finish_updates();
    for (std::uint32_t step = late_saved_at; step < how.steps; ++step) it.step(step);
    expect(pending.wait().number == 1, "another generation");
    it.check_all(how.steps);
    expect(it.complaint.empty(), it.complaint);
  });
  return waited;
}

/// A small model that is saved on two ranks in the background, with something between the begin and the end.
template <class Folder, class Between>
std::vector<std::string> save_on_two(Folder& folder, Between between)
{
  return said_on({2}, [&](std::uint32_t rank, model_type& model, auto& tensors) {
    tensors.fill(1);
    auto pending = checkpoint::save_async(model, folder, {.files = {.file_size = 20_KiB}, .lends = true});
    between(rank, model, tensors);
    (void)pending.wait();
  });
}

}  // namespace

TEST_CASE("a save over ranks in the background writes what one that waits would, while they train on", "[sharding]")
{
  for (const cm::sharding::zero& divided : {cm::sharding::zero_3, cm::sharding::zero_1}) {
    const support::ranks::job how{.ranks = 3, .steps = saved_at + 2, .divided = divided, .clip = 1};
    support::ranks::one_rank<float, cm::optimizer::adam> one{how, cm::optimizer::adam{{}}};
    save_in_flight(how, one.values, 1_B, false, false);
    save_in_flight(how, one.values, 64_MiB, false, true);
    save_in_flight(how, one.values, 64_KiB, true, false);
    save_in_flight(how, one.values, 64_MiB, true, true);
  }
}

TEST_CASE("a save in the background that nobody waits for leaves nothing, and the next one is there", "[sharding]")
{
  memory_folder folder;
  on_ranks({3}, [&](std::uint32_t, model_type& model, auto& tensors) {
    tensors.fill(1);
    {
      auto pending = checkpoint::save_async(model, folder, {.files = {.file_size = 20_KiB}});
    }
    {
      auto pending = checkpoint::save_async(model, folder, {.lends = true});
    }
    auto pending = checkpoint::save_async(model, folder);
    auto moved = std::move(pending);
    while (!moved.is_over()) {
    }
    expect(moved.wait().files == 3, "another result");
    tensors.fill(4);
  });
  CHECK(folder.names().size() == 4);
  on_ranks({2}, [&](std::uint32_t, model_type& model, auto& tensors) {
    (void)checkpoint::load(model, folder);
    expect(tensors.holds(1), "other values");
  });
}

TEST_CASE("older generations are read in the background, and damaged ones do not count", "[sharding]")
{
  memory_folder folder;
  on_ranks({2}, [&](std::uint32_t rank, model_type& model, auto& tensors) {
    tensors.fill(1);
    for (std::uint64_t number = 1; number <= 4; ++number) {
      if (number == 4 && rank == 0) folder.flip(checkpoint::detail::tensors_name(3, 1), 5000);
      expect(checkpoint::save_async(model, folder).wait().number == number, "another number");
    }
  });
  CHECK(checkpoint::generations_in(folder) == std::vector<std::uint64_t>{4, 3, 2});
}

TEST_CASE("a disk that fails under one rank is heard of on all, and the next save may come", "[sharding]")
{
  std::uint64_t failed = 0;
  for (std::uint64_t operation = 0; operation < 40; operation += 3) {
    memory_folder folder;
    INFO(operation);
    std::vector<std::uint8_t> threw(2);
    on_ranks({2}, [&](std::uint32_t rank, model_type& model, auto& tensors) {
      tensors.fill(1);
      (void)checkpoint::save(model, folder);
      if (rank == 0) support::faults.arm({support::fault_source::file, operation});
      std::optional<checkpoint::pending_save> pending;
      for (int wait = 0; wait < 2; ++wait) {  // the second time it gives or throws the same
        try {
          if (wait == 0) {
            pending.emplace(checkpoint::save_async(model, folder, {.files = {.file_size = 20_KiB}, .lends = true}));
          }
          if (pending) (void)pending->wait();
          expect(wait == 0 || !pending || threw[rank] == 0, "it fails the first time alone");
        } catch (const cm::io_error&) {
          expect(wait == 0 || threw[rank] == 1, "it fails the second time alone");
          threw[rank] = 1;
        }
      }
      pending.reset();
      tensors.fill(2);
      support::faults.disarm();
      const auto saved = checkpoint::save(model, folder);
      expect((saved.number == 3 || (threw[rank] != 0 && saved.number == 2)) && saved.clean_up.view().empty(),
             "another number");
    });
    INFO(operation);
    CHECK(threw[0] == threw[1]);
    CHECK(std::ranges::none_of(folder.names(), [](const std::string& it) { return it.ends_with(".tmp"); }));
    failed += threw[0];
  }
  CHECK(failed > 5);
}

TEST_CASE("a rank that ends while a save is in flight ends it for all", "[sharding]")
{
  memory_folder folder;
  const auto said = save_on_two(folder, [](std::uint32_t rank, model_type&, auto&) {
    if (rank == 1) throw std::runtime_error{"gone"};
  });
  CHECK(said[1] == "gone");
  CHECK_FALSE(said[0].empty());
  CHECK(checkpoint::generations_in(folder).empty());
}

TEST_CASE("a save in the background that is there is there for each that waits again", "[sharding]")
{
  memory_folder of_ranks, of_manager;
  const auto said = said_by_each_kind([&](std::uint32_t, auto& model, auto& tensors) {
    tensors.fill(1);
    memory_folder& folder = std::is_same_v<decltype(model), model_type&> ? of_ranks : of_manager;
    checkpoint::pending_save pending = checkpoint::save_async(model, folder);
    const std::uint64_t files = pending.wait().files;
    expect(pending.is_over() && pending.wait().number == 1 && pending.wait().files == files, "another end");
    expect(checkpoint::load(model, folder).number == 1 && tensors.holds(1), "other values");
  });
  for (const std::string& it : said) CHECK(it == "");
}

TEST_CASE("options that make no sense are refused on every rank", "[sharding]")
{
  memory_folder folder;
  const auto said = said_on({2}, [&](std::uint32_t rank, model_type& model, auto& tensors) {
    tensors.fill(1);
    (void)checkpoint::save_async(model, folder, {.files = {}, .buffer = cm::bytes{rank}});
  });
  for (const std::string& it : said) CHECK(it.find("without a buffer") != it.npos);
  CHECK(folder.names().empty());
}

TEST_CASE("a save in the background over one rank is there behind its wait, and not before", "[sharding]")
{
  memory_folder folder;
  on_self([&](auto& model, auto& tensors) {
    tensors.fill(1);
    {
      auto pending = checkpoint::save_async(model, folder);
      while (!pending.is_over()) {
      }
      CHECK(checkpoint::generations_in(folder).empty());
    }
    CHECK(checkpoint::generations_in(folder).empty());
    auto pending = checkpoint::save_async(model, folder);
    const std::uint64_t number = pending.wait().number;
    CHECK(checkpoint::generations_in(folder) == std::vector{number});
  });
}

TEST_CASE("a save over ranks takes bytes behind late updates, and one rank that lets go ends no training", "[sharding]")
{
  for (const auto divided : {cm::sharding::zero_3, cm::sharding::zero_2, cm::sharding::zero_1})
    for (const std::uint32_t ranks : {1U, 2U, 3U}) {
      const support::ranks::job how{.ranks = ranks,
                                    .steps = late_saved_at + 2,
                                    .divided = divided,
                                    .clip = 1,
                                    .when = support::ranks::updates::late};
      support::ranks::one_rank<float, cm::optimizer::adam> one{how, cm::optimizer::adam{{}}};
      memory_folder right;
      (void)save_behind_late_step(how, one.values, right, behind::finishes_before);
      for (const auto what : {behind::steps, behind::rank_0_detaches, behind::waits_at_once, behind::finishes})
        for (const cm::bytes buffer : {1_B, 100_KiB, 64_MiB}) {
          INFO(ranks << " ranks, " << static_cast<int>(what) << ", " << buffer.count() << " B");
          memory_folder folder;
          const auto waited = save_behind_late_step(how, one.values, folder, what, buffer);
          CHECK(std::ranges::none_of(waited, [](std::size_t it) { return it == 0; }) == (buffer > 1_B));
          CHECK(folder.names() == right.names());
          for (const auto& name : right.names()) CHECK(folder.content_of(name) == right.content_of(name));
        }
    }
}

}  // namespace rank_save_async_test
