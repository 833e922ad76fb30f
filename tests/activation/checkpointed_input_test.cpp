// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/checkpointed.hpp>
#include <chunkmem/activation/keep_all.hpp>
#include <chunkmem/activation/recompute_all.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checks/full_checks.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/transfer/no_prefetch.hpp>
#include <support/catch.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace checkpointed_input_test {

/// Mistakes of a trainer that has a `checkpointed` network: each message names the block.

namespace cm = chunkmem;
namespace act = chunkmem::activation;
using namespace cm::literals;
using Catch::Matchers::ContainsSubstring;
using arena = cm::backend::host_arena;
// With a policy that plans nothing, which compiles faster.
using manager = cm::manager<arena, cm::checks::full, cm::transfer::no_prefetch>;

namespace {

constexpr std::uint64_t elements = 128;
constexpr act::activation_budget budget{
    .device = 64_KiB, .to_host_bytes_per_second = 1e9, .to_device_bytes_per_second = 1e9};

/// Three blocks, "a", "b" and "c". Each saves a copy of its input plus one, and outputs that copy.
template <class Planner>
struct rig {
  using network_type = act::checkpointed<manager, Planner>;
  using block_type = typename network_type::block_type;
  using run_type = typename block_type::run_type;

  explicit rig(const act::activation_budget& allowed = budget) : network{m, {.budget = allowed, .seed = 3}}
  {
    for (std::uint32_t index = 0; index < 3; ++index) {
      block_type& block = network.add(std::string(1, static_cast<char>('a' + index)));
      blocks.push_back(&block);
      saved.push_back(block.template saves<float>({elements}));
      out.push_back(block.template outputs<float>({elements}));
      block.reads_input = true;
      block.forward_seconds = block.backward_seconds = 1e-3;
      block.forward = [this, index](run_type& run) { forward(index, run); };
      block.backward = [this, index](run_type& run) { (void)run.restore(saved[index]); };
    }
    blocks[0]->reads_input = false;
  }

  void step()
  {
    auto iteration = network.iteration();
    network.run(iteration);
  }
  /// The message of a step, or nothing.
  [[nodiscard]] std::string refusal()
  {
    try {
      step();
    } catch (const cm::error& refused) {
      return refused.what();
    }
    return {};
  }

  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 512_B}};
  network_type network;
  std::vector<block_type*> blocks;
  std::vector<cm::tensor<float>> saved, out;

 private:
  void forward(std::uint32_t index, run_type& run)
  {
    std::vector<float> values(elements, 1.0F);
    if (index > 0) {
      const auto x = run.input(out[index - 1]);
      values.assign(x.span().begin(), x.span().end());
    }
    for (const auto& each : {saved[index], out[index]}) {
      const auto pin = run.save(each);
      for (std::uint64_t element = 0; element < elements; ++element) pin.span()[element] = values[element] + 1;
    }
  }
};
using keeping = rig<act::keep_all>;
using recomputing = rig<act::recompute_all>;

}  // namespace

TEST_CASE("a network without mistakes runs under full checks, with a transfer policy that plans nothing",
          "[activation]")
{
  keeping kept;
  recomputing again;
  for (int step = 0; step < 5; ++step) {
    CHECK(kept.refusal() == "");
    CHECK(again.refusal() == "");
  }
}

TEST_CASE("a plan of another chain is refused, and the old plan stays", "[activation]")
{
  keeping it;
  it.step();
  const act::activation_plan old = it.network.plan();
  act::activation_plan shorter;
  act::set_actions(shorter, {act::block_action::keep, act::block_action::keep});
  CHECK_THROWS_AS(it.network.use(shorter), cm::config_error);
  act::activation_plan unsaved = old;
  for (act::chain_step& step : unsaved.steps)
    if (step == act::chain_step{act::chain_run::saving, 1}) step.run = act::chain_run::passing;
  CHECK_THROWS_WITH(it.network.use(unsaved), ContainsSubstring("block 1") && ContainsSubstring("saved nothing"));
  act::activation_plan reordered = old;
  std::swap(reordered.steps[3], reordered.steps[4]);
  CHECK_THROWS_WITH(it.network.use(reordered), ContainsSubstring("block 1") && ContainsSubstring("reverse order"));
  CHECK(it.network.plan() == old);
  CHECK(it.refusal() == "");
}

TEST_CASE("a given plan of this chain is followed", "[activation]")
{
  keeping it;
  it.step();
  it.network.use(act::recompute_all{}.plan(it.network.chain(), budget));
  std::uint32_t again = 0;
  for (auto* const block : it.blocks)
    block->forward = [inner = block->forward, &again](keeping::run_type& run) {
      again += run.is_again() ? 1 : 0;
      inner(run);
    };
  CHECK(it.refusal() == "");
  CHECK(again == 2);
}

TEST_CASE("a budget below the largest block is refused by name", "[activation]")
{
  act::activation_budget small = budget;
  small.device = 512_B;
  keeping it{small};
  CHECK_THAT(it.refusal(), ContainsSubstring("no plan of activations fits into 512 B") &&
                               ContainsSubstring("the largest block is 0 (\"a\"), which saves 1024 B"));
  small.to_host_bytes_per_second = 0;
  CHECK_THROWS_WITH(keeping{small}, ContainsSubstring("to_host_bytes_per_second"));
}

TEST_CASE("a block uses its own tensors alone", "[activation]")
{
  keeping it;
  it.blocks[1]->forward = [&](keeping::run_type& run) { (void)run.save(it.saved[2]); };
  CHECK_THAT(it.refusal(), ContainsSubstring("block 1 (\"b\") saves a tensor that it did not declare"));
  it.blocks[1]->forward = [&](keeping::run_type& run) { (void)run.input(it.saved[0]); };
  CHECK_THAT(it.refusal(), ContainsSubstring("block 1 (\"b\") reads an input that the block before does not output"));
  keeping other;
  other.blocks[2]->backward = [&](keeping::run_type& run) { (void)run.restore(other.saved[0]); };
  CHECK_THAT(other.refusal(), ContainsSubstring("block 2 (\"c\") restores a tensor that it did not save"));
}

TEST_CASE("a backward callback saves nothing, and reads its input only where its block says so", "[activation]")
{
  keeping it;
  it.blocks[2]->backward = [&](keeping::run_type& run) { (void)run.save(it.saved[2]); };
  CHECK_THAT(it.refusal(), ContainsSubstring("block 2 (\"c\") saves a tensor in its backward callback"));
  it.blocks[2]->backward = [&](keeping::run_type& run) { (void)run.input(it.out[1]); };
  CHECK(it.refusal() == "");
  it.blocks[2]->reads_input = false;
  CHECK_THAT(it.refusal(), ContainsSubstring("block 2 (\"c\") reads its input in its backward callback (set"));
}

TEST_CASE("a block without a callback is named", "[activation]")
{
  keeping it;
  const auto forward = it.blocks[1]->forward;
  it.blocks[1]->forward = nullptr;
  CHECK_THAT(it.refusal(), ContainsSubstring("block 1 (\"b\") has no callback for its forward run"));
  it.blocks[1]->forward = forward;
  it.blocks[1]->backward = nullptr;
  CHECK_THAT(it.refusal(), ContainsSubstring("block 1 (\"b\") has no callback for its backward run"));
}

TEST_CASE("a block is not added after the plan was made", "[activation]")
{
  keeping it;
  it.step();
  CHECK_THROWS_WITH(it.network.add("d"), ContainsSubstring("block 3 (\"d\") was added to a network that has a plan"));
  CHECK_THROWS_AS(it.blocks[0]->saves<float>({elements}), cm::usage_error);
  CHECK(it.refusal() == "");
}

TEST_CASE("an empty network cannot run", "[activation]")
{
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  manager m{memory};
  act::checkpointed<manager, act::keep_all> network{m, {.budget = budget}};
  CHECK_THROWS_WITH(network.iteration(), ContainsSubstring("a network without a block was run"));
}

TEST_CASE("full checks find a block that overwrites its input", "[activation]")
{
  recomputing it;
  const auto forward = it.blocks[1]->forward;
  it.blocks[1]->forward = [&, forward](recomputing::run_type& run) {
    forward(run);
    const auto x = it.m.acquire(it.out[0], cm::access::read_write);
    x.span()[5] += 1;
  };
  CHECK_THAT(it.refusal(), ContainsSubstring("block 1 (\"b\") overwrites its input"));
  it.blocks[1]->forward = forward;
  CHECK(it.refusal() == "");
}

TEST_CASE("full checks find a block that saves other bytes when it runs again", "[activation]")
{
  recomputing it;
  const auto forward = it.blocks[1]->forward;
  float noise = 0;
  it.blocks[1]->forward = [&, forward](recomputing::run_type& run) {
    forward(run);
    const auto saved = it.m.acquire(it.saved[1], cm::access::read_write);
    saved.span()[7] += noise++;
  };
  CHECK_THAT(it.refusal(), ContainsSubstring("block 1 (\"b\") saved other bytes when it ran again in one step"));
  it.blocks[1]->forward = forward;
  CHECK(it.refusal() == "");
}

TEST_CASE("random numbers are the same in each run of a block in a step, and others elsewhere", "[activation]")
{
  recomputing it;
  std::vector<std::uint16_t> drawn;
  for (auto* const block : it.blocks)
    for (auto* const callback : {&block->forward, &block->backward})
      *callback = [inner = *callback, &drawn](recomputing::run_type& run) {
        drawn.push_back(cm::random_bits(run.random(), 0));
        inner(run);
      };
  const auto run = [&](std::uint64_t step) {
    drawn.clear();
    auto iteration = it.network.iteration();
    it.network.run(iteration, {.step = step});
    return drawn;
  };
  const std::vector<std::uint16_t> first = run(0);
  REQUIRE(first.size() == 8);  // a, b, c, then c backward, b, b backward, a, a backward
  CHECK(std::vector{first[2], first[1], first[1], first[0], first[0]} == std::vector(first.begin() + 3, first.end()));
  CHECK(first[0] != first[1]);
  CHECK(first[1] != first[2]);
  CHECK(run(0) == first);
  CHECK(run(1) != first);
}

}  // namespace checkpointed_input_test
