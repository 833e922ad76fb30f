// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/save_async.hpp>

#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/early_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/transfer/planned.hpp>

#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>
#include <support/memory_folder.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>
#include "small_model.hpp"

namespace random_saves_behind_updates_test {

using namespace checkpoints;
namespace checkpoint = cm::checkpoint;
using support::memory_folder;

namespace {

/// Half of the updates happen on the device.
struct half_on_device : cm::placement::update_share {
  half_on_device() : update_share{0.5} {}
};

/// Weights of random sizes, some of them frozen, and steps of which each leaves out some weights.
template <class Element, class... Policies>
struct training {
  using manager_type = cm::manager<arena, support::chosen_gradient, Policies...>;

  training(std::mt19937& random, bool in_place)
      : m{memory, {.chunk_bytes = 4_KiB}, support::chosen_gradient{in_place}, Policies{}...}
  {
    m.use(kernel);
    m.content().belongs_to(1);
    const std::size_t count = 3 + random() % 20;
    for (std::size_t index = 0; index < count; ++index) {
      is_frozen.push_back(index > 0 && random() % 8 == 0);
      const bool is_large = random() % 3 == 0;
      const auto size = static_cast<std::uint32_t>(is_large ? 600 + random() % 300 : 20 + random() % 300);
      all.push_back(m.template add<Element>({size}, is_frozen.back() ? cm::role::frozen : cm::role::parameter));
    }
    for (const auto& weight : all) fill(weight, 0.25F, cm::memory_location::device);
  }
  void fill(cm::tensor<Element> weight, float value, cm::memory_location place)
  {
    for (Element& it : m.acquire(weight, cm::access::write, place).span()) it = cm::round_to<Element>(value);
  }
  void step(std::mt19937& random, bool is_early)
  {
    const bool leaves_out = random() % 3 == 0;
    std::vector<std::size_t> used;
    for (std::size_t index = all.size(); index-- > 0;) {
      if (is_frozen[index]) continue;
      if (index == 0 || !leaves_out || random() % 4 == 0)
        used.push_back(index);
      else
        m.without_gradient(all[index]);
    }
    const bool reads_all = random() % 3 != 0;
    float sum = 0;
    const auto scope = m.iteration();
    for (const auto& weight : all)
      if (reads_all || random() % 2 == 0) sum += cm::to_float(m.acquire(weight, cm::access::read).span()[0]);
    for (const std::size_t index : used) {
      auto gradient = m.gradient(all[index]);
      for (Element& it : gradient.span())
        it = cm::round_to<Element>(sum * 0.01F + 1.0F + 0.1F * static_cast<float>(index));
    }
    const cm::optimizer::step_options options{.learning_rate = 0.02F,
                                              .clip = {.norm = random() % 2 == 0 ? 0.0F : 1.0F}};
    if (is_early)
      (void)early.step(options);
    else
      (void)late.step(options);
  }
  /// One action of a trainer during its save.
  void act(std::mt19937& random)
  {
    const std::size_t index = random() % all.size();
    constexpr auto on_host = cm::memory_location::host;
    const cm::list_id momentum = m.list("adam/momentum");
    switch (random() % 11) {
      case 0: (void)m.acquire(all[index], cm::access::read); break;
      case 1: fill(all[index], 7.0F, on_host); break;
      case 2: m.drop_gradients(); break;
      case 3: (void)m.acquire(all[index], cm::access::read_write, on_host); break;
      case 4:
        if (is_frozen[index]) break;
        std::ranges::fill(m.template acquire<float>(all[index], momentum, cm::access::read_write, on_host).span(),
                          7.0F);
        break;
      case 5:
        if (!is_frozen[index]) (void)m.template acquire<float>(all[index], momentum, cm::access::read, on_host);
        break;
      case 6: {
        const auto scope = m.iteration("eval");
        for (const auto& weight : all) (void)m.acquire(weight, cm::access::read);
        break;
      }
      case 7: step(random, true); break;
      default: step(random, false);
    }
  }

  arena memory{{.device_capacity = 96_KiB, .host_capacity = 1_MiB}};
  manager_type m;
  cm::optimizer::adam kernel{};
  std::vector<cm::tensor<Element>> all{};
  std::vector<bool> is_frozen{};
  cm::optimizer::late_updates<manager_type, cm::optimizer::adam> late{m, kernel};
  cm::optimizer::early_updates<manager_type, cm::optimizer::adam> early{m, kernel, 16_KiB};
};

/// @return   whether updates waited when the save began
template <class Element, class... Policies>
bool save_and_go_on(std::uint32_t seed)
{
  INFO("seed " << seed << ", " << cm::name_of(cm::dtype_of<Element>) << ", " << sizeof...(Policies) << " policies");
  const bool in_place = cm::is_16_bit(cm::dtype_of<Element>) && seed % 2 == 1;
  const checkpoint::async_save_options options{.files = {.file_size = cm::bytes{2'000 + seed % 7 * 3'000}},
                                               .buffer = cm::bytes{std::uint64_t{4'096} << seed % 5},
                                               .lends = true,
                                               .copying_threads = seed % 3};
  std::mt19937 random{seed};
  std::mt19937 same{seed};
  training<Element, Policies...> finished{same, in_place};
  training<Element, Policies...> run{random, in_place};
  const std::uint32_t steps = 2 + seed % 4;
  for (std::uint32_t now = 0; now < steps; ++now) finished.step(same, false), run.step(random, false);
  memory_folder right;
  finished.late.finish();
  (void)checkpoint::save_async(finished.m, right, options).wait();
  memory_folder folder;
  auto pending = checkpoint::save_async(run.m, folder, options);
  const bool waited = run.late.waiting() > 0;
  for (auto left = random() % 8; left-- > 0;) run.act(random);
  (void)pending.wait();
  REQUIRE(folder.names() == right.names());
  for (const auto& name : right.names()) REQUIRE(folder.content_of(name) == right.content_of(name));
  return waited;
}

void save_with_seeds(std::uint32_t seeds)
{
  std::uint32_t waited = 0;
  for (std::uint32_t seed = 0; seed < seeds; ++seed) {
    waited += save_and_go_on<float>(seed) ? 1U : 0U;
    waited += save_and_go_on<cm::bf16>(seed) ? 1U : 0U;
    waited += save_and_go_on<cm::bf16, half_on_device, cm::transfer::planned>(seed) ? 1U : 0U;
  }
  CHECK(waited > seeds);
}

}  // namespace

TEST_CASE("whatever a trainer does behind a save, its files are those of finished updates", "[checkpoint]")
{
  save_with_seeds(support::sanitized ? 20 : 120);
}

TEST_CASE("so they are with two thousand seeds", "[checkpoint][.slow]")
{
  save_with_seeds(2'000);
}

}  // namespace random_saves_behind_updates_test
