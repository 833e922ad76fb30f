// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <support/convnet_chain.hpp>
#include <support/oracles/random_chain.hpp>

#include <cstdint>
#include <string_view>

namespace support {

/// A convolutional network and the pictures of a batch, whose activations exceed a device of 16 GB.
struct picture_training {
  std::string_view network;
  std::uint64_t pictures = 0;
};

inline constexpr picture_training picture_trainings[] = {
    {"ResNet-50", 256}, {"ResNet-50", 384},  {"ResNet-200", 64},          {"ResNet-200", 128},
    {"VGG16", 384},     {"WRN-28-10", 2048}, {"PreAct-ResNet-1001", 256}, {"U-Net-512-same", 24}};

/// A device of 2017: 60 % of its peak, and most of its memory's bandwidth.
inline constexpr pictures::picture_device device_of_2017{.flops_per_second = 0.6 * 15.7e12, .bytes_per_second = 700e9};

/// Two gigabytes are left for other data; a link of 12 GB/s each way.
inline chain_problem problem_of(const picture_training& training)
{
  return {.chain = pictures::chain_of(pictures::convnet_of(training.network), device_of_2017, training.pictures),
          .budget = {.device = chunkmem::bytes{14'000'000'000},
                     .to_host_bytes_per_second = 12e9,
                     .to_device_bytes_per_second = 12e9}};
}

}  // namespace support
