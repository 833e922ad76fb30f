// SPDX-License-Identifier: Apache-2.0

#include "checkpointed_runs.hpp"

#include <support/small_network.hpp>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace checkpointed_ways_test {

/// The ways in which a trainer may use `checkpointed`: evaluation, skipped backward runs, several forwards before one
/// backward, skip connections, batches of other sizes. Training has the bits of one that keeps all activations.

using namespace checkpointed_runs;
namespace small = support::small;
using manager_type = manager<arena>;

namespace {

constexpr std::uint64_t many = 7;

struct ways_tally {
  std::uint32_t runs = 0;
  std::uint32_t identical = 0;
};
ways_tally all_ways;
double half_moved = 0;

void write_ways()
{
  const char* const folder = std::getenv("CHUNKMEM_FIGURES");
  if (folder == nullptr || support::sanitized || half_moved == 0 || all_ways.runs == 0) return;
  std::ofstream{std::string{folder} + "/test_activation.checkpointed_ways.json"}
      << R"([{"name": "activation.new_ways_identical_percent", "value": )" << 100.0 * all_ways.identical / all_ways.runs
      << R"(, "unit": "%", "relation": "==", "bound": 100, "command": "build/bench/bin/test_activation.checkpointed"},)"
      << R"({"name": "activation.half_size_moved", "value": )" << half_moved
      << R"(, "unit": "", "relation": "<=", "bound": 0.55, "command": "build/bench/bin/test_activation.checkpointed"}])"
      << '\n';
}

/// A device of so many bytes, of which 0 means: the smallest that a rehearsal proves.
template <class Program>
std::vector<float> train(std::string_view planner, cm::bytes device)
{
  const auto smallest = [&] {
    arena memory{{.device_capacity = plenty, .host_capacity = plenty}};
    manager_type m{memory, {.chunk_bytes = frame}};
    Program it{m, any_planner::named(planner)};
    return m.rehearse([&] { it.step(0); }, cm::rehearse_on::scratch).smallest_device;
  };
  if (device == 0_B) device = smallest();
  arena memory{{.device_capacity = device, .host_capacity = plenty}};
  manager_type m{memory, {.chunk_bytes = frame}};
  Program it{m, any_planner::named(planner)};
  m.rehearse([&] { it.step(0); }, cm::rehearse_on::scratch);
  it.losses.clear();
  it.fill();
  for (std::uint64_t now = 0; now < many; ++now) it.step(now);
  CHECK(m.report().peak[cm::tier::device] <= device);
  return it.collect();
}

template <class Program>
void has_the_bits_of_keep_all()
{
  const std::vector<float> kept = train<Program>("keep_all", plenty);
  REQUIRE(kept.front() != kept[1]);
  std::uint32_t number = 0;
  for (const std::string_view planner : any_planner::names) {
    if (support::sanitized && number++ % 3 != 0) continue;
    for (const cm::bytes device : {0_B, 24_KiB}) {
      INFO(Program::name << ", planner " << planner << ", device " << device.count());
      const std::vector<float> found = train<Program>(planner, device);
      CHECK(found == kept);
      ++all_ways.runs;
      all_ways.identical += found == kept ? 1 : 0;
    }
  }
  write_ways();
}

}  // namespace

TEST_CASE("a U-Net has the bits of one that keeps all activations, under every plan", "[activation]")
{
  has_the_bits_of_keep_all<small::picture_network<manager_type, any_planner>>();
}

TEST_CASE("a contrastive network has the bits of one that keeps all activations, under every plan", "[activation]")
{
  has_the_bits_of_keep_all<small::contrastive_network<manager_type, any_planner>>();
}

TEST_CASE("two adversarial networks have the bits of those that keep all activations, under every plan", "[activation]")
{
  has_the_bits_of_keep_all<small::adversarial_networks<manager_type, any_planner>>();
}

TEST_CASE("a network with batch normalisation has the bits of one that keeps all activations, under every plan",
          "[activation]")
{
  has_the_bits_of_keep_all<small::normalised_network<manager_type, any_planner>>();
}

}  // namespace checkpointed_ways_test
