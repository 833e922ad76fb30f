#include <chunkmem/optimizer/sgd.hpp>

#include <support/catch.hpp>
#include <support/plain_model.hpp>

#include <cmath>
#include <vector>

namespace cm = chunkmem;
using cm::optimizer::sgd;

static_assert(cm::optimizer_kernel<sgd>);

TEST_CASE("sgd names one list of fp32", "[optimizer]")
{
  REQUIRE(sgd::lists().size() == 1);
  CHECK(sgd::lists()[0].name == "sgd/momentum");
  CHECK(sgd{{.momentum = 0.5F}}.options().momentum == 0.5F);
}

TEST_CASE("sgd follows the plain sum of gradients in double precision, and its scalar twin in bits", "[optimizer]")
{
  constexpr std::size_t count = 200;
  for (const float decay : {0.0F, 0.05F}) {
    sgd kernel{{.momentum = 0.8F, .weight_decay = decay}};
    std::vector<float> parameter(count);
    std::vector<float> velocity(count, 0.0F);
    std::vector<float> gradient(count);
    support::toy::fill(parameter, 6);
    std::vector<double> exact(parameter.begin(), parameter.end());
    std::vector<double> exact_velocity(count, 0.0);
    std::vector<float> twin = parameter;
    std::vector<float> twin_velocity = velocity;
    for (std::uint64_t step = 1; step <= 40; ++step) {
      for (std::size_t at = 0; at < count; ++at) gradient[at] = support::toy::noise(step * 500 + at);
      kernel.update({parameter, gradient, {velocity}}, {0.01F, step});
      for (std::size_t at = 0; at < count; ++at) {
        exact_velocity[at] = static_cast<double>(0.8F) * exact_velocity[at] + gradient[at] + static_cast<double>(decay) * exact[at];
        exact[at] -= static_cast<double>(0.01F) * exact_velocity[at];
        twin_velocity[at] = std::fma(0.8F, twin_velocity[at], std::fma(decay, twin[at], gradient[at]));
        twin[at] = std::fma(-0.01F, twin_velocity[at], twin[at]);
      }
      REQUIRE(parameter == twin);
      REQUIRE(velocity == twin_velocity);
    }
    for (std::size_t at = 0; at < count; ++at) CHECK(std::abs(parameter[at] - exact[at]) < 5e-6);
  }
}
