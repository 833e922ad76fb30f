// SPDX-License-Identifier: Apache-2.0
#include <gpt_cuda/trainer.hpp>

#include <gpt_cuda/fake_training.hpp>
#include <support/catch.hpp>
#include <support/sanitized.hpp>

#include <bit>
#include <string>
#include <vector>

namespace trainer_test {

namespace {

using namespace chunkmem::literals;
using gpt::gradient_choice;
using gpt::update_choice;
using support::fake_device;
using support::gpt_manager;
using trainer = gpt::cuda::batch_trainer<gpt_manager, support::fake_math>;

/// What differs from test to test.
struct variant {
  update_choice update = update_choice::cpu;
  gradient_choice gradient = gradient_choice::separate;
  gpt::extents size = support::small_gpt;
  float clip = 1.0f;

  [[nodiscard]] gpt::trainer_settings settings() const
  {
    return {.schedule = {.highest = 1e-2f, .steps = 20},
            .seed = 3,
            .precision = chunkmem::dtype::bfloat16,
            .clip = clip,
            .update = update};
  }
};

/// A small model on a fake GPU of a given size.
struct world {
  explicit world(chunkmem::bytes device, const variant& chosen = {},
                 support::fake_schedule when = support::fake_schedule::earliest)
      : memory{{.device_capacity = device, .host_capacity = 16_MiB, .when = when, .seed = 5}},
        m{memory, {.chunk_bytes = 8_KiB}, gpt::either_gradient{chosen.gradient}},
        net{gpt::cuda::declare_batch_model(m, chosen.size, chunkmem::dtype::bfloat16)},
        it{m, net, text, chosen.settings(), workers}
  {
  }
  ~world() { memory.drain(); }

  chunkmem::memory_requirement rehearse()
  {
    return m.rehearse([this] { (void)it.step(0); });
  }

  gpt::training_text text = support::some_text();
  fake_device memory;
  gpt_manager m;
  gpt::cuda::batch_model net;
  chunkmem::optimizer::thread_pool workers{2};
  trainer it;
};

struct outcome {
  std::vector<std::uint32_t> losses;
  std::uint64_t parameters = 0;
  std::vector<std::string> faults;

  friend bool operator==(const outcome&, const outcome&) = default;
};

constexpr chunkmem::bytes plenty = 16_MiB;

outcome train(chunkmem::bytes device, const variant& chosen, support::fake_schedule when, std::size_t steps = 4)
{
  world each{device, chosen, when};
  (void)each.rehearse();
  gpt::fill(each.m, each.net, 3);
  outcome out;
  out.losses.push_back(std::bit_cast<std::uint32_t>(each.it.evaluate()));
  for (std::size_t i = 0; i < steps; ++i) out.losses.push_back(std::bit_cast<std::uint32_t>(each.it.step(i)));
  out.losses.push_back(std::bit_cast<std::uint32_t>(each.it.evaluate()));
  out.parameters = each.it.parameter_hash();
  each.memory.drain();
  out.faults = each.memory.faults();
  return out;
}

}  // namespace

TEST_CASE("the GPT of the GPU has the same bits on any device, wherever it is updated", "[gpt_cuda]")
{
  using enum support::fake_schedule;
  const outcome unlimited = train(plenty, {}, earliest);
  CHECK(unlimited.faults.empty());
  for (const update_choice update : {update_choice::cpu, update_choice::gpu}) {
    for (const gradient_choice gradient : {gradient_choice::separate, gradient_choice::in_place}) {
      const variant chosen{.update = update, .gradient = gradient};
      INFO((update == update_choice::cpu ? "cpu " : "gpu ")
           << (gradient == gradient_choice::in_place ? "in place" : "separate"));
      const chunkmem::bytes smallest = world{plenty, chosen}.rehearse().smallest_device;
      CHECK(train(smallest, chosen, latest) == unlimited);
      if (!support::sanitized) CHECK(train(smallest + 32_KiB, chosen, random) == unlimited);
    }
  }
}

TEST_CASE("the GPT of the GPU learns, and its capped run moves bytes", "[gpt_cuda]")
{
  world w{world{plenty}.rehearse().smallest_device};
  (void)w.rehearse();
  gpt::fill(w.m, w.net, 3);
  const float before = w.it.evaluate();
  for (std::size_t i = 0; i < 15; ++i) (void)w.it.step(i);
  CHECK(w.it.evaluate() < before - 1.0f);
  CHECK(w.m.report().loaded.count() > 0);
  CHECK(w.m.report().peak[chunkmem::tier::device] <= w.m.report().capacity[chunkmem::tier::device]);
}

}  // namespace trainer_test
