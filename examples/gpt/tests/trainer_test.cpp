#include "trainer.hpp"

#include "sampler.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

namespace {

using namespace chunkmem::literals;
using manager = chunkmem::manager<chunkmem::backend::host_arena>;

constexpr gpt::extents small{.layers = 2, .width = 16, .heads = 2, .context = 12, .batch = 2};

gpt::training_text some_text()
{
  std::string all;
  for (int i = 0; i < 200; ++i) all += "the quick brown fox jumps over the lazy dog " + std::to_string(i) + '\n';
  return {"made here", all};
}

/// A small model on a device of a given size.
struct world {
  explicit world(chunkmem::bytes device)
      : memory{{.device_capacity = device, .host_capacity = 64_MiB}},
        m{memory, {.chunk_bytes = 8_KiB}},
        net{gpt::declare(m, small)},
        trainer{m, net, text, {.highest = 1e-2f, .steps = 20}, 3}
  {
  }
  gpt::training_text text = some_text();
  chunkmem::backend::host_arena memory;
  manager m;
  gpt::model net;
  gpt::trainer<manager> trainer;
};

chunkmem::bytes smallest_device()
{
  world probe{64_MiB};
  return probe.m.rehearse([&] { (void)probe.trainer.step(0); }).smallest_device;
}

/// The gradient of each parameter at step 0; nothing is updated.
std::vector<std::vector<float>> gradients_of(world& w)
{
  std::vector<std::vector<float>> gradients;
  auto iteration = w.m.iteration("gradient");
  (void)w.trainer.gradient(0, iteration);
  for (const gpt::parameter& each : w.net.parameters) {
    const auto pin = w.m.gradient(w.m.acquire(each.tensor, chunkmem::access::read));
    gradients.emplace_back(pin.span().begin(), pin.span().end());
  }
  w.m.drop_gradients();
  return gradients;
}

struct outcome {
  std::vector<std::uint32_t> losses;
  std::uint64_t parameters = 0;
};

outcome train(chunkmem::bytes device)
{
  world each{device};
  (void)each.m.rehearse([&] { (void)each.trainer.step(0); });
  gpt::fill(each.m, each.net, 3);
  outcome out;
  for (std::size_t i = 0; i < 6; ++i) out.losses.push_back(std::bit_cast<std::uint32_t>(each.trainer.step(i)));
  out.losses.push_back(std::bit_cast<std::uint32_t>(each.trainer.evaluate()));
  out.parameters = each.trainer.parameter_hash();
  return out;
}

}  // namespace

TEST_CASE("the gradient of the whole model is that of its finite differences", "[gpt]")
{
  world w{64_MiB};
  gpt::fill(w.m, w.net, 3);
  for (const gpt::parameter& each : w.net.parameters) {  // larger than at the start: slopes that float32 can measure
    const auto pin = w.m.acquire(each.tensor, chunkmem::access::read_write);
    const gpt::counter_random random{11, static_cast<std::uint64_t>(each.tensor.id)};
    for (std::size_t i = 0; i < pin.span().size(); ++i) pin.span()[i] += (random.uniform(i) - 0.5f) * 0.5f;
  }
  const auto gradients = gradients_of(w);
  const auto loss_with = [&](const gpt::parameter& each, std::size_t i, float change) {
    {
      const auto pin = w.m.acquire(each.tensor, chunkmem::access::read_write);
      pin.span()[i] += change;
    }
    auto iteration = w.m.iteration("differences");
    const double loss = static_cast<double>(w.trainer.gradient(0, iteration));
    w.m.drop_gradients();
    return loss;
  };
  // Along the gradient's largest number of each tensor. The loss is near 6 in float32, so a slope from a step of 1e-2
  // carries about 5e-5 of rounding: the tolerance is 4e-4 and 3 %.
  for (std::size_t which = 0; which < gradients.size(); ++which) {
    const std::vector<float>& gradient = gradients[which];
    const auto larger = [](float left, float right) { return std::abs(left) < std::abs(right); };
    const auto largest = std::max_element(gradient.begin(), gradient.end(), larger);
    const auto i = static_cast<std::size_t>(largest - gradient.begin());
    const double above = loss_with(w.net.parameters[which], i, 1e-2f);
    const double below = loss_with(w.net.parameters[which], i, -2e-2f);
    (void)loss_with(w.net.parameters[which], i, 1e-2f);
    const double slope = (above - below) / 2e-2;
    INFO("parameter " << which << ", number " << i << ", gradient " << *largest << ", differences " << slope);
    CHECK(std::abs(slope - static_cast<double>(*largest)) <= 4e-4 + 0.03 * std::abs(slope));
  }
}

TEST_CASE("losses and parameters have the same bits on any device", "[gpt]")
{
  const chunkmem::bytes smallest = smallest_device();
  const outcome unlimited = train(64_MiB);
  for (const chunkmem::bytes device : {smallest, smallest + 24_KiB}) {
    const outcome limited = train(device);
    CHECK(limited.losses == unlimited.losses);
    CHECK(limited.parameters == unlimited.parameters);
  }
}

TEST_CASE("the held-out loss falls", "[gpt]")
{
  world w{64_MiB};
  gpt::fill(w.m, w.net, 3);
  const float before = w.trainer.evaluate();
  for (std::size_t i = 0; i < 20; ++i) (void)w.trainer.step(i);
  CHECK(w.trainer.evaluate() < before - 1.0f);
}

TEST_CASE("sampling depends on nothing but the seed", "[gpt]")
{
  world w{64_MiB};
  gpt::fill(w.m, w.net, 3);
  gpt::sampler<manager> sampler{w.trainer};
  const std::string first = sampler.write("the qu", 40, 5);
  CHECK(first.size() == 40);
  CHECK(sampler.write("the qu", 40, 5) == first);
  CHECK(sampler.write("the qu", 40, 6) != first);
}
