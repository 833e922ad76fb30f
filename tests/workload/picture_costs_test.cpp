// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/error.hpp>
#include <chunkmem/workload/named_picture_networks.hpp>
#include <chunkmem/workload/picture_costs.hpp>
#include <chunkmem/workload/picture_operator.hpp>

#include <support/catch.hpp>

#include <limits>
#include <string_view>

namespace picture_costs_test {

using namespace chunkmem;
using namespace chunkmem::workload;
using enum picture_operator_kind;

namespace {

/// A device of 2017: 60 % of its peak, and most of its memory's bandwidth.
constexpr picture_device v100{.flops_per_second = 0.6 * 15.7e12, .bytes_per_second = 700e9};

}  // namespace

TEST_CASE("forward times and kept bytes of the networks equal those of an independent model", "[workload]")
{
  struct row {
    std::string_view name;
    double milliseconds;
    double precision;
    double megabytes;
    double gigabytes_per_second;  // kept, for each second of the forward pass
  };
  for (const row& expected : {
           row{"ResNet-50", 1.30, 0.005, 111.8, 85.7},
           row{"ResNet-200", 4.52, 0.005, 336.6, 74.5},
           row{"VGG16", 3.61, 0.005, 60.3, 16.7},
           row{"WRN-28-10", 1.21, 0.005, 24.2, 20.0},
           row{"PreAct-ResNet-1001", 1.13, 0.005, 204.6, 180.8},
           row{"U-Net-572-valid", 35.4, 0.05, 574.9, 16.3},
           row{"U-Net-512-same", 45.0, 0.05, 671.1, 14.9},
       }) {
    const picture_network network = picture_network_of(expected.name);
    const double seconds = forward_seconds(network, v100);
    const double kept = static_cast<double>(picture_element_bytes * network.saved_elements());
    CAPTURE(expected.name);
    CHECK(seconds * 1e3 == Catch::Approx(expected.milliseconds).margin(expected.precision).epsilon(0));
    CHECK(kept / 1e6 == Catch::Approx(expected.megabytes).margin(0.05).epsilon(0));
    CHECK(kept / seconds / 1e9 == Catch::Approx(expected.gigabytes_per_second).margin(0.05).epsilon(0));
  }
}

TEST_CASE("an operator takes the time of its FLOP, and of its output's way to memory and back", "[workload]")
{
  constexpr picture_device round{.flops_per_second = 1000, .bytes_per_second = 100};
  picture_operator layer;
  layer.forward_flops = 500;
  layer.output_elements = 50;
  CHECK(forward_seconds(layer, round) == Catch::Approx(0.5 + 4));
  CHECK(backward_seconds(layer, round) == Catch::Approx(9));
  layer.forward_flops = 0;
  layer.kind = batch_norm;
  CHECK(forward_seconds(layer, round) == Catch::Approx(0.2 + 4));
  layer.input_elements = 300;
  for (const picture_operator_kind kind : {max_pool, average_pool}) {
    layer.kind = kind;
    CHECK(forward_seconds(layer, round) == Catch::Approx(0.3 + 4));
  }
  for (const picture_operator_kind kind : {relu, addition, concatenation}) {
    layer.kind = kind;
    CHECK(forward_seconds(layer, round) == Catch::Approx(0.05 + 4));
  }
  for (const picture_operator_kind kind : {convolution, transposed_convolution, linear}) {
    layer.kind = kind;
    CHECK(forward_seconds(layer, round) == Catch::Approx(4));
  }
}

TEST_CASE("a device has finite rates above 0", "[workload]")
{
  const picture_operator layer;
  CHECK_NOTHROW(v100.check());
  for (const double wrong :
       {0.0, -1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_THROWS_AS(forward_seconds(layer, {.flops_per_second = wrong, .bytes_per_second = 1}), config_error);
    CHECK_THROWS_AS(backward_seconds(layer, {.flops_per_second = 1, .bytes_per_second = wrong}), config_error);
  }
  CHECK_THROWS_WITH(picture_device{}.check(), Catch::Matchers::ContainsSubstring("flops_per_second = 0"));
}

}  // namespace picture_costs_test
