// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/unit_gradients.hpp>

#include <chunkmem/backend/host_arena.hpp>

#include <support/catch.hpp>

#include <vector>

namespace add_gradient_test {

using namespace chunkmem;
using sharding::add_gradient;

template <class Element>
void check_sums()
{
  backend::host_arena memory{{.device_capacity = bytes{4096}, .host_capacity = bytes{4096}}};
  std::vector<Element> own(1000);
  std::vector<Element> sum(1000);
  std::vector<Element> wanted(1000);
  for (std::size_t index = 0; index < sum.size(); ++index) {
    sum[index] = round_to<Element>(static_cast<float>(index) * 0.37F - 100.0F);
    wanted[index] = round_to<Element>(to_float(sum[index]) + to_float(sum[index]));
  }
  add_gradient(memory, own.data(), sum.data(), own.size(), false, agent::compute);
  add_gradient(memory, own.data(), sum.data(), own.size(), true, agent::compute);
  memory.wait(agent::host, memory.record(agent::compute));
  for (std::size_t index = 0; index < own.size(); ++index) CHECK(to_float(own[index]) == to_float(wanted[index]));
}

TEST_CASE("a first sum overwrites a gradient, a later one adds to it in single precision", "[sharding]")
{
  check_sums<float>();
  check_sums<bf16>();
  check_sums<fp16>();
}

/// Bytes that the host cannot reach.
struct far_away {
  static constexpr bool host_addressable = false;
  int copies = 0;
  void copy(std::byte*, const std::byte*, bytes, agent) { ++copies; }
};

TEST_CASE("where the host cannot reach gradients, the first sum is a copy and another one is refused", "[sharding]")
{
  far_away memory;
  float own[2]{};
  add_gradient(memory, own, own, 2, false, agent::compute);
  CHECK(memory.copies == 1);
  CHECK_THROWS_AS(add_gradient(memory, own, own, 2, true, agent::compute), usage_error);
}

}  // namespace add_gradient_test
