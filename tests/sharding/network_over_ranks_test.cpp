// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/checkpointed.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checks/full_checks.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/catch.hpp>

#include <cstdint>

namespace network_over_ranks_test {

namespace cm = chunkmem;
namespace act = cm::activation;
using namespace cm::literals;
using Catch::Matchers::ContainsSubstring;
using cm::access;
using arena = cm::backend::host_arena;
using model = cm::sharded_model<arena, cm::collective::self, cm::checks::full>;
using network_type = act::checkpointed<model, act::recompute_all>;
using run_type = network_type::block_type::run_type;

namespace {

/// Two blocks y = w x, which run forward twice, over ranks of which there is one.
struct chain {
  static constexpr std::uint64_t width = 64;

  arena memory{{.device_capacity = 256_KiB, .host_capacity = 256_KiB}};
  cm::collective::self rank{};
  model m{memory, rank, {.chunk_bytes = 16_KiB}};
  cm::optimizer::sgd sgd{{.momentum = 0}, {.masters = false}};
  network_type network{
      m,
      {.budget = {.device = 8_KiB, .to_host_bytes_per_second = 1e9, .to_device_bytes_per_second = 1e9}, .name = "net"}};
  cm::tensor<float> batch, mean;
  cm::tensor<float> w[2], h[2], y[2];
  network_type::block_type* block[2] = {};

  chain()
  {
    m.use(sgd);
    batch = m.add<float>({width}, cm::role::buffer);
    mean = m.add<float>({1}, cm::role::buffer);
    m.name(mean, "running mean");
    for (std::uint32_t index = 0; index < 2; ++index) {
      w[index] = m.add<float>({width}, cm::role::parameter);
      block[index] = &network.add(index == 0 ? "first" : "second");
      h[index] = block[index]->saves<float>({width});
      y[index] = block[index]->outputs<float>({width});
      block[index]->forward_seconds = block[index]->backward_seconds = 1e-3;
      block[index]->forward = [this, index](run_type& run) { forward(index, run); };
      block[index]->backward = [this, index](run_type& run) { backward(index, run); };
    }
    for (const auto& each : {batch, mean, w[0], w[1]})
      for (float& it : m.acquire(each, access::write).span()) it = 1.0F;
  }
  void forward(std::uint32_t index, run_type& run)
  {
    const auto x = run.input(index == 0 ? batch : y[0]);
    const auto weight = m.acquire(w[index], access::read);
    const auto saved = run.save(h[index]);
    const auto out = run.save(y[index]);
    for (std::size_t at = 0; at < width; ++at) {
      saved.span()[at] = x.span()[at];
      out.span()[at] = weight.span()[at] * x.span()[at];
    }
  }
  void backward(std::uint32_t index, run_type& run)
  {
    const auto saved = run.restore(h[index]);
    add(index, saved.span()[0]);
  }
  void add(std::uint32_t index, float value)
  {
    auto g = m.gradient(w[index]);
    for (float& it : g.span()) it = (g.beta() == 0 ? 0 : it) + value;
  }
  void step()
  {
    {
      auto iteration = network.iteration();
      network.run(iteration, {.step = 0});
    }
    m.step(sgd, {.learning_rate = 0.5F});
  }
};

}  // namespace

TEST_CASE("a network over ranks trains under checks::full", "[sharding]")
{
  chain it;
  for (int step = 0; step < 3; ++step) it.step();
  CHECK(it.m.acquire(it.w[0], access::read).span()[0] == -0.5F);  // 1 - 3 steps of 0.5
}

TEST_CASE("over ranks a buffer that a block changes twice is found", "[sharding]")
{
  chain it;
  it.block[0]->forward = [&](run_type& run) {
    it.forward(0, run);
    it.m.acquire(it.mean, access::read_write).span()[0] += 1.0F;
  };
  CHECK_THROWS_WITH(it.step(), ContainsSubstring("changed buffer 'running mean' when it ran again in one step"));
}

TEST_CASE("over ranks a gradient of a block that runs forward again is refused", "[sharding]")
{
  chain it;
  it.block[0]->forward = [&](run_type& run) {
    it.forward(0, run);
    it.add(0, 0.25F);
  };
  CHECK_THROWS_WITH(it.step(), ContainsSubstring("makes a gradient when it runs forward again"));
}

TEST_CASE("a network over ranks is refused in an iteration of another model", "[sharding]")
{
  chain it, other;
  auto iteration = other.network.iteration();
  CHECK_THROWS_WITH(it.network.run(iteration), ContainsSubstring("in an iteration of another manager"));
}

TEST_CASE("a network in the manager of a rank runs in an iteration of its model", "[sharding]")
{
  using inner_type = act::checkpointed<model::manager_type, act::recompute_all>;
  arena memory{{.device_capacity = 256_KiB, .host_capacity = 256_KiB}};
  cm::collective::self rank;
  model m{memory, rank, {.chunk_bytes = 16_KiB}};
  inner_type network{m.shares(),
                     {.budget = {.device = 8_KiB, .to_host_bytes_per_second = 1e9, .to_device_bytes_per_second = 1e9}}};
  auto& block = network.add("only");
  const auto output = block.outputs<float>({64});
  int backward = 0;
  block.forward = [&](inner_type::block_type::run_type& run) { run.save(output).span()[0] = 3; };
  block.backward = [&](inner_type::block_type::run_type&) { ++backward; };
  auto iteration = m.iteration();
  network.run(iteration);
  CHECK(backward == 1);
}

}  // namespace network_over_ranks_test
