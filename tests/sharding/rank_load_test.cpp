// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/load.hpp>

#include "checkpoint_rig.hpp"

#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <support/memory_folder.hpp>
#include <support/rank_threads.hpp>
#include <support/refusal.hpp>

#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace rank_load_test {

using namespace rank_checkpoints;
namespace checkpoint = cm::checkpoint;
using support::memory_folder;

namespace {

void save(memory_folder& folder, const division& how, float begin)
{
  on_ranks(how, [&](std::uint32_t, model_type& model, auto& tensors) {
    if (!folder.names().empty()) (void)checkpoint::load(model, folder);
    tensors.fill(begin);
    (void)checkpoint::save(model, folder, {.file_size = 64_KiB, .round = 1000_B});
  });
}

}  // namespace

TEST_CASE("a load leaves nothing of updates that wait: lists that they would have filled begin anew", "[sharding]")
{
  constexpr std::uint32_t ranks = 2;
  constexpr cm::bytes frame{ranks * 16'384};
  using whole_ranks = cm::sharded_model<arena, threads>;
  for (const cm::sharding::zero divided : {cm::sharding::zero_1, cm::sharding::zero_3}) {
    memory_folder folder;
    const cm::collective::thread_group group{ranks, {}};
    std::vector<std::vector<float>> found(ranks);
    support::on_ranks(ranks, [&](std::uint32_t rank) {
      arena memory{{.device_capacity = frame * 20, .host_capacity = frame * 60}};
      threads here{group, cm::rank_id{rank}};
      whole_ranks m{memory, here, {.chunk_bytes = frame}, {.divided = divided}};
      cm::optimizer::adam adam{{}};
      m.use(adam);
      std::vector<cm::tensor<float>> weights;
      for (std::uint32_t index = 0; index < 2; ++index)
        weights.push_back(m.add<float>({14'000}, cm::role::parameter, cm::group_id{index}));
      for (const auto it : weights)
        for (float& value : m.acquire(it, cm::access::write).span()) value = 8;
      cm::optimizer::late_updates late{m, adam};
      const auto train = [&](std::size_t count, float slope, bool is_late) {
        const auto scope = m.iteration();
        for (std::size_t index = 0; index < count; ++index) {
          auto gradient = m.gradient(weights[index]);
          for (float& value : gradient.span()) value = slope;
          m.gradient_done(std::move(gradient));
        }
        (void)(is_late ? late.step({.learning_rate = 0.25F}) : m.step(adam, {.learning_rate = 0.25F}));
      };
      train(1, 1, false);
      (void)checkpoint::save(m, folder);  // the second weight has no states yet
      train(2, 100, true);
      (void)checkpoint::load(m, folder);
      train(2, 1, false);
      for (const auto it : weights) found[rank].push_back(m.acquire(it, cm::access::read).span()[0]);
    });
    for (const auto& each : found) CHECK(each == std::vector<float>{7.5F, 7.75F});
  }
}

TEST_CASE("all ranks take the newest generation that is whole, and say why not a newer one", "[sharding]")
{
  memory_folder folder;
  save(folder, {2}, 1);
  save(folder, {3}, 2);
  folder.flip("generation-000002-00002.safetensors", 3000);
  on_ranks({4}, [&](std::uint32_t, model_type& model, auto& tensors) {
    const auto loaded = checkpoint::load(model, folder);
    expect(loaded.number == 1 && tensors.holds(1), "another generation");
    expect(loaded.skipped.size() == 1 && loaded.skipped[0].number == 2, "nothing was skipped");
    expect(loaded.skipped[0].why.find("generation-000002-00002.safetensors is damaged") != std::string::npos,
           loaded.skipped[0].why);
  });
  folder.flip("generation-000001-00000.safetensors", 3000);
  for (const std::string& it : said_on({2}, [&](std::uint32_t, model_type& model, auto&) {
         (void)checkpoint::load(model, folder, {.allow_fresh_start = true, .limits = {}});
       }))
    CHECK(it.find("none of the 2 generations in this folder is whole") != it.npos);
}

namespace {

bool is_usage_error(const std::function<void()>& call)
{
  try {
    call();
  } catch (const cm::usage_error&) {
    return true;
  }
  return false;
}

const std::vector<division> large_and_small{{3, 0, 2, cm::sharding::zero_1}, {2, 0, 3, cm::sharding::zero_3}};

}  // namespace

TEST_CASE("damage that one rank meets while it writes is no rank's weight, and nothing is trained or saved",
          "[sharding]")
{
  for (const division& how : large_and_small) {
    memory_folder folder;
    save(folder, how, 1);
    const std::string damaged = "generation-000001-00001.safetensors";
    folder.flip(damaged, 20'000);  // weights of rank 1; states are in the file of rank 0
    on_ranks(how, [&](std::uint32_t, model_type& model, auto& tensors) {
      tensors.fill(3);
      tensors.cursor = {3, 3, 3};
      bool is_refused = false;
      try {
        (void)checkpoint::load(model, folder);
      } catch (const cm::io_error&) {
        is_refused = true;
      }
      expect(is_refused, "a damaged file was loaded");
      expect(tensors.cursor[0] == 3, "a state was changed");
      const auto expect_unread = [&](auto tensor) {
        expect(is_usage_error([&] { (void)model.acquire(tensor, cm::access::read); }), "it can be read");
      };
      expect_unread(tensors.large);
      expect_unread(tensors.small);
      expect_unread(tensors.fixed);
      expect_unread(tensors.buffer);
      expect(is_usage_error([&] { (void)checkpoint::save(model, folder); }), "it was saved");
      for (float& it : model.acquire(tensors.small, cm::access::write).span()) it = 5;  // of one unit with others
      expect_unread(tensors.large);
    });
    folder.flip(damaged, 20'000);
    on_ranks(how, [&](std::uint32_t, model_type& model, auto& tensors) {
      (void)checkpoint::load(model, folder);
      expect(tensors.holds(1), "other weights");
    });
  }
}

TEST_CASE("ranks load nothing while one of them holds a pin, and nothing is changed on any", "[sharding]")
{
  for (const division& how : large_and_small) {
    memory_folder folder;
    save(folder, how, 1);
    on_ranks(how, [&](std::uint32_t rank, model_type& model, auto& tensors) {
      tensors.fill(3);
      const auto pin = model.acquire(tensors.large, cm::access::read);  // a gather, for which all ranks are needed
      const auto expect_refused = [&](bool holds) {
        const std::string said = support::refusal<cm::usage_error>([&] { (void)checkpoint::load(model, folder); });
        expect(said.find("while a pin holds a tensor") != said.npos, said + (holds ? ", pinned" : ", not pinned"));
      };
      expect_refused(true);
      expect(pin.span()[0] == 3, "a pinned weight was changed");
      std::optional kept{model.acquire(tensors.buffer, cm::access::read)};
      if (rank != 0) kept.reset();
      expect_refused(kept.has_value());
    });
  }
}

TEST_CASE("an empty folder is an error, unless a fresh start is allowed", "[sharding]")
{
  memory_folder folder;
  const auto load = [&](bool allowed) {
    return said_by_each_kind([&](std::uint32_t, auto& model, auto&) {
      expect(checkpoint::load(model, folder, {.allow_fresh_start = allowed, .limits = {}}).number == 0, "it is there");
    });
  };
  for (const std::string& it : load(false)) CHECK(it.find("there is no checkpoint") != it.npos);
  for (const std::string& it : load(true)) CHECK(it.empty());
}

TEST_CASE("ranks of which some allow a fresh start are told so", "[sharding]")
{
  memory_folder folder;
  const auto said = said_on({3}, [&](std::uint32_t rank, model_type& model, auto&) {
    (void)checkpoint::load(model, folder, {.allow_fresh_start = rank == 2, .limits = {}});
  });
  for (const std::string& it : said) CHECK(it.find("same allow_fresh_start") != it.npos);
}

TEST_CASE("a loss scale that `use` registered is loaded on all ranks, and one that cannot be right is refused by all",
          "[sharding]")
{
  const auto save_scale = [](memory_folder& folder, float stored) {
    on_ranks({2}, [&](std::uint32_t, model_type& model, auto& tensors) {
      auto scale = cm::optimizer::loss_scale::fixed(8.0F);
      model.use(scale);
      std::memcpy(scale.bytes().data() + 16, &stored, sizeof stored);
      tensors.fill(1);
      (void)checkpoint::save(model, folder);
    });
  };
  memory_folder right, wrong;
  save_scale(right, 4.0F);
  save_scale(wrong, 0.0F);
  on_ranks({3}, [&](std::uint32_t, model_type& model, auto& tensors) {
    auto scale = cm::optimizer::loss_scale::fixed(2.0F);
    model.use(scale);
    tensors.fill(9);
    const std::string said = support::refusal<cm::config_error>([&] { (void)checkpoint::load(model, wrong); });
    expect(said.find("a checkpoint with a loss scale of 0") != std::string::npos, said);
    expect(scale.scale() == 2.0F && tensors.holds(9), "something was changed");
    (void)checkpoint::load(model, right);
    expect(scale.scale() == 4.0F && tensors.holds(1), "another scale");
  });
}

TEST_CASE("a damaged generation leaves nothing in the match of the older one, over one rank too", "[sharding]")
{
  memory_folder folder;
  on_self([&](auto& model, auto& tensors) {
    (void)checkpoint::save(model, folder, {.keep = 3});  // weights without bytes
    tensors.fill(2);
    (void)checkpoint::save(model, folder, {.keep = 3});
  });
  folder.flip("generation-000002-00000.safetensors", 5000);
  on_self([&](auto& model, auto& tensors) {
    CHECK(checkpoint::load(model, folder).number == 1);
    CHECK_THROWS_AS(tensors.holds(2), cm::usage_error);  // nothing has bytes
  });
}

}  // namespace rank_load_test
