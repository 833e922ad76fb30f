// SPDX-License-Identifier: Apache-2.0
#include "mistakes.hpp"

#include <support/catch.hpp>

#include <cstdint>
#include <string>

namespace missing_gradient_test {

using namespace mistakes;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("parameters that may be without a gradient are not named, and the step goes on", "[checks]")
{
  rig<> it;
  it.m.without_gradient(it.weights.slice(0));
  const auto scope = it.m.iteration();
  it.write_gradients(2);
  CHECK_THAT(answer_of([&] { cm::optimizer::step(it.m, it.sgd); }),
             ContainsSubstring("1 of 4 parameters have no gradient: 'wpe' ("));
  it.m.without_gradient(it.weights.slice(1));
  CHECK(cm::optimizer::step(it.m, it.sgd) == cm::optimizer::step_result::updated);
  CHECK(it.m.acquire(it.weights.slice(0), cm::access::read).span()[0] == 1.0F);
  CHECK(it.m.acquire(it.weights.slice(2), cm::access::read).span()[0] != 1.0F);
}

namespace {

/// Four micro-batches of a step, with a gradient of each weight in each of them, but of 'up' in the first `of_up`.
void micro_batches(rig<>& it, std::uint32_t of_up)
{
  auto scope = it.m.iteration("train", 4);
  for (std::uint32_t micro_batch = 0; micro_batch < 4; ++micro_batch) {
    scope.pass(cm::pass::backward, micro_batch);
    for (std::uint32_t index = 0; index < 4; ++index) {
      if (index == 2 && micro_batch >= of_up) continue;
      for (int pins = 0; pins < 2; ++pins) {  // two pins in one micro-batch count once
        auto gradient = it.m.gradient(it.weights.slice(index));
        const float beta = gradient.beta();
        for (float& value : gradient.span()) value = beta == 0 ? 1.0F : value + 1.0F;
      }
    }
  }
}

}  // namespace

TEST_CASE("a gradient that some micro-batches left out is named by the step", "[checks]")
{
  for (const std::uint32_t of_up : {1U, 3U}) {
    rig<> it;
    micro_batches(it, 4);
    CHECK(cm::optimizer::step(it.m, it.sgd) == cm::optimizer::step_result::updated);
    micro_batches(it, of_up);
    CHECK_THAT(answer_of([&] { cm::optimizer::step(it.m, it.sgd); }),
               ContainsSubstring("the gradient of tensor 'up' (value) was opened in " + std::to_string(of_up) +
                                 " of 4 micro-batches"));
    it.m.updates().allow_any_micro_batches(it.weights.slice(2));  // its sum was made elsewhere, for this step
    CHECK(cm::optimizer::step(it.m, it.sgd) == cm::optimizer::step_result::updated);
    micro_batches(it, of_up);
    CHECK(answer_of([&] { cm::optimizer::step(it.m, it.sgd); }) != "");
    it.m.drop_gradients();
    micro_batches(it, of_up);
    it.m.without_gradient(it.weights.slice(2));
    CHECK(cm::optimizer::step(it.m, it.sgd) == cm::optimizer::step_result::updated);
  }
}

TEST_CASE("a gradient that was added up elsewhere is none that micro-batches left out", "[checks]")
{
  rig<> it;
  {
    auto scope = it.m.iteration("train", 4);
    for (std::uint32_t micro_batch = 0; micro_batch < 4; ++micro_batch) scope.pass(cm::pass::backward, micro_batch);
    it.write_gradients(0);  // in the last one
    CHECK(cm::optimizer::step(it.m, it.sgd) == cm::optimizer::step_result::updated);
  }
  it.write_gradients(0);  // outside of an iteration
  CHECK(cm::optimizer::step(it.m, it.sgd) == cm::optimizer::step_result::updated);
}

TEST_CASE("without checks the call is there and does nothing", "[checks]")
{
  cm::backend::host_arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  cm::manager<cm::backend::host_arena> m{memory, {.chunk_bytes = 4_KiB}};
  const auto w = m.add<float>({10}, cm::role::parameter);
  CHECK_NOTHROW(m.without_gradient(w));
  CHECK_NOTHROW(m.verify());
  CHECK_THROWS_AS(m.without_gradient(cm::tensor_handle{}), cm::usage_error);
}

}  // namespace missing_gradient_test
