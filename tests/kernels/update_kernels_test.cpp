// SPDX-License-Identifier: Apache-2.0
#include "stored_parameter.hpp"

#include <support/catch.hpp>
#include <support/sanitized.hpp>

namespace update_kernels_test {

using namespace kernels;

namespace {

/// The same bytes after each step.
void all_equal_the_host(std::size_t elements, std::size_t distance = 0)
{
  for_each_kernel([&](const char* name, const auto& kernel, bool masters) {
    for (const parameter_case& what : parameter_cases(masters)) {
      INFO(name << (masters ? ", masters, " : ", no masters, ") << name_of(what));
      update_on_both(
          kernel, what, elements, distance, [](const auto&... of) { update_by_kernel(of...); },
          [&](const stored_parameter& host, const stored_parameter& device, std::uint64_t step) {
            INFO("step " << step << ", " << elements << " elements, " << distance << " B from a multiple of 16");
            REQUIRE(host == device);
          });
    }
  });
}

}  // namespace

TEST_CASE("updates by kernels have the bits of the host's, for every kernel, storage and type", "[kernels]")
{
  all_equal_the_host(support::sanitized ? 2'011 : 8'011);
}

TEST_CASE("updates by kernels have the bits of the host's for every rest and every alignment", "[kernels]")
{
  for (const std::size_t elements : {1U, 7U, 8U, 9U, 15U, 16U, 17U, 127U, 128U, 129U, 255U, 1'000U})
    all_equal_the_host(elements);
  for (const std::size_t distance : {4U, 8U, 12U}) all_equal_the_host(150, distance);
}

TEST_CASE("updates by kernels have the bits of the host's for every four hostile numbers", "[kernels]")
{
  using support::hostile_bits;
  using support::hostile_count;
  constexpr std::size_t pairs = hostile_count * hostile_count;
  const opt::adam kernel{{.weight_decay = 0.1F}};
  cm::serial alone;
  std::vector<float> numbers[2][4];
  for (std::size_t part = 0; part < hostile_count; ++part) {  // 27 parts of 27^3 elements
    opt::parameter_bytes all[2];
    for (std::size_t which = 0; which < 2; ++which) {
      for (auto& each : numbers[which]) each.resize(pairs * hostile_count);
      for (std::size_t index = 0; index < pairs * hostile_count; ++index) {
        const std::size_t digits[] = {index % hostile_count, index / hostile_count % hostile_count, index / pairs,
                                      part};
        for (std::size_t list = 0; list < 4; ++list)
          std::memcpy(&numbers[which][list][index], &hostile_bits[digits[list]], 4);
      }
      const auto bytes = [&](std::size_t list) { return reinterpret_cast<std::byte*>(numbers[which][list].data()); };
      all[which].value = bytes(0);
      all[which].gradient = bytes(1);
      all[which].lists[0] = {bytes(2)};
      all[which].lists[1] = {bytes(3)};
      all[which].list_count = 2;
      all[which].elements = pairs * hostile_count;
    }
    opt::update_parameter(kernel, all[0], {1.0F}, {0.01F, 3}, 1, alone);
    update_by_kernel(kernel, all[1], {1.0F}, {0.01F, 3}, 1, false);
    for (std::size_t list = 0; list < 4; ++list) REQUIRE(support::same_bits(numbers[0][list], numbers[1][list]));
  }
}

TEST_CASE("a million hostile numbers updated by kernels have the bits of the host's", "[kernels][.slow]")
{
  all_equal_the_host(1'000'003);
}

}  // namespace update_kernels_test
