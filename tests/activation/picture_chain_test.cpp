// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/picture_chain.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/workload/named_picture_networks.hpp>
#include <chunkmem/workload/picture_costs.hpp>

#include <support/catch.hpp>
#include <support/picture_problems.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace picture_chain_test {

using namespace chunkmem;
using namespace chunkmem::activation;
using support::device_of_2017;

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
    CHECK(chain_of(workload::picture_network_of(name), device_of_2017, 1).size() == blocks);
  }
}

TEST_CASE("a chain has the bytes and the times of its network", "[activation]")
{
  for (const std::string_view name : workload::picture_network_names)
    for (const std::uint64_t pictures : {1U, 7U, 256U}) {
      CAPTURE(name, pictures);
      const workload::picture_network network = workload::picture_network_of(name);
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
  for (const std::string_view name : workload::picture_network_names) {
    const layer_chain chain = chain_of(workload::picture_network_of(name), device_of_2017, 3);
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
  const layer_chain chain = chain_of(workload::resnet(50), device_of_2017, 1);
  const char* const names[] = {"operators up to 0", "operators up to 2", "operators up to 3"};
  const bytes outputs[] = {802'816 * 4_B, 802'816 * 4_B, 200'704 * 4_B};
  for (std::uint32_t block = 0; block < 3; ++block) {
    CHECK(chain.blocks[block].name == names[block]);
    CHECK(chain.blocks[block].saved == outputs[block]);
    CHECK(chain.blocks[block].boundary == outputs[block]);
  }
  // Both parts of a concatenation are kept; the convolution that reads them follows in one block.
  const workload::picture_network network = workload::unet(512, true);
  REQUIRE(network.operators[25].kind == workload::picture_operator_kind::concatenation);
  for (const chain_block& block : chain_of(network, device_of_2017, 1).blocks)
    CHECK(block.name != "operators up to 25");
}

TEST_CASE("a U-Net carries its skips in each block from the one that made them on", "[activation]")
{
  const workload::picture_network network = workload::unet(512, true);
  const layer_chain chain = chain_of(network, device_of_2017, 2);
  bytes skips;
  for (const workload::picture_operator& layer : network.operators)
    if (layer.is_carried) skips += layer.output_elements * 4_B * 2;
  CHECK(chain.blocks.front().carried == 0_B);
  CHECK(chain.blocks.back().carried == skips);
  for (std::uint32_t block = 1; block < chain.size(); ++block)
    CHECK(chain.blocks[block].carried >= chain.blocks[block - 1].carried);
  for (const chain_block& block : chain_of(workload::vgg16(), device_of_2017, 2).blocks) CHECK(block.carried == 0_B);
}

TEST_CASE("devices without a rate and batches without an end have no chain", "[activation]")
{
  CHECK_THROWS_AS(chain_of(workload::vgg16(), {0, 1}, 1), config_error);
  CHECK_THROWS_AS(chain_of(workload::vgg16(), {1, 0}, 1), config_error);
  CHECK_THROWS_AS(chain_of(workload::vgg16(), device_of_2017, UINT64_MAX / 4), size_overflow);
  CHECK(chain_of({}, device_of_2017, 1).size() == 0);
  CHECK_THROWS_AS(chain_of({}, device_of_2017, 1).check(), config_error);
}

}  // namespace picture_chain_test
