// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/factors_body.hpp>

#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/loop_launcher.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <support/catch.hpp>

#include <cmath>
#include <cstring>

namespace factors_body_test {

namespace cm = chunkmem;
using namespace chunkmem::optimizer;

namespace {

template <class Factors, class Options>
Factors factors_at(const Options& options, std::uint64_t number, float rate)
{
  device_step_state state;
  state.number = number - 1;
  Factors found{options, step_settings{}};
  loop_launcher::run(factors_body<Options, Factors>{options, &state, &rate, &found});
  return found;
}

}  // namespace

TEST_CASE("factors worked out from the state are those of the host, for step numbers up to a million", "[optimizer]")
{
  using factors = adam::device_factors;
  static_assert(element_body<factors_body<adam_options, factors>>);
  for (const adam_options& options :
       {adam_options{}, adam_options{.beta1 = 0.0F, .beta2 = 0.99F, .weight_decay = 0.3F, .decoupled = false},
        adam_options{.beta1 = 0.95F, .epsilon = 1e-30F, .weight_decay = 0.01F, .rate_factor = 0.1F}})
    for (std::uint64_t number = 1; number <= 1'000'000; number += 1 + number / 97) {
      const factors found = factors_at<factors>(options, number, 1e-3F);
      const factors expected{options, step_settings{1e-3F, number}};
      REQUIRE(std::memcmp(&found, &expected, sizeof found) == 0);
      const double first = 1.0 - std::pow(static_cast<double>(options.beta1), static_cast<double>(number));
      const double second = 1.0 - std::pow(static_cast<double>(options.beta2), static_cast<double>(number));
      REQUIRE(static_cast<double>(found.rate) ==
              Catch::Approx(static_cast<double>(1e-3F * options.rate_factor) / first).epsilon(1e-6));
      REQUIRE(static_cast<double>(found.scale) == Catch::Approx(1.0 / std::sqrt(second)).epsilon(1e-6));
    }
}

TEST_CASE("factors of sgd are those of the host", "[optimizer]")
{
  using factors = sgd::device_factors;
  const sgd_options options{.momentum = 0.8F, .weight_decay = 0.1F, .dampening = 0.2F, .rate_factor = 3.0F};
  const factors found = factors_at<factors>(options, 5, 0.25F);
  CHECK(found.rate == 0.75F);
  CHECK(found.rest == 1.0F - 0.2F);
  CHECK((found.momentum == 0.8F && found.decay == 0.1F));
}

}  // namespace factors_body_test
