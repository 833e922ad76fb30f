#include <chunkmem/optimizer/adam.hpp>

#include <support/catch.hpp>
#include <support/plain_model.hpp>

#include <cmath>
#include <cstring>
#include <vector>

namespace cm = chunkmem;
using cm::optimizer::adam;

namespace {

constexpr std::size_t count = 300;

struct state {
  std::vector<float> parameter = std::vector<float>(count);
  std::vector<float> momentum = std::vector<float>(count, 0.0F);
  std::vector<float> variance = std::vector<float>(count, 0.0F);
};

std::vector<float> gradient_of(std::uint64_t step)
{
  std::vector<float> gradient(count);
  for (std::size_t at = 0; at < count; ++at) gradient[at] = support::toy::noise(step * 1000 + at);
  return gradient;
}

void update(adam& kernel, state& it, const std::vector<float>& gradient, float rate, std::uint64_t number, std::size_t begin, std::size_t end)
{
  const auto cut = [&](std::vector<float>& all) { return std::span{all}.subspan(begin, end - begin); };
  kernel.update({cut(it.parameter), std::span{gradient}.subspan(begin, end - begin), {cut(it.momentum), cut(it.variance)}}, {rate, number});
}

bool same_bits(const std::vector<float>& left, const std::vector<float>& right)
{
  return std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) == 0;
}

}  // namespace

static_assert(cm::optimizer_kernel<adam>);

TEST_CASE("adam names two lists of fp32", "[optimizer]")
{
  REQUIRE(adam::lists().size() == 2);
  CHECK(adam::lists()[0].name == "adam/momentum");
  CHECK(adam::lists()[1].name == "adam/variance");
  for (const cm::list_spec& spec : adam::lists()) CHECK(spec.type == cm::dtype::float32);
  CHECK(adam{{.beta1 = 0.5F}}.options().beta1 == 0.5F);
}

TEST_CASE("adam follows the paper in double precision", "[optimizer]")
{
  const double beta1 = 0.9F;  // the numbers that the kernel was given, not the decimal ones
  const double beta2 = 0.999F;
  for (const float decay : {0.0F, 0.1F}) {
    adam kernel{{.weight_decay = decay}};
    state it;
    support::toy::fill(it.parameter, 3);
    std::vector<double> parameter(it.parameter.begin(), it.parameter.end());
    std::vector<double> momentum(count, 0.0);
    std::vector<double> variance(count, 0.0);
    for (std::uint64_t step = 1; step <= 50; ++step) {
      const std::vector<float> gradient = gradient_of(step);
      const double rate = 0.01;
      update(kernel, it, gradient, 0.01F, step, 0, count);
      for (std::size_t at = 0; at < count; ++at) {
        const double slope = gradient[at];
        momentum[at] = beta1 * momentum[at] + (1 - beta1) * slope;
        variance[at] = beta2 * variance[at] + (1 - beta2) * slope * slope;
        const double first = momentum[at] / (1 - std::pow(beta1, static_cast<double>(step)));
        const double second = variance[at] / (1 - std::pow(beta2, static_cast<double>(step)));
        parameter[at] -= rate * (first / (std::sqrt(second) + 1e-8) + static_cast<double>(decay) * parameter[at]);
      }
    }
    for (std::size_t at = 0; at < count; ++at) {
      // 50 steps, each with a handful of roundings (2^-24 relative) of values below 1
      CHECK(std::abs(it.parameter[at] - parameter[at]) < 2e-5);
      CHECK(std::abs(it.momentum[at] - momentum[at]) < 1e-6);
      CHECK(std::abs(it.variance[at] - variance[at]) < 1e-6 * (variance[at] + 0.001));
    }
  }
}

TEST_CASE("adam equals its scalar twin bit for bit", "[optimizer]")
{
  adam kernel{{.weight_decay = 0.01F}};
  state it;
  support::toy::fill(it.parameter, 4);
  state twin = it;
  for (std::uint64_t step = 1; step <= 20; ++step) {
    const std::vector<float> gradient = gradient_of(step);
    update(kernel, it, gradient, 0.02F, step, 0, count);
    const auto bias1 = static_cast<float>(1.0 - std::pow(static_cast<double>(0.9F), static_cast<double>(step)));
    const auto bias2 = static_cast<float>(1.0 - std::pow(static_cast<double>(0.999F), static_cast<double>(step)));
    for (std::size_t at = 0; at < count; ++at) {
      const volatile float rest1 = (1.0F - 0.9F) * gradient[at];  // volatile: no compiler may contract across
      const volatile float square = gradient[at] * gradient[at];
      const volatile float rest2 = (1.0F - 0.999F) * square;
      twin.momentum[at] = std::fma(0.9F, twin.momentum[at], rest1);
      twin.variance[at] = std::fma(0.999F, twin.variance[at], rest2);
      const volatile float scaled = std::sqrt(twin.variance[at]) / std::sqrt(bias2);
      const volatile float quotient = twin.momentum[at] / (scaled + 1e-8F);
      const volatile float kept = std::fma(-0.02F, 0.01F, 1.0F) * twin.parameter[at];
      twin.parameter[at] = std::fma(-(0.02F / bias1), quotient, kept);
    }
    REQUIRE(same_bits(it.parameter, twin.parameter));
    REQUIRE(same_bits(it.momentum, twin.momentum));
    REQUIRE(same_bits(it.variance, twin.variance));
  }
}

TEST_CASE("adam gives the same bits however a parameter is cut", "[optimizer]")
{
  adam kernel;
  state whole;
  support::toy::fill(whole.parameter, 5);
  state cut = whole;
  for (std::uint64_t step = 1; step <= 5; ++step) {
    const std::vector<float> gradient = gradient_of(step);
    update(kernel, whole, gradient, 0.01F, step, 0, count);
    for (std::size_t begin = 0, length = 1; begin < count; begin += length, length = length * 2 + 1)
      update(kernel, cut, gradient, 0.01F, step, begin, std::min(count, begin + length));
  }
  CHECK(same_bits(whole.parameter, cut.parameter));
  CHECK(same_bits(whole.variance, cut.variance));
}
