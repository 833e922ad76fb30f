// SPDX-License-Identifier: Apache-2.0
#include "budget.hpp"
#include "training.hpp"

#include <support/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace out_of_core_network_test {

namespace {

using namespace out_of_core;
using Catch::Matchers::ContainsSubstring;

/// A network on a device with room for everything, and a batch that never changes.
struct session {
  static constexpr kernels::index batch = 3;

  session()
  {
    net.weights().fill();
    const auto pin = m.acquire(net.pictures(), chunkmem::access::write);
    std::copy_n(drawn.training.numbers.begin(), pin.size(), pin.data());
    net.labels().labels = drawn.training.labels.data();
  }

  /// The loss of step 7. A reader sees the gradients before the end of the iteration.
  template <class Read>
  double loss(const Read& read_gradients)
  {
    auto iteration = net.chain().iteration();
    net.chain().run(iteration, {.step = 7});
    read_gradients();
    m.drop_gradients();
    return net.labels().loss;
  }

  picture_set drawn = drawn_pictures();
  chunkmem::backend::host_arena memory{
      {.device_capacity = chunkmem::bytes{8U << 20U}, .host_capacity = chunkmem::bytes{8U << 20U}}};
  manager m{memory, {.chunk_bytes = chunkmem::bytes{1U << 16U}}};
  network net{m, batch, chunkmem::bytes{1U << 16U}, chunkmem::bytes{8U << 20U}, planner_choice::recompute_all};
};

}  // namespace

TEST_CASE("gradients of all weights are those of finite differences of the loss", "[out_of_core]")
{
  session run;
  std::vector<std::vector<float>> gradients;
  (void)run.loss([&] {
    for (const tensor& weight : run.net.weights().all()) {
      const auto pin = run.m.acquire<float>(weight, chunkmem::gradient_list, chunkmem::access::read,
                                            chunkmem::memory_location::host);
      gradients.emplace_back(pin.span().begin(), pin.span().end());
    }
  });
  const auto change = [&](const tensor& weight, std::size_t at, float by) {
    const auto pin = run.m.acquire(weight, chunkmem::access::read_write);
    pin.data()[at] += by;
  };
  for (std::size_t which = 0; which < gradients.size(); ++which) {
    const tensor& weight = run.net.weights().all()[which];
    const auto largest = std::ranges::max_element(gradients[which], {}, [](float each) { return std::abs(each); });
    const auto at = static_cast<std::size_t>(largest - gradients[which].begin());
    const float step = 1e-3F;
    change(weight, at, step);
    const double above = run.loss([] {});
    change(weight, at, -2 * step);
    const double below = run.loss([] {});
    change(weight, at, step);
    INFO("weight " << which);
    CHECK(static_cast<double>(*largest) ==
          Catch::Approx((above - below) / (2.0 * static_cast<double>(step))).epsilon(0.05).margin(1e-5));
  }
}

TEST_CASE("a device without room is refused with the bytes that it needs", "[out_of_core]")
{
  const picture_set pictures = drawn_pictures();
  options chosen{.batch = 8};
  const memory_budget fitting = budget_for(chosen, pictures);
  CHECK(fitting.activations >= 4 * fitting.limited.for_activations);
  chosen.device = fitting.beside;
  CHECK_THROWS_WITH(budget_for(chosen, pictures), ContainsSubstring("weights and gradients take"));
  chosen.device = fitting.beside + fitting.limited.chunk;
  CHECK_THROWS_WITH(budget_for(chosen, pictures), ContainsSubstring("no plan of activations fits"));
  chosen.device.reset();
  chosen.planner = planner_choice::keep_all;
  CHECK_THROWS_WITH(budget_for(chosen, pictures), ContainsSubstring("no plan of activations fits"));
}

}  // namespace out_of_core_network_test
