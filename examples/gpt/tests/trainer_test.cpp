// SPDX-License-Identifier: Apache-2.0
#include "trainer.hpp"

#include "either_gradient.hpp"
#include "run.hpp"
#include "sampler.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

namespace trainer_test {

namespace {

using namespace chunkmem::literals;
using chunkmem::dtype;
using gpt::gradient_choice;
using manager = chunkmem::manager<chunkmem::backend::host_arena, gpt::either_gradient>;

constexpr gpt::extents small{.layers = 2, .width = 16, .heads = 2, .context = 12, .batch = 2};

gpt::training_text some_text()
{
  std::string all;
  for (int i = 0; i < 200; ++i) all += "the quick brown fox jumps over the lazy dog " + std::to_string(i) + '\n';
  return {"made here", all};
}

/// The settings that differ from test to test.
struct variant {
  dtype precision = dtype::float32;
  gradient_choice gradient = gradient_choice::separate;
  gpt::extents size = small;
  float first_loss_scale = 65536.0f;
  double sample_ratio = 0;
  bool runs_qkv_again = false;
  gpt::window_choice windows = gpt::window_choice::random;

  [[nodiscard]] gpt::trainer_settings settings() const
  {
    return {.schedule = {.highest = 1e-2f, .steps = 20},
            .seed = 3,
            .precision = precision,
            .clip = 1.0f,
            .scale = {.initial = first_loss_scale},
            .windows = windows,
            .runs_qkv_again = runs_qkv_again,
            .sample_ratio = sample_ratio};
  }
};

/// A small model on a device of a given size.
struct world {
  explicit world(chunkmem::bytes device, const variant& chosen = {})
      : memory{{.device_capacity = device, .host_capacity = 64_MiB}},
        m{memory, {.chunk_bytes = 8_KiB}, gpt::either_gradient{chosen.gradient}},
        net{gpt::declare(m, chosen.size, chosen.precision)},
        trainer{m, net, text, chosen.settings(), workers}
  {
  }
  /// A rehearsal of a step, and of a forward pass on held-out text where that keeps more than a step.
  auto rehearse()
  {
    return m.rehearse([this] {
      (void)trainer.step(0);
      if (trainer.keeps_less()) (void)trainer.evaluate();
    });
  }
  gpt::training_text text = some_text();
  chunkmem::backend::host_arena memory;
  manager m;
  gpt::model net;
  chunkmem::optimizer::thread_pool workers{1};
  gpt::trainer<manager> trainer;
};

chunkmem::bytes smallest_device(const variant& chosen)
{
  world probe{64_MiB, chosen};
  return probe.rehearse().smallest_device;
}

/// The gradient of each parameter that is trained, at step 0; nothing is updated. For 32-bit weights.
std::vector<std::vector<float>> gradients_of(world& w)
{
  std::vector<std::vector<float>> gradients;
  auto iteration = w.m.iteration("gradient", static_cast<std::uint32_t>(w.net.size.micro_batches));
  (void)w.trainer.gradient(0, iteration);
  for (const gpt::parameter& each : w.net.parameters) {
    if (!each.tensor.is_trained) continue;
    const auto pin = w.m.acquire<float>(each.tensor, chunkmem::gradient_list, chunkmem::access::read,
                                        chunkmem::memory_location::device);
    gradients.emplace_back(pin.span().begin(), pin.span().end());
  }
  w.m.drop_gradients();
  return gradients;
}

struct outcome {
  std::vector<std::uint32_t> losses;
  std::uint64_t parameters = 0;
};

outcome train(chunkmem::bytes device, const variant& chosen)
{
  world each{device, chosen};
  (void)each.rehearse();
  gpt::fill(each.m, each.net, 3);
  outcome out;
  for (std::size_t i = 0; i < 6; ++i) out.losses.push_back(std::bit_cast<std::uint32_t>(each.trainer.step(i)));
  out.losses.push_back(std::bit_cast<std::uint32_t>(each.trainer.evaluate()));
  out.parameters = each.trainer.parameter_hash();
  return out;
}

/// The largest difference of two gradients, as a part of the largest number in the tensor.
double difference(const std::vector<float>& left, const std::vector<float>& right)
{
  double largest = 0.0;
  double apart = 0.0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    largest = std::max(largest, static_cast<double>(std::abs(left[i])));
    apart = std::max(apart, static_cast<double>(std::abs(left[i] - right[i])));
  }
  return apart / largest;
}

}  // namespace

/// With ReLU, and with adapters of this rank.
gpt::extents small_with_relu(std::size_t adapter_rank = 0)
{
  gpt::extents made = small;
  made.mlp = gpt::nonlinearity::relu;
  made.adapter_rank = adapter_rank;
  return made;
}

void expect_finite_differences(const gpt::extents& size)
{
  INFO((size.mlp == gpt::nonlinearity::relu ? "ReLU" : "GELU") << ", adapters of rank " << size.adapter_rank);
  world w{64_MiB, {.size = size}};
  gpt::fill(w.m, w.net, 3);
  for (const gpt::parameter& each : w.net.parameters) {  // larger than at the start: slopes that float32 can measure
    const auto pin = w.m.acquire(each.tensor.as<float>(), chunkmem::access::read_write);
    const gpt::counter_random random{11, static_cast<std::uint64_t>(each.tensor.id)};
    for (std::size_t i = 0; i < pin.span().size(); ++i) pin.span()[i] += (random.uniform(i) - 0.5f) * 0.5f;
  }
  const auto gradients = gradients_of(w);
  const auto loss_with = [&](const gpt::parameter& each, std::size_t i, float change) {
    {
      const auto pin = w.m.acquire(each.tensor.as<float>(), chunkmem::access::read_write);
      pin.span()[i] += change;
    }
    auto iteration = w.m.iteration("differences");
    const double loss = static_cast<double>(w.trainer.gradient(0, iteration));
    w.m.drop_gradients();
    return loss;
  };
  // Along the largest number of each tensor's gradient. The loss is near 6 in float32, so a slope from a step of 1e-2
  // carries about 5e-5 of rounding: the tolerance is 4e-4 and 3 %. ReLU has a kink, so its steps are shorter.
  const float step = size.mlp == gpt::nonlinearity::relu ? 2.5e-3f : 1e-2f;
  std::vector<gpt::parameter> trained;
  std::ranges::copy_if(w.net.parameters, std::back_inserter(trained),
                       [](const gpt::parameter& each) { return each.tensor.is_trained; });
  REQUIRE(trained.size() == gradients.size());
  CHECK(trained.size() == (size.adapter_rank > 0 ? 8 * size.layers : w.net.parameters.size()));
  for (std::size_t which = 0; which < gradients.size(); ++which) {
    const std::vector<float>& gradient = gradients[which];
    const auto larger = [](float left, float right) { return std::abs(left) < std::abs(right); };
    const auto largest = std::max_element(gradient.begin(), gradient.end(), larger);
    const auto i = static_cast<std::size_t>(largest - gradient.begin());
    const double above = loss_with(trained[which], i, step);
    const double below = loss_with(trained[which], i, -2 * step);
    (void)loss_with(trained[which], i, step);
    const double slope = (above - below) / (2 * static_cast<double>(step));
    INFO("parameter " << which << ", number " << i << ", gradient " << *largest << ", differences " << slope);
    CHECK(std::abs(slope - static_cast<double>(*largest)) <= 4e-4 + 0.03 * std::abs(slope));
  }
}

TEST_CASE("the gradient of the whole model is that of its finite differences", "[gpt]")
{
  for (const gpt::extents& size : {small, small_with_relu(), small_with_relu(4)}) expect_finite_differences(size);
}

TEST_CASE("losses and parameters have the same bits on any device, in every precision", "[gpt]")
{
  for (const dtype precision : {dtype::float32, dtype::bfloat16, dtype::float16}) {
    const outcome unlimited = train(64_MiB, {.precision = precision});
    for (const gradient_choice gradient : {gradient_choice::separate, gradient_choice::in_place}) {
      if (precision == dtype::float32 && gradient == gradient_choice::in_place) continue;
      const variant chosen{.precision = precision, .gradient = gradient};
      INFO(name_of(precision) << (gradient == gradient_choice::in_place ? " in place" : " separate"));
      const chunkmem::bytes smallest = smallest_device(chosen);
      for (const chunkmem::bytes device : {smallest, smallest + 24_KiB, 64_MiB}) {
        const outcome limited = train(device, chosen);
        CHECK(limited.losses == unlimited.losses);
        CHECK(limited.parameters == unlimited.parameters);
      }
    }
  }
}

TEST_CASE("two batches of two rows have the gradient of one batch of four", "[gpt]")
{
  gpt::extents one = small;
  one.batch = 4;
  gpt::extents two = small;
  two.micro_batches = 2;
  world whole{64_MiB, {.size = one}};
  world parts{64_MiB, {.size = two}};
  gpt::fill(whole.m, whole.net, 3);
  gpt::fill(parts.m, parts.net, 3);
  const auto expected = gradients_of(whole);
  const auto sums = gradients_of(parts);
  // Rows are added in the same order, but the table of tokens gets two parts of each batch.
  CHECK(difference(expected[0], sums[0]) < 1e-5);
  for (std::size_t which = 1; which < expected.size(); ++which) CHECK(sums[which] == expected[which]);
  const float loss = whole.trainer.step(0);
  CHECK(std::abs(parts.trainer.step(0) - loss) <= 1e-6f * loss);
}

TEST_CASE("a product that runs again and rows that are all kept leave the bits of exact training", "[gpt]")
{
  for (const gpt::extents& size : {small, small_with_relu(), small_with_relu(4)}) {
    INFO((size.mlp == gpt::nonlinearity::relu ? "ReLU" : "GELU") << ", adapters of rank " << size.adapter_rank);
    for (const dtype precision : {dtype::float32, dtype::bfloat16}) {
      const outcome exact = train(64_MiB, {.precision = precision, .size = size});
      const variant others[] = {
          {.precision = precision, .size = size, .runs_qkv_again = true},
          {.precision = precision, .size = size, .sample_ratio = 1},
          {.precision = precision, .size = size, .sample_ratio = 1, .runs_qkv_again = true},
          {.precision = precision,
           .gradient = precision == dtype::float32 ? gradient_choice::separate : gradient_choice::in_place,
           .size = size,
           .sample_ratio = 1,
           .runs_qkv_again = true}};
      for (const variant& other : others) {
        const outcome found = train(64_MiB, other);
        CHECK(found.losses == exact.losses);
        CHECK(found.parameters == exact.parameters);
      }
    }
  }
}

TEST_CASE("sampled training has the same bits on any device, and other bits than exact training", "[gpt]")
{
  for (const gpt::extents& size : {small_with_relu(), small_with_relu(4)}) {
    const variant chosen{
        .size = size, .sample_ratio = 0.4, .runs_qkv_again = true, .windows = gpt::window_choice::fixed};
    const outcome unlimited = train(64_MiB, chosen);
    CHECK(unlimited.parameters != train(64_MiB, {.size = size, .windows = gpt::window_choice::fixed}).parameters);
    const chunkmem::bytes smallest = smallest_device(chosen);
    for (const chunkmem::bytes device : {smallest, smallest + 24_KiB}) {
      const outcome limited = train(device, chosen);
      CHECK(limited.losses == unlimited.losses);
      CHECK(limited.parameters == unlimited.parameters);
    }
  }
}

TEST_CASE("adapters change the answers of frozen weights, which stay as they are", "[gpt]")
{
  world w{64_MiB, {.size = small_with_relu(4)}};
  gpt::fill(w.m, w.net, 3);
  const auto frozen = [&] {
    std::vector<float> all;
    for (const gpt::parameter& each : w.net.parameters) {
      if (each.tensor.is_trained) continue;
      const auto pin = w.m.acquire(each.tensor.as<float>(), chunkmem::access::read);
      all.insert(all.end(), pin.span().begin(), pin.span().end());
    }
    return all;
  };
  const std::vector<float> before = frozen();
  const float loss = w.trainer.evaluate();
  CHECK(loss == [] {  // adapters add zero at first
    world whole{64_MiB, {.size = small_with_relu()}};
    gpt::fill(whole.m, whole.net, 3);
    return whole.trainer.evaluate();
  }());
  for (std::size_t i = 0; i < 10; ++i) (void)w.trainer.step(i);
  CHECK(w.trainer.evaluate() < loss - 0.05f);
  CHECK(frozen() == before);
}

TEST_CASE("each fixed window comes once in an epoch, in another order each time", "[gpt]")
{
  const gpt::training_text text = some_text();
  constexpr std::size_t context = 12, rows = 7;
  const gpt::training_windows windows{text, context, 3, gpt::window_choice::fixed, rows};
  REQUIRE(windows.count() == (text.training().size() - 1) / context);
  const std::size_t steps = windows.count() / rows;
  std::vector<std::vector<std::uint64_t>> epochs(3);
  for (std::size_t step = 0; step < 3 * steps; ++step)
    for (std::size_t row = 0; row < rows; ++row) {
      const std::uint64_t number = windows.number(step, row);
      CHECK(windows.tokens(step, row) == text.training().data() + number * context);
      epochs[step / steps].push_back(number);
    }
  CHECK(epochs[0] != epochs[1]);
  CHECK(!std::ranges::is_sorted(epochs[0]));
  for (std::vector<std::uint64_t>& each : epochs) {
    std::ranges::sort(each);
    CHECK(std::ranges::adjacent_find(each) == each.end());
    CHECK(each.back() < windows.count());
  }
  CHECK_THROWS_WITH((gpt::training_windows{text, 4000, 3, gpt::window_choice::fixed, rows}),
                    Catch::Matchers::ContainsSubstring("fewer than the 7 rows of a step"));
}

TEST_CASE("steps that overflow fp16 change nothing until the loss scale has come down", "[gpt]")
{
  for (const gradient_choice gradient : {gradient_choice::separate, gradient_choice::in_place}) {
    world w{64_MiB, {.precision = dtype::float16, .gradient = gradient, .first_loss_scale = 0x1p24f}};
    (void)w.m.rehearse([&] { (void)w.trainer.step(0); });
    gpt::fill(w.m, w.net, 3);
    const std::uint64_t before = w.trainer.parameter_hash();
    const float loss = w.trainer.step(0);
    REQUIRE(w.trainer.skipped() == 1);
    CHECK(w.trainer.loss_scale() == 0x1p23f);
    CHECK(w.trainer.parameter_hash() == before);
    CHECK(w.trainer.step(0) == loss);
    for (std::size_t i = 0; i < 24; ++i) (void)w.trainer.step(i % 20);
    CHECK(w.trainer.skipped() >= 2);
    CHECK(w.trainer.skipped() < 12);
    CHECK(w.trainer.evaluate() < loss - 1.0f);
  }
}

TEST_CASE("the held-out loss falls in every precision, and to nearly the same", "[gpt]")
{
  std::vector<float> after;
  for (const dtype precision : {dtype::float32, dtype::bfloat16, dtype::float16}) {
    world w{64_MiB, {.precision = precision}};
    gpt::fill(w.m, w.net, 3);
    const float before = w.trainer.evaluate();
    for (std::size_t i = 0; i < 20; ++i) (void)w.trainer.step(i);
    after.push_back(w.trainer.evaluate());
    CHECK(after.back() < before - 1.0f);
    CHECK(std::abs(after.back() - after.front()) < 0.02f);
  }
}

TEST_CASE("ranks divide the room of early updates as they divide the states", "[gpt]")
{
  gpt::options chosen;
  chosen.size = {.layers = 4, .width = 256, .heads = 4, .context = 32, .batch = 1};
  chosen.when = gpt::update_time::early;
  const gpt::training_text text = some_text();
  chunkmem::optimizer::thread_pool workers{1};
  gpt::training_setup setup{chosen, text, workers, 64_KiB};
  setup.plan.steps.emplace_back();  // a step of any plan
  const auto alone = static_cast<double>(setup.host_leases().count());
  setup.owners = 4;
  CHECK(setup.settings().owners == 4);
  CHECK(static_cast<double>(setup.host_leases().count()) == Catch::Approx(alone / 4).margin(4096));
  CHECK(alone == Catch::Approx(6.0 * static_cast<double>(chosen.size.parameters())).margin(4096));
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

}  // namespace trainer_test
