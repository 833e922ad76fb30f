// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/checkpointed.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checks/full_checks.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <support/catch.hpp>
#include <support/refusal.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
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

  explicit rig(const act::activation_budget& allowed = budget)
      : network{m, {.budget = allowed, .seed = 3, .name = "net"}}
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
    return support::refusal([&] { step(); });
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

TEST_CASE("a plan that was made for another chain of as many blocks is refused", "[activation]")
{
  keeping it;
  it.step();
  const act::layer_chain chain = it.network.chain();
  const act::activation_plan old = it.network.plan();
  std::vector<act::layer_chain> others(5, chain);
  others[0].blocks[1].name = "x";
  others[1].blocks[2].saved += 512_B;
  others[2].blocks[0].boundary += 256_B;
  others[3].blocks[2].reads_input = false;
  std::swap(others[4].blocks[1], others[4].blocks[2]);
  for (const act::layer_chain& other : others) {
    CHECK_THROWS_WITH(
        it.network.use(act::recompute_all{}.plan(other, budget)),
        ContainsSubstring("a plan of recompute_all does not fit this chain") && ContainsSubstring("begins with \"a\""));
    CHECK(it.network.plan() == old);
  }
  act::layer_chain slower = chain;
  for (act::chain_block& block : slower.blocks) block.forward_seconds = 1;
  CHECK_NOTHROW(it.network.use(act::recompute_all{}.plan(slower, budget)));  // other times are the same chain
  act::activation_plan by_hand;
  act::set_actions(by_hand, std::vector(3, act::block_action::keep));
  CHECK_NOTHROW(it.network.use(by_hand));
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

TEST_CASE("a budget that is too small is refused before the first step, measured times or not", "[activation]")
{
  act::activation_budget small = budget;
  small.device = 512_B;
  keeping it{small};
  for (auto* const block : it.blocks) {
    block->forward_seconds = 0;
    block->forward = [](keeping::run_type&) { FAIL("a block ran"); };
  }
  CHECK_THAT(it.refusal(), ContainsSubstring("no plan of activations fits into 512 B of the device") &&
                               ContainsSubstring("2560 B are missing"));
  CHECK_THROWS_WITH(it.m.rehearse([&] { it.step(); }), ContainsSubstring("2560 B are missing"));
}

TEST_CASE("a budget or a plan that is larger than the device or the host is refused before the first step",
          "[activation]")
{
  for (const bool has_times : {false, true}) {
    act::activation_budget large = budget;
    large.device = 1_GiB;
    recomputing it{large};
    for (auto* const block : it.blocks) block->forward_seconds = has_times ? 1 : 0;
    CHECK_THAT(it.refusal(), ContainsSubstring("the budget of activations is 1073741824 B of the device, and the "
                                               "device has 65536 B"));
    CHECK(it.m.report().iterations == 0);
    // Its remedy: a rehearsal proves the step.
    it.m.rehearse([&] { it.step(); }, cm::rehearse_on::scratch);
    CHECK(it.refusal() == "");
    large = budget;
    large.host = 1_GiB;
    recomputing on_host{large};
    CHECK_THAT(on_host.refusal(), ContainsSubstring("1073741824 B of the host, and the host has 65536 B"));
  }
  keeping given;
  act::activation_plan plan = act::keep_all{}.plan(given.network.chain(), budget);
  REQUIRE(plan.costs.device_peak == 3072_B);
  plan.costs.device_peak = 65_KiB;
  given.network.use(plan);
  CHECK_FALSE(given.network.plan().costs.fits);
  CHECK(given.network.plan().costs.missing == 1_KiB);
  CHECK_THAT(given.refusal(), ContainsSubstring("the plan of activations needs 66560 B of the device"));
  plan.costs.device_peak = 64_KiB;
  given.network.use(plan);
  CHECK(given.refusal() == "");
}

TEST_CASE("a plan swaps no more bytes than the host has", "[activation]")
{
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 256_B}};
  manager m{memory, {.chunk_bytes = 256_B}};
  act::checkpointed<manager, act::swap_all> network{m, {.budget = budget}};
  for (const char* const name : {"a", "b", "c"}) (void)network.add(name).outputs<std::uint8_t>({256});
  CHECK_THROWS_WITH(network.iteration(), ContainsSubstring("and 256 B of the host: 256 B are missing"));
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

TEST_CASE("full checks find a buffer, a frozen weight or registered bytes that change when a block runs again",
          "[activation]")
{
  enum class what { buffer, frozen, state };
  for (const what changed : {what::buffer, what::frozen, what::state}) {
    recomputing it;
    const auto part = changed == what::frozen ? cm::role::frozen : cm::role::buffer;
    const auto kept = it.m.add<float>({4}, part);
    (void)it.m.add<float>({4}, cm::role::buffer);  // never written
    it.m.name(kept, "running");
    std::array<std::byte, 8> cursor{};
    it.m.state("cursor", cursor);
    std::ranges::fill(it.m.acquire(kept, cm::access::write).span(), 1.0F);
    bool only_once = false;
    bool to_the_same = false;
    const auto forward = it.blocks[1]->forward;
    it.blocks[1]->forward = [&, forward](recomputing::run_type& run) {
      forward(run);
      if (only_once && run.is_again()) return;
      if (changed == what::state)
        cursor[3] = to_the_same ? std::byte{7} : std::byte(std::to_integer<int>(cursor[3]) + 1);
      else
        for (float& value : it.m.acquire(kept, cm::access::read_write).span())
          value = to_the_same ? 5.0F : 0.9F * value + 0.2F;
    };
    const std::string name = changed == what::buffer   ? "buffer 'running'"
                             : changed == what::frozen ? "frozen weight 'running'"
                                                       : "registered bytes 'cursor'";
    INFO(name);
    CHECK_THAT(it.refusal(), ContainsSubstring("network \"net\", block 1 (\"b\") changed " + name) &&
                                 ContainsSubstring("run.is_again() is false"));
    only_once = true;
    CHECK(it.refusal() == "");
    only_once = false;
    to_the_same = true;
    CHECK(it.refusal() == "");
  }
}

TEST_CASE("full checks are silent about scratch that blocks share, and about the run that keeps its bytes",
          "[activation]")
{
  recomputing it;
  keeping kept;
  const auto share_scratch = [](auto& rig) {
    const auto scratch = rig.m.template add<float>({elements}, cm::role::activation);
    const auto own = rig.m.template add<float>({1}, cm::role::buffer);
    rig.m.acquire(own, cm::access::write).span()[0] = 0;
    for (auto* const block : rig.blocks)
      block->forward = [&rig, scratch, own, inner = block->forward, name = block->name()](auto& run) {
        inner(run);
        const auto lent = rig.m.lease(cm::tier::device, 512_B);
        lent.data()[0] = std::byte(name.front());
        std::ranges::fill(rig.m.acquire(scratch, cm::access::write).span(), static_cast<float>(name.front()));
        if (!run.is_again()) rig.m.acquire(own, cm::access::read_write).span()[0] += 1;
      };
    for (int step = 0; step < 3; ++step) CHECK(rig.refusal() == "");
    return rig.m.acquire(own, cm::access::read).span()[0];
  };
  CHECK(share_scratch(it) == 9);  // three blocks, three steps
  CHECK(share_scratch(kept) == 9);
}

TEST_CASE("a block that draws random numbers is told what they depend on", "[activation]")
{
  recomputing it;
  std::vector<std::uint64_t> steps;
  bool draws = true;
  it.blocks[1]->forward = [&, inner = it.blocks[1]->forward](recomputing::run_type& run) {
    draws ? (void)run.random() : steps.push_back(run.moment().step);
    inner(run);
  };
  CHECK_THAT(it.refusal(), ContainsSubstring("block 1 (\"b\") draws random numbers, and run() was given no step") &&
                               ContainsSubstring("{.step = step}"));
  draws = false;
  CHECK_THAT(it.refusal(), ContainsSubstring("block 1 (\"b\") asks for its step, and run() was given no step"));
  const auto run = [&](auto& rig, const act::chain_moment& moment, int times) {
    auto iteration = rig.network.iteration();
    for (int time = 0; time < times; ++time) rig.network.run(iteration, moment);
  };
  run(it, {.step = 4}, 1);
  CHECK(steps == std::vector<std::uint64_t>{4, 4});
  CHECK_NOTHROW(run(it, {.step = 4}, 2));
  draws = true;
  CHECK_NOTHROW(run(it, {.step = 4}, 1));  // the step is tried again
  CHECK_NOTHROW(run(it, {.step = 4}, 1));
  CHECK_THROWS_WITH(run(it, {.step = 5}, 2),
                    ContainsSubstring("block 1 (\"b\")") && ContainsSubstring("was run before in this iteration"));
  {
    auto iteration = it.network.iteration("train", 2);
    for (std::uint32_t batch = 0; batch < 2; ++batch)
      CHECK_NOTHROW(it.network.run(iteration, {.step = 6, .micro_batch = batch}));
  }
  for (int time = 0; time < 2; ++time) {  // without network.iteration()
    auto iteration = it.m.iteration();
    CHECK_NOTHROW(it.network.run(iteration, {.step = 7}));
  }
  CHECK_NOTHROW(it.m.rehearse([&] { run(it, {.step = 7}, 1); }, cm::rehearse_on::scratch));
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

TEST_CASE("networks draw other numbers for another name, seed or replica, and the same ones for the same",
          "[activation]")
{
  using network_type = act::checkpointed<manager, act::keep_all>;
  const auto drawn_by = [](const network_type::options& options, std::uint64_t step, std::uint32_t batch) {
    arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
    manager m{memory, {.chunk_bytes = 512_B}};
    network_type network{m, options};
    std::vector<std::uint16_t> drawn(256);
    auto& block = network.add("only");
    const auto out = block.outputs<float>({1});
    block.forward_seconds = block.backward_seconds = 1;
    block.forward = [&](auto& run) {
      run.save(out).span()[0] = 0;
      cm::random_bits(run.random(), 0, drawn);
    };
    block.backward = [](auto&) {};
    auto iteration = network.iteration("train", batch + 1);
    for (std::uint32_t each = 0; each <= batch; ++each) network.run(iteration, {.step = step, .micro_batch = each});
    return drawn;
  };
  const auto common = [](const auto& left, const auto& right) {
    return std::ranges::mismatch(left, right).in1 - left.begin();  // of two streams: few numbers
  };
  std::vector<std::vector<std::uint16_t>> all;
  for (const char* const name : {"encoder", "decoder", "encoder2", "a"})
    for (const std::uint64_t seed : {0U, 1U})
      for (const std::uint32_t replica : {0U, 1U})
        for (const std::uint64_t step : {0U, 1U})
          for (const std::uint32_t batch : {0U, 1U})
            all.push_back(drawn_by({.budget = budget, .seed = seed, .name = name, .replica = replica}, step, batch));
  for (std::size_t left = 0; left < all.size(); ++left)
    for (std::size_t right = 0; right < left; ++right) REQUIRE(common(all[left], all[right]) < 3);
  CHECK(all[0] == drawn_by({.budget = budget, .name = "encoder"}, 0, 0));
  // By a calculation in another language: the rule has a number in files, and does not change under it.
  CHECK(act::random_stream{"encoder", 42}.key(0, 0, 0).seed == 0x6d95e4ea1cae5e3cU);
  CHECK(act::random_stream{"decoder", 42}.key(9, 9, 9).seed == 0xbe73e5295eb900d3U);
  CHECK(act::random_stream{"encoder", (std::uint64_t{1} << 40) + 5}.key(0, 0, 0).seed == 0x4a1fde3aabbf7552U);
  CHECK(act::random_stream{"encoder", 42, act::random_rule::by_name, 1}.key(0, 0, 0).seed == 0xf47e9b61119edcc2U);
  // Without names the streams were those of the seed alone.
  CHECK_THROWS_WITH(drawn_by({.budget = budget}, 0, 0), ContainsSubstring("its network has no name"));
  std::vector<std::uint16_t> before(256);
  cm::random_bits({.seed = 9, .step = 3, .tensor = 0, .list = 0x8000'0001U}, 0, before);
  CHECK(drawn_by({.budget = budget, .seed = 9, .rule = act::random_rule::by_seed}, 3, 1) == before);
}

TEST_CASE("two networks of one manager have two names", "[activation]")
{
  recomputing it;
  using network_type = recomputing::network_type;
  CHECK_THROWS_WITH((network_type{it.m, {.budget = budget, .name = "net"}}), ContainsSubstring("net/random"));
  CHECK_NOTHROW(network_type{it.m, {.budget = budget, .name = "other"}});
  CHECK_NOTHROW(network_type{it.m, {.budget = budget}});
}

}  // namespace checkpointed_input_test
