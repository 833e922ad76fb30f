// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>
#include <support/convnet_chain.hpp>
#include <support/convnet_problems.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace named_convnets_test {

using namespace chunkmem;
using namespace support::pictures;
using enum picture_operator_kind;

namespace {

using kinds = std::vector<picture_operator_kind>;

kinds kinds_of(const convnet& network, std::size_t first, std::size_t count)
{
  kinds found;
  for (std::size_t index = first; index < first + count; ++index) found.push_back(network.operators.at(index).kind);
  return found;
}

/// Whether each operator ends a block, as a row of digits.
std::string ends_of(const convnet& network, std::size_t first, std::size_t count)
{
  std::string digits;
  for (std::size_t index = first; index < first + count; ++index)
    digits += network.operators.at(index).ends_block ? '1' : '0';
  return digits;
}

}  // namespace

TEST_CASE("the networks of the literature have the sizes that their surveys report", "[activation]")
{
  struct row {
    std::string_view name;
    std::size_t operators;
    std::uint64_t parameters;
    std::uint64_t flops;
    std::uint64_t outputs;
    std::uint64_t saved;
    std::size_t blocks;
  };
  for (const row& expected : {
           row{"ResNet-50", 174, 25'557'032, 8'178'368'512, 37'559'784, 27'951'080, 38},
           row{"ResNet-200", 674, 64'673'832, 30'014'963'712, 114'830'824, 84'148'200, 138},
           row{"PreAct-ResNet-1001", 3338, 10'327'706, 2'981'991'424, 70'291'722, 51'142'922, 344},
           row{"VGG16", 36, 138'357'544, 30'940'528'640, 28'642'792, 15'087'080, 36},
           row{"WRN-28-10", 92, 36'479'194, 10'486'657'536, 8'364'682, 6'054'538, 23},
           row{"U-Net-572-valid", 49, 31'030'658, 300'856'848'896, 297'113'632, 143'732'256, 45},
           row{"U-Net-512-same", 49, 31'030'658, 384'768'671'744, 358'612'992, 167'772'160, 45},
       }) {
    const convnet network = convnet_of(expected.name);
    CAPTURE(expected.name);
    CHECK(network.name == expected.name);
    CHECK(network.operators.size() == expected.operators);
    CHECK(network.parameters() == expected.parameters);
    CHECK(network.forward_flops() == expected.flops);
    CHECK(network.output_elements() == expected.outputs);
    CHECK(network.saved_elements() == expected.saved);
    CHECK(network.blocks() == expected.blocks);
  }
}

TEST_CASE("every operator of every network keeps the rules of its kind", "[activation]")
{
  for (const std::string_view name : convnet_names) {
    const convnet network = convnet_of(name);
    int breaches = 0;
    for (const picture_operator& layer : network.operators) {
      const bool is_first = &layer == network.operators.data();
      const bool keeps_nothing = layer.kind == relu || layer.kind == concatenation;
      const bool keeps_size = layer.kind == relu || layer.kind == batch_norm || layer.kind == concatenation;
      breaches += layer.output_elements == 0 ? 1 : 0;
      breaches += layer.saved_elements != (keeps_nothing ? 0 : layer.output_elements) ? 1 : 0;
      breaches += keeps_size && layer.input_elements != layer.output_elements ? 1 : 0;
      breaches += layer.kind == addition && layer.input_elements != 2 * layer.output_elements ? 1 : 0;
      breaches += (layer.forward_flops != 0) != is_product(layer.kind) ? 1 : 0;
      breaches += layer.backward_flops != layer.forward_flops * (is_first ? 1 : 2) ? 1 : 0;
      breaches += (layer.parameters != 0) != (is_product(layer.kind) || layer.kind == batch_norm) ? 1 : 0;
    }
    CAPTURE(name);
    CHECK(breaches == 0);
    CHECK(network.operators.front().kind == convolution);
    CHECK(network.operators.back().ends_block);
    CHECK(network.backward_flops() == 2 * network.forward_flops() - network.operators.front().forward_flops);
  }
}

TEST_CASE("a ResNet can be cut before its first block, around each addition's ReLU, and after its last block",
          "[activation]")
{
  const convnet network = resnet(50);
  CHECK(kinds_of(network, 0, 4) == kinds{convolution, batch_norm, relu, max_pool});
  CHECK(ends_of(network, 0, 4) == "1111");
  const kinds projecting{convolution, batch_norm, relu,        convolution, batch_norm, relu,
                         convolution, batch_norm, convolution, batch_norm,  addition,   relu};
  const kinds identity{convolution, batch_norm,  relu,       convolution, batch_norm,
                       relu,        convolution, batch_norm, addition,    relu};
  CHECK(kinds_of(network, 4, 12) == projecting);
  CHECK(ends_of(network, 4, 12) == "000000000011");
  CHECK(kinds_of(network, 16, 10) == identity);
  CHECK(ends_of(network, 16, 10) == "0000000011");
  CHECK(kinds_of(network, 172, 2) == kinds{average_pool, linear});
  CHECK(ends_of(network, 172, 2) == "11");
}

TEST_CASE("a pre-activated network can be cut after each addition, and before a projecting block's branches",
          "[activation]")
{
  const convnet deep = preactivation_resnet(1001);
  CHECK(kinds_of(deep, 0, 12) == kinds{convolution, batch_norm, relu, convolution, batch_norm, relu, convolution,
                                       batch_norm, relu, convolution, convolution, addition});
  CHECK(ends_of(deep, 0, 12) == "111000000001");
  CHECK(ends_of(deep, 12, 10) == "0000000001");
  CHECK(ends_of(deep, 3334, 4) == "1111");
  const convnet wide = wide_resnet(28, 10);
  CHECK(kinds_of(wide, 1, 8) ==
        kinds{batch_norm, relu, convolution, batch_norm, relu, convolution, convolution, addition});
  CHECK(ends_of(wide, 0, 23) == "11100000100000010000001");
}

TEST_CASE("a U-Net carries its skips over every cut", "[activation]")
{
  for (const bool pads : {false, true}) {
    const convnet network = unet(pads ? 512 : 572, pads);
    CHECK(ends_of(network, 0, 20) == "11101111011110111101");
    CHECK(ends_of(network, 20, 29) == std::string(29, '1'));
    CHECK(network.operators[43].kind == concatenation);
    std::uint64_t carried = 0;
    for (const picture_operator& layer : network.operators) {
      CHECK(layer.carried_elements == carried);
      if (layer.is_carried) carried += layer.output_elements;
    }
    CHECK(network.operators.back().carried_elements == carried);
  }
}

TEST_CASE("a chain without branches reads what it made", "[activation]")
{
  const convnet network = vgg16();
  CHECK(network.operators.front().input_elements == 3 * 224 * 224);
  for (std::size_t index = 1; index < network.operators.size(); ++index)
    CHECK(network.operators[index].input_elements == network.operators[index - 1].output_elements);
  CHECK(network.operators.back().output_elements == 1000);
}

TEST_CASE("figures of single operators by hand", "[activation]")
{
  const picture_operator stem = resnet(50).operators.front();
  CHECK(stem ==
        picture_operator{convolution, 236'027'904, 236'027'904, 9408, 150'528, 802'816, 802'816, 0, false, true});
  const picture_operator pool = resnet(50).operators[3];
  CHECK(pool == picture_operator{max_pool, 0, 0, 0, 802'816, 200'704, 200'704, 0, false, true});
  const convnet network = unet(572, false);
  CHECK(network.operators[0].output_elements == 64 * 570 * 570);
  // From 28 x 28 of 1,024 channels to 56 x 56 of 512; then joined with as much of a skip of 64 x 64.
  CHECK(network.operators[24] == picture_operator{transposed_convolution, 3'288'334'336, 6'576'668'672, 2'097'664,
                                                  802'816, 1'605'632, 1'605'632, 37'515'264, false, true});
  CHECK(network.operators[25] ==
        picture_operator{concatenation, 0, 0, 0, 3'211'264, 3'211'264, 0, 37'515'264, false, true});
  CHECK(network.operators.back().output_elements == 2 * 388 * 388);
  CHECK(unet(512, true).operators.back().output_elements == 2 * 512 * 512);
}

TEST_CASE("builders take all depths and sides of their families", "[activation]")
{
  CHECK(resnet(101).parameters() == 44'549'160);
  CHECK(resnet(152).parameters() == 60'192'808);
  CHECK(resnet(152).name == "ResNet-152");
  CHECK(preactivation_resnet(164).operators.size() == 18 * 3 * 10 + 8);
  CHECK(wide_resnet(10, 1).operators.size() == 3 * 7 + 8);
  CHECK(unet(188, false).operators.back().output_elements == 2 * 4 * 4);
  CHECK(unet(16, true).operators.back().output_elements == 2 * 16 * 16);
  CHECK(unet(16, true).operators[21].output_elements == 1024);  // one pixel at the bottom
}

TEST_CASE("no network has an impossible depth, width, side or name", "[activation]")
{
  using Catch::Matchers::ContainsSubstring;
  for (const std::uint64_t depth : {0U, 18U, 51U}) CHECK_THROWS_AS(resnet(depth), config_error);
  for (const std::uint64_t depth : {2U, 10U, 1000U, 65'540U})
    CHECK_THROWS_AS(preactivation_resnet(depth), config_error);
  for (const std::uint64_t depth : {4U, 27U, 65'542U}) CHECK_THROWS_AS(wide_resnet(depth, 10), config_error);
  CHECK_THROWS_AS(wide_resnet(28, 0), config_error);
  CHECK_THROWS_AS(wide_resnet(28, std::uint64_t{1} << 62), size_overflow);
  for (const std::uint64_t side : {0U, 12U, 172U, 512U, 570U}) CHECK_THROWS_AS(unet(side, false), config_error);
  for (const std::uint64_t side : {0U, 8U, 572U}) CHECK_THROWS_AS(unet(side, true), config_error);
  CHECK_THROWS_AS(unet(UINT64_MAX - 15, true), size_overflow);
  CHECK_THROWS_AS(unet(UINT64_MAX - 3, false), size_overflow);
  CHECK_THROWS_WITH(resnet(34), ContainsSubstring("has 34 layers") && ContainsSubstring("50, 101, 152 or 200"));
  CHECK_THROWS_WITH(unet(500, true), ContainsSubstring("500 pixels") && ContainsSubstring("multiple of 16"));
  CHECK_THROWS_AS(convnet_of("ResNet-49"), config_error);
  for (const std::string_view known : convnet_names)
    CHECK_THROWS_WITH(convnet_of(""), ContainsSubstring(" " + std::string{known}));
}

TEST_CASE("each kind of operator has a name of its own", "[activation]")
{
  std::set<std::string_view> names;
  for (std::size_t kind = 0; kind < picture_operator_kind_count; ++kind)
    names.insert(name_of(static_cast<picture_operator_kind>(kind)));
  CHECK(names.size() == picture_operator_kind_count);
  STATIC_REQUIRE(static_cast<std::size_t>(linear) + 1 == picture_operator_kind_count);
  STATIC_REQUIRE(name_of(transposed_convolution) == "transposed_convolution");
  STATIC_REQUIRE(name_of(addition) == "addition");
  STATIC_REQUIRE(name_of(linear) == "linear");
}

}  // namespace named_convnets_test

namespace picture_costs_test {

using namespace chunkmem;
using namespace support::pictures;
using enum picture_operator_kind;

namespace {

/// A device of 2017: 60 % of its peak, and most of its memory's bandwidth.
constexpr picture_device v100{.flops_per_second = 0.6 * 15.7e12, .bytes_per_second = 700e9};

}  // namespace

TEST_CASE("forward times and kept bytes of the networks equal those of an independent model", "[activation]")
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
    const convnet network = convnet_of(expected.name);
    const double seconds = forward_seconds(network, v100);
    const double kept = static_cast<double>(picture_element_bytes * network.saved_elements());
    CAPTURE(expected.name);
    CHECK(seconds * 1e3 == Catch::Approx(expected.milliseconds).margin(expected.precision).epsilon(0));
    CHECK(kept / 1e6 == Catch::Approx(expected.megabytes).margin(0.05).epsilon(0));
    CHECK(kept / seconds / 1e9 == Catch::Approx(expected.gigabytes_per_second).margin(0.05).epsilon(0));
  }
}

TEST_CASE("an operator takes the time of its FLOP, and of its output's way to memory and back", "[activation]")
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

TEST_CASE("a device has finite rates above 0", "[activation]")
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

namespace convnet_chain_test {

using namespace chunkmem;
using namespace chunkmem::activation;
using support::device_of_2017;
using namespace support::pictures;

TEST_CASE("each network of the literature becomes a chain of the blocks between its cuts", "[activation]")
{
  struct row {
    std::string_view name;
    std::uint32_t blocks;
  };
  for (const auto& [name, blocks] :
       {row{"ResNet-50", 21}, row{"ResNet-200", 71}, row{"PreAct-ResNet-1001", 340}, row{"VGG16", 21},
        row{"WRN-28-10", 19}, row{"U-Net-572-valid", 23}, row{"U-Net-512-same", 23}}) {
    CAPTURE(name);
    CHECK(chain_of(support::pictures::convnet_of(name), device_of_2017, 1).size() == blocks);
  }
}

TEST_CASE("a chain has the bytes and the times of its network", "[activation]")
{
  for (const std::string_view name : support::pictures::convnet_names)
    for (const std::uint64_t pictures : {1U, 7U, 256U}) {
      CAPTURE(name, pictures);
      const support::pictures::convnet network = support::pictures::convnet_of(name);
      const layer_chain chain = chain_of(network, device_of_2017, pictures);
      CHECK_NOTHROW(chain.check());
      // Tensors that are carried to the end are saved by their blocks, and counted there no more.
      CHECK(chain.saved() + chain.blocks.back().carried == network.saved_elements() * 4_B * pictures);
      CHECK(chain.input == network.operators.front().input_elements * 4_B * pictures);
      const double forward = static_cast<double>(pictures) * forward_seconds(network, device_of_2017);
      CHECK(chain.forward_seconds() == Catch::Approx(forward).epsilon(1e-12));
      CHECK(chain.backward_seconds() == Catch::Approx(2 * forward).epsilon(1e-12));
      CHECK(chain.blocks.back().boundary == network.operators.back().output_elements * 4_B * pictures);
    }
}

TEST_CASE("no block has an output that exceeds its saved bytes, and a run that saves nothing holds the whole block",
          "[activation]")
{
  for (const std::string_view name : support::pictures::convnet_names) {
    const layer_chain chain = chain_of(support::pictures::convnet_of(name), device_of_2017, 3);
    int breaches = 0;
    for (const chain_block& block : chain.blocks) {
      breaches += block.boundary > block.saved || block.boundary == 0_B ? 1 : 0;
      breaches += block.passing_working != block.inner() ? 1 : 0;
      breaches += block.forward_seconds <= 0 || block.name.empty() ? 1 : 0;
    }
    CAPTURE(name);
    CHECK(breaches == 0);
  }
}

TEST_CASE("a network is cut neither before a ReLU nor after a concatenation", "[activation]")
{
  // A convolution; its norm with the ReLU; a maximum.
  const layer_chain chain = chain_of(support::pictures::resnet(50), device_of_2017, 1);
  const char* const names[] = {"operators up to 0", "operators up to 2", "operators up to 3"};
  const bytes outputs[] = {802'816 * 4_B, 802'816 * 4_B, 200'704 * 4_B};
  for (std::uint32_t block = 0; block < 3; ++block) {
    CHECK(chain.blocks[block].name == names[block]);
    CHECK(chain.blocks[block].saved == outputs[block]);
    CHECK(chain.blocks[block].boundary == outputs[block]);
  }
  // Both parts of a concatenation are kept; the convolution that reads them follows in one block.
  const support::pictures::convnet network = support::pictures::unet(512, true);
  REQUIRE(network.operators[25].kind == support::pictures::picture_operator_kind::concatenation);
  for (const chain_block& block : chain_of(network, device_of_2017, 1).blocks)
    CHECK(block.name != "operators up to 25");
}

TEST_CASE("a U-Net carries its skips in each block from the one that made them on", "[activation]")
{
  const support::pictures::convnet network = support::pictures::unet(512, true);
  const layer_chain chain = chain_of(network, device_of_2017, 2);
  bytes skips;
  for (const support::pictures::picture_operator& layer : network.operators)
    if (layer.is_carried) skips += layer.output_elements * 4_B * 2;
  CHECK(chain.blocks.front().carried == 0_B);
  CHECK(chain.blocks.back().carried == skips);
  for (std::uint32_t block = 1; block < chain.size(); ++block)
    CHECK(chain.blocks[block].carried >= chain.blocks[block - 1].carried);
  for (const chain_block& block : chain_of(support::pictures::vgg16(), device_of_2017, 2).blocks)
    CHECK(block.carried == 0_B);
}

TEST_CASE("devices without a rate and batches without an end have no chain", "[activation]")
{
  CHECK_THROWS_AS(chain_of(support::pictures::vgg16(), {0, 1}, 1), config_error);
  CHECK_THROWS_AS(chain_of(support::pictures::vgg16(), {1, 0}, 1), config_error);
  CHECK_THROWS_AS(chain_of(support::pictures::vgg16(), device_of_2017, UINT64_MAX / 4), size_overflow);
  CHECK(chain_of({}, device_of_2017, 1).size() == 0);
  CHECK_THROWS_AS(chain_of({}, device_of_2017, 1).check(), config_error);
}

}  // namespace convnet_chain_test
