// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/karma.hpp>
#include <chunkmem/activation/planned_activations.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/checks/full_checks.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <support/catch.hpp>
#include <support/small_network.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace checkpointed_calls_test {

/// The calls of a step that is no plain forward and backward, and plans that are made anew.

namespace cm = chunkmem;
namespace act = chunkmem::activation;
namespace small = support::small;
using namespace cm::literals;
using Catch::Matchers::ContainsSubstring;
using arena = cm::backend::host_arena;
using manager = cm::manager<arena, cm::checks::full, cm::transfer::no_prefetch>;

namespace {

template <class Planner>
struct rig {
  using network_type = small::network<manager, Planner>;

  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 512_B}};
  network_type net;
  cm::optimizer::sgd kernel{{.momentum = 0.9F}, {.masters = false}};
  std::vector<float> losses;

  explicit rig(const small::network_shape& how = {.name = "net"}) : net{m, how, Planner{}}
  {
    m.use(kernel);
    net.input = [](const auto& run, std::uint64_t i) { return small::datum(1, run.moment(), i); };
    net.chain.use(
        act::activation_budget{.device = 32_KiB, .to_host_bytes_per_second = 1e6, .to_device_bytes_per_second = 1e6});
  }
  float meet(std::uint32_t instance = 0)
  {
    return net.meet(instance, small::rows, [](std::uint64_t i) { return 0.1F * static_cast<float>(i % 3); });
  }
  void step(std::uint64_t now)
  {
    auto iteration = net.chain.iteration();
    net.chain.forward(iteration, {.step = now});
    losses.push_back(meet());
    net.chain.backward(iteration);
    net.drop_slopes();
    iteration.end();
    small::update(m, kernel);
  }
  std::vector<float> left()
  {
    std::vector<float> all = losses;
    net.collect(all);
    return all;
  }
};
using keeping = rig<act::keep_all>;
using recomputing = rig<act::recompute_all>;

}  // namespace

TEST_CASE("an evaluation has a record of its own and leaves that of training as it was", "[activation]")
{
  recomputing alone, it;
  for (auto* const each : {&alone, &it}) each->net.fill();
  float first = 0;
  for (std::uint64_t now = 0; now < 5; ++now) {
    alone.step(now);
    it.step(now);
    auto iteration = it.net.chain.evaluation();
    it.net.chain.evaluate(iteration, {.step = 7});
    const float whole = it.net.sum_of_output(small::rows);
    it.net.chain.evaluate(iteration, {.step = 7});
    CHECK(it.net.sum_of_output(small::rows) == whole);  // without dropout
    if (now == 0) first = whole;
    if (now == 4) CHECK(whole != first);
  }
  CHECK(it.left() == alone.left());
  CHECK(it.m.report().divergences == 0);
  REQUIRE(it.m.profile("evaluate") != nullptr);
  CHECK(it.m.profile("train")->size() > it.m.profile("evaluate")->size());
}

TEST_CASE("an evaluation keeps two layers at once, and its output until the next call", "[activation]")
{
  keeping it{{.name = "net", .layers = 12}};
  it.net.fill();
  cm::bytes most = 0_B;
  it.net.input = [&](const auto& run, std::uint64_t i) { return small::datum(1, run.moment(), i); };
  {
    auto iteration = it.net.chain.evaluation();
    it.net.chain.evaluate(iteration, {.step = 0});
    most = it.m.report().peak[cm::tier::device];
    CHECK_FALSE(it.net.is_empty());
    it.net.chain.evaluate(iteration, {.step = 0});
  }
  CHECK(most < 12_KiB);  // 12 layers save 12 KiB, and weights take 3 KiB
  {
    auto iteration = it.net.chain.evaluation();
    CHECK(it.net.is_empty());
  }
  CHECK(it.m.profile("train") == nullptr);
}

TEST_CASE("an evaluation that makes a gradient is refused", "[activation]")
{
  keeping it;
  const auto extra = it.m.add<float>({4}, cm::role::parameter);
  it.net.fill();
  for (float& each : it.m.acquire(extra, cm::access::write).span()) each = 1;
  it.net.input = [&](const auto& run, std::uint64_t i) {
    if (i == 0 && !run.is_training()) (void)it.m.gradient(extra);
    return 1.0F;
  };
  auto iteration = it.net.chain.evaluation();
  CHECK_THROWS_WITH(it.net.chain.evaluate(iteration),
                    ContainsSubstring("block 0 (\"net layer 0\") makes a gradient in an evaluation"));
  CHECK(it.net.is_empty());
}

TEST_CASE("a backward that is skipped leaves nothing, and the next steps follow the record of those before",
          "[activation]")
{
  recomputing alone, it;
  for (auto* const each : {&alone, &it}) each->net.fill();
  for (std::uint64_t now = 0; now < 6; ++now) {
    if (now == 3) {
      auto iteration = it.net.chain.iteration();
      it.net.chain.forward(iteration, {.step = 100});
      (void)it.meet();
      it.net.chain.skip_backward();
      it.net.drop_slopes();
      CHECK(it.net.is_empty());
      it.net.chain.skip_backward();  // nothing is left to skip
    }
    alone.step(now);
    it.step(now);
  }
  CHECK(it.left() == alone.left());
  CHECK(it.m.report().divergences == 1);
  CHECK_FALSE(it.m.drifted());
}

TEST_CASE("an iteration that ends before its backward leaves nothing to the next one", "[activation]")
{
  for (const bool own : {true, false}) {
    keeping alone, it;
    for (auto* const each : {&alone, &it}) each->net.fill();
    for (std::uint64_t now = 0; now < 4; ++now) {
      {
        auto iteration = it.net.chain.iteration();
        it.net.chain.forward(iteration, {.step = 50 + now});
      }
      if (own) {
        it.step(now);
      } else {
        auto iteration = it.m.iteration();
        it.net.chain.forward(iteration, {.step = now});
        it.losses.push_back(it.meet());
        it.net.chain.backward(iteration);
        it.net.drop_slopes();
        iteration.end();
        small::update(it.m, it.kernel);
      }
      alone.step(now);
      CHECK(it.net.is_empty());
    }
    CHECK(it.left() == alone.left());
  }
}

TEST_CASE("instances run forward in order and backward in reverse, and another order changes nothing", "[activation]")
{
  recomputing it{{.name = "net", .instances = 2}};
  it.net.fill();
  auto& chain = it.net.chain;
  auto iteration = chain.iteration();
  CHECK_THROWS_WITH(chain.backward(iteration),
                    ContainsSubstring("network \"net\" cannot run backward after 0 of 2 forwards"));
  CHECK_THROWS_WITH(chain.forward(iteration, {.step = 0, .instance = 1}),
                    ContainsSubstring("instance 1 forward") && ContainsSubstring("number 0 is next"));
  chain.forward(iteration, {.step = 0});
  CHECK_THROWS_WITH(chain.forward(iteration, {.step = 0}),
                    ContainsSubstring("cannot run forward again before its backward: 1 of 2"));
  CHECK_THROWS_WITH(chain.backward(iteration), ContainsSubstring("after 1 of 2 forwards"));
  CHECK_THROWS_WITH(chain.evaluate(iteration), ContainsSubstring("forward again before its backward"));
  CHECK_THROWS_WITH(chain.forward(iteration, {.step = 1, .instance = 1}),
                    ContainsSubstring("another step, micro-batch or number of rows"));
  CHECK_THROWS_WITH(
      chain.use(act::keep_all{}.plan(
          chain.chain(), {.device = 1_MiB, .to_host_bytes_per_second = 1, .to_device_bytes_per_second = 1})),
      ContainsSubstring("inside of its step"));
  chain.forward(iteration, {.step = 0, .instance = 1});
  CHECK_THROWS_WITH(chain.forward(iteration, {.step = 0, .instance = 2}), ContainsSubstring("instance 2 forward"));
  (void)it.meet(0), (void)it.meet(1);
  chain.backward(iteration, 1);
  CHECK_THROWS_WITH(chain.backward(iteration, 1), ContainsSubstring("instance 1 backward out of its turn: 1 are left"));
  chain.backward(iteration, 0);
  it.net.drop_slopes();
  CHECK(it.net.is_empty());
  CHECK_THROWS_WITH(chain.backward(iteration), ContainsSubstring("after 0 of 2 forwards"));
}

TEST_CASE("instances draw other random numbers, and the same ones when a block runs again", "[activation]")
{
  recomputing it{{.name = "net", .layers = 1, .instances = 2}};
  it.net.fill();
  std::vector<std::uint16_t> drawn[2];
  it.net.input = [&](const auto& run, std::uint64_t i) {
    if (i == 0)
      for (std::uint64_t at = 0; at < 64; ++at) drawn[run.instance()].push_back(cm::random_bits(run.random(), at));
    return small::datum(1, run.moment(), i);
  };
  auto iteration = it.net.chain.iteration();
  it.net.chain.use(act::recompute_all{}.plan(
      it.net.chain.chain(), {.device = 32_KiB, .to_host_bytes_per_second = 1e6, .to_device_bytes_per_second = 1e6}));
  for (std::uint32_t instance = 0; instance < 2; ++instance)
    it.net.chain.forward(iteration, {.step = 3, .instance = instance});
  (void)it.meet(0), (void)it.meet(1);
  it.net.chain.backward(iteration);
  for (const auto& each : drawn) {
    REQUIRE(each.size() % 64 == 0);
    for (std::size_t at = 64; at < each.size(); ++at) CHECK(each[at] == each[at % 64]);
  }
  CHECK(drawn[0].size() == 192);  // forward, forward again, backward
  CHECK(drawn[1].size() == 128);  // the last block is kept
  CHECK(drawn[0][0] != drawn[1][0]);
}

TEST_CASE("a tensor counts once, however often blocks declare it", "[activation]")
{
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 512_B}};
  act::checkpointed<manager, act::keep_all> network{
      m, {.budget = {.device = 32_KiB, .to_host_bytes_per_second = 1e6, .to_device_bytes_per_second = 1e6}}};
  auto& first = network.add("first");
  auto& second = network.add("second");
  auto& third = network.add("third");
  const auto hidden = first.saves<float>({64});
  CHECK(first.saves(hidden) == hidden);
  const auto out = first.outputs<float>({128});
  CHECK(first.outputs(out) == out);
  CHECK(second.saves(out) == out);  // its input, which its backward callback reads
  CHECK(second.reads_input);
  const auto next = second.outputs<float>({32});
  CHECK(third.saves(out) == out);  // of an earlier block
  CHECK(third.reads(hidden) == hidden);
  (void)third.outputs<float>({32});
  const act::layer_chain chain = network.chain();
  CHECK(chain.blocks[0].saved == 0_B);
  CHECK(chain.blocks[1].saved == 256_B);
  CHECK(chain.blocks[2].saved == 256_B);
  REQUIRE(chain.skips.size() == 2);
  CHECK(chain.skips[0] == act::chain_skip{.from = 0, .readers = {2}, .size = 256_B});
  CHECK(chain.skips[1] == act::chain_skip{.from = 0, .readers = {1, 2}, .size = 512_B});
  CHECK_THROWS_WITH(third.outputs(next), ContainsSubstring("block 2 (\"third\") outputs a tensor that it saves, or"));
  CHECK_THROWS_WITH(first.reads(next), ContainsSubstring("block 0 (\"first\") reads a tensor that no earlier block"));
  const auto foreign = m.add<float>({4}, cm::role::activation);
  CHECK_THROWS_WITH(third.reads(foreign), ContainsSubstring("reads a tensor that no earlier block makes"));
}

TEST_CASE("planners let skips leave where they and the blocks between them have no room together", "[activation]")
{
  act::layer_chain chain;
  for (std::uint32_t index = 0; index < 7; ++index)
    chain.blocks.push_back(
        {.name = std::to_string(index), .forward_seconds = 1, .backward_seconds = 2, .saved = 20_B, .boundary = 10_B});
  for (std::uint32_t from = 0; from < 3; ++from)
    chain.skips.push_back({.from = from, .readers = {from + 1, 6 - from}, .size = 100_B});
  const act::activation_budget budget{
      .device = 330_B, .to_host_bytes_per_second = 40, .to_device_bytes_per_second = 40};
  CHECK_FALSE(act::keep_all{}.plan(chain, budget).costs.fits);  // 300 B of skips, and 140 B of blocks
  const auto leave = [](const act::activation_plan& plan) {
    return std::ranges::count(plan.skips_leave, std::uint8_t{1});
  };
  const act::activation_plan swapped = act::swap_all{}.plan(chain, budget);
  CHECK(swapped.costs.fits);
  CHECK(leave(swapped) == 6);
  const act::activation_plan best = act::planned{}.plan(chain, budget);
  CHECK(best.costs.fits);
  CHECK(best.costs.seconds <= swapped.costs.seconds);
  act::activation_budget less = budget;
  less.device = 250_B;  // less than all skips
  const act::activation_plan tight = act::planned{}.plan(chain, less);
  CHECK(tight.costs.fits);
  CHECK(leave(tight) > 0);
}

TEST_CASE("a block writes no skip that it reads, and full checks find one that does otherwise", "[activation]")
{
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 512_B}};
  using network_type = act::checkpointed<manager, act::keep_all>;
  network_type network{
      m, {.budget = {.device = 32_KiB, .to_host_bytes_per_second = 1e6, .to_device_bytes_per_second = 1e6}}};
  std::vector<cm::tensor<float>> out;
  std::vector<network_type::block_type*> blocks;
  cm::tensor<float> hidden;
  const auto late = m.add<float>({16}, cm::role::activation);
  bool saves = true, restores = false;
  for (std::uint32_t index = 0; index < 3; ++index) {
    auto& block = network.add(std::to_string(index));
    blocks.push_back(&block);
    if (index == 0) hidden = block.saves<float>({16});
    if (index == 2) block.reads(out[0]);
    out.push_back(block.outputs<float>({16}));
    block.forward_seconds = block.backward_seconds = 1;
    block.forward = [&, index](auto& run) {
      std::ranges::fill(run.save(out[index]).span(), 1.0F);
      if (index == 0) std::ranges::fill(run.save(hidden).span(), 1.0F);
      if (index < 2) return;
      if (saves) (void)run.save(out[0]);
      if (restores) (void)run.restore(out[0], cm::access::read_write);
      m.acquire(out[0], cm::access::read_write).span()[3] += 1;
    };
    block.backward = [](auto&) {};
  }
  const auto step = [&] {
    auto iteration = network.iteration();
    network.run(iteration);
  };
  CHECK_THROWS_WITH(step(), ContainsSubstring("block 2 (\"2\") saves a tensor of an earlier block, which it reads"));
  saves = false, restores = true;
  CHECK_THROWS_WITH(step(), ContainsSubstring("block 2 (\"2\") writes a tensor of an earlier block"));
  restores = false;
  CHECK_THROWS_WITH(step(), ContainsSubstring("block 2 (\"2\") overwrites its input"));
  CHECK_THROWS_WITH(blocks[2]->saves(late), ContainsSubstring("block 2 (\"2\") was given a tensor after the network"));
  CHECK_THROWS_WITH(blocks[2]->reads(hidden), ContainsSubstring("was given a tensor after the network had run"));
}

TEST_CASE("a batch of fewer rows has tensors of as many, and one of more rows is refused", "[activation]")
{
  keeping it{{.name = "net", .normalises = true}};
  it.net.fill();
  auto& chain = it.net.chain;
  chain.add_kind("short", {.rows = 4});
  for (const std::uint64_t rows : {small::rows, std::uint64_t{5}, std::uint64_t{1}}) {
    auto iteration = chain.iteration();
    chain.forward(iteration, {.step = rows, .rows = rows});
    CHECK(it.m.acquire(it.net.output(0), cm::access::read).span().size() == rows * small::width);
    chain.skip_backward();
  }
  {
    auto iteration = chain.iteration();
    CHECK_THROWS_WITH(chain.forward(iteration, {.step = 0, .rows = 17}),
                      ContainsSubstring("was run with 17 rows, and its largest batch has 16"));
    CHECK_THROWS_WITH(chain.forward(iteration, {.step = 0, .rows = 0}), ContainsSubstring("was run with 0 rows"));
    chain.forward(iteration, {.step = 0});
    CHECK(it.m.acquire(it.net.output(0), cm::access::read).span().size() == small::rows * small::width);
  }
  auto iteration = chain.iteration("short");
  CHECK_THROWS_WITH(chain.forward(iteration, {.step = 0, .rows = 5}), ContainsSubstring("its largest batch has 4"));
  CHECK_THROWS_WITH(chain.add_kind("short", {.rows = 2}), ContainsSubstring("that a network has"));
  CHECK_THROWS_WITH(chain.add_kind("other", {.instances = 2}), ContainsSubstring("want 0 rows and 2 instances"));
}

TEST_CASE("a batch of another size changes no size while a tensor is pinned", "[activation]")
{
  keeping it{{.name = "net"}};
  it.net.fill();
  auto& chain = it.net.chain;
  {
    auto iteration = chain.evaluation();
    chain.evaluate(iteration, {.step = 0});
    const auto held = it.m.acquire(it.net.output(0), cm::access::read);
    CHECK_THROWS_AS(chain.evaluate(iteration, {.step = 0, .rows = 4}), cm::usage_error);
  }
  {
    auto iteration = chain.evaluation();
    chain.evaluate(iteration, {.step = 0});
    CHECK_THROWS_WITH(it.m.resize_activations([&](auto set) {
      set(it.net.slope(0), 64_B);
      set(it.net.output(0), 64_B);
    }),
                      ContainsSubstring("another size while it holds bytes"));
    CHECK(it.m.acquire(it.net.slope(0), cm::access::write).span().size() == small::rows * small::width);
    it.m.drop(it.net.slope(0));
  }
  auto iteration = chain.evaluation();
  chain.evaluate(iteration, {.step = 0, .rows = 4});
  CHECK(it.m.acquire(it.net.output(0), cm::access::read).span().size() == 4 * small::width);
}

TEST_CASE("a rehearsal after a smaller batch has all rows", "[activation]")
{
  keeping it{{.name = "net"}};
  it.net.fill();
  auto& chain = it.net.chain;
  {
    auto iteration = chain.iteration();
    chain.forward(iteration, {.step = 0, .rows = 4});
    chain.skip_backward();
  }
  std::uint64_t elements = 0;
  it.m.rehearse(
      [&] {
        auto iteration = chain.iteration();
        chain.forward(iteration, {.step = 0, .rows = 4});
        elements = it.m.acquire(it.net.output(0), cm::access::read).span().size();
        (void)it.meet();
        chain.backward(iteration);
        it.net.drop_slopes();
        iteration.end();
        small::update(it.m, it.kernel);
      },
      cm::rehearse_on::scratch);
  CHECK(elements == small::rows * small::width);
}

TEST_CASE("a micro-batch that runs twice in one iteration draws no random numbers, whatever its rows are",
          "[activation]")
{
  keeping it{{.name = "net"}};
  it.net.fill();
  auto iteration = it.net.chain.iteration();
  it.net.chain.forward(iteration, {.step = 0});
  (void)it.meet();
  it.net.chain.backward(iteration);
  it.net.drop_slopes();
  CHECK_THROWS_WITH(it.net.chain.forward(iteration, {.step = 0, .rows = 8}),
                    ContainsSubstring("draws the random numbers of a micro-batch that was run before"));
}

TEST_CASE("tensors of rows are whole rows", "[activation]")
{
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 512_B}};
  using network_type = act::checkpointed<manager, act::keep_all>;
  const act::activation_budget budget{
      .device = 32_KiB, .to_host_bytes_per_second = 1e6, .to_device_bytes_per_second = 1e6};
  network_type network{m, {.budget = budget, .rows = 16}};
  CHECK_THROWS_WITH(network.add("a").saves<float>({24}, act::sized::by_rows),
                    ContainsSubstring("24 elements, sized by rows, and the largest batch has 16 rows"));
  CHECK_THROWS_WITH((network_type{m, {.budget = budget, .rows = 0}}), ContainsSubstring("0 rows or 0 instances"));
}

TEST_CASE("a kind of iterations has a plan of its own", "[activation]")
{
  using planning = rig<act::karma>;
  planning it{{.name = "net", .layers = 4, .instances = 2}};
  it.net.fill();
  auto& chain = it.net.chain;
  chain.add_kind("one", {.instances = 1});
  chain.use(act::activation_budget{
      .device = 7_KiB, .to_host_bytes_per_second = 1e5, .to_device_bytes_per_second = 1e5, .frame = 512_B});
  for (const auto* const name : {"train", "one", "train", "one"}) {
    auto iteration = chain.iteration(name);
    const std::uint32_t instances = std::string{name} == "one" ? 1 : 2;
    for (std::uint32_t instance = 0; instance < instances; ++instance) {
      chain.forward(iteration, {.step = 0, .instance = instance});
      (void)it.meet(instance);
    }
    chain.backward(iteration);
    it.net.drop_slopes();
    it.m.drop_gradients();
  }
  CHECK(chain.plan().inner_leaves.size() == 8);
  CHECK(chain.plan("one").inner_leaves.size() == 4);
  CHECK(chain.plan("one").costs.moved == 0_B);
  CHECK(chain.plan("one").costs.recomputed_seconds == 0);
  CHECK(chain.plan().costs.seconds > chain.plan().costs.unlimited_seconds);
  CHECK(it.m.report().divergences == 0);
}

TEST_CASE("a new budget makes a new plan without a new manager", "[activation]")
{
  rig<act::karma> it{{.name = "net", .layers = 6}};
  it.net.fill();
  const auto with = [&](cm::bytes device) {
    it.net.chain.use(act::activation_budget{
        .device = device, .to_host_bytes_per_second = 1e5, .to_device_bytes_per_second = 1e5, .frame = 512_B});
    for (std::uint64_t now = 0; now < 3; ++now) it.step(now);
    return it.net.chain.plan().costs;
  };
  const act::plan_costs little = with(4608_B), more = with(5_KiB), enough = with(32_KiB);
  CHECK(little.device_peak <= 4608_B);
  CHECK(little.seconds > more.seconds);
  CHECK(more.seconds > enough.seconds);
  CHECK(enough.seconds == enough.unlimited_seconds);
  CHECK(it.m.report().divergences == 2);
  CHECK_THROWS_WITH(with(512_B), ContainsSubstring("no plan of activations fits into 512 B"));
  CHECK(with(5_KiB) == more);
  act::activation_budget wrong;
  CHECK_THROWS_AS(it.net.chain.use(wrong), cm::config_error);
  const act::activation_plan given = act::recompute_all{}.plan(
      it.net.chain.chain(), {.device = 32_KiB, .to_host_bytes_per_second = 1, .to_device_bytes_per_second = 1});
  it.net.chain.use(given);
  CHECK(with(32_KiB) == given.costs);  // a plan that the trainer gave stays
  it.net.chain.measure_again();
  it.step(9);
  CHECK(it.net.chain.plan().costs == enough);
}

TEST_CASE("a plan rests on the times of later steps where those of the first one are others", "[activation]")
{
  using memory_type = cm::backend::simulated;
  using manager_type = cm::manager<memory_type, cm::transfer::no_prefetch>;
  memory_type memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  manager_type m{memory, {.chunk_bytes = 512_B}};
  act::checkpointed<manager_type, act::karma> network{
      m,
      {.budget = {
           .device = 5_KiB, .to_host_bytes_per_second = 1e6, .to_device_bytes_per_second = 1e6, .frame = 512_B}}};
  std::vector<cm::tensor<std::uint8_t>> saved, out;
  std::uint64_t scale = 1;  // nanoseconds of a microsecond
  for (std::uint32_t index = 0; index < 8; ++index) {
    auto& block = network.add(std::to_string(index));
    saved.push_back(block.saves<std::uint8_t>({512}));
    out.push_back(block.outputs<std::uint8_t>({512}));
    block.forward = [&, index](auto& run) {
      (void)run.save(saved[index]);
      (void)run.save(out[index]);
      memory.advance(cm::agent::host, 20 * scale * (index + 1));
    };
    block.backward = [&, index](auto& run) {
      (void)run.restore(saved[index]);
      memory.advance(cm::agent::host, 40 * scale * (index + 1));
    };
  }
  const auto step = [&] {
    auto iteration = network.iteration();
    network.run(iteration);
    return network.plan();
  };
  step();  // a first batch that takes a thousandth of the others' time
  scale = 1000;
  const act::activation_plan hasty = step();
  CHECK(hasty.costs.moved == 0_B);
  CHECK(hasty.costs.recomputed_seconds > 0);
  const act::activation_plan settled = step();
  CHECK(settled.costs.unlimited_seconds > 100 * hasty.costs.unlimited_seconds);
  CHECK(settled.costs.moved > 0_B);
  CHECK(step() == settled);
  scale = 1;
  for (int more = 0; more < 3; ++more) CHECK(step() == settled);  // once two steps agree, nothing is measured
  network.measure_again();
  CHECK(step().steps == settled.steps);  // measured by the plan that is there
  CHECK(step().costs.moved == 0_B);
  network.measure_again();
  int plans = 0;  // of steps that take a thousandth of the time, or all of it, by turns
  for (int now = 0; now < 14; ++now) {
    const act::activation_plan before = network.plan();
    scale = now % 2 == 0 ? 1000 : 1;
    plans += step() == before ? 0 : 1;
    if (now == 6) CHECK(plans == 5);  // the planned one, and four more
  }
  CHECK(plans == 5);
}

}  // namespace checkpointed_calls_test
