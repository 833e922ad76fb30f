// SPDX-License-Identifier: Apache-2.0

#include "checkpointed_runs.hpp"

#include <support/figures.hpp>
#include <support/small_network.hpp>

#include <cstdint>
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
  if (support::sanitized || half_moved == 0 || all_ways.runs == 0) return;
  support::write_figures(
      "test_activation.checkpointed_ways", "build/bench/bin/test_activation.checkpointed",
      {{"activation.new_ways_identical_percent", 100.0 * all_ways.identical / all_ways.runs, "%", "==", 100},
       {"activation.half_size_moved", half_moved, "ratio", "<=", 0.55}});
}

/// A device of this many bytes. 0: the smallest that a rehearsal proves.
template <class Program>
std::vector<float> train(std::string_view planner, cm::bytes device, std::uint32_t micro_batches)
{
  const auto smallest = [&] {
    arena memory{{.device_capacity = plenty, .host_capacity = plenty}};
    manager_type m{memory, {.chunk_bytes = frame}};
    Program it{m, any_planner::named(planner)};
    it.micro_batches = micro_batches;
    return m.rehearse([&] { it.step(0); }, cm::rehearse_on::scratch).smallest_device;
  };
  const bool is_tight = device == 0_B;
  if (is_tight) device = smallest();
  arena memory{{.device_capacity = device, .host_capacity = plenty}};
  manager_type m{memory, {.chunk_bytes = frame}};
  Program it{m, any_planner::named(planner)};
  it.micro_batches = micro_batches;
  if (is_tight) m.rehearse([&] { it.step(0); }, cm::rehearse_on::scratch);  // budgets may be larger than the device
  it.losses.clear();
  it.fill();
  for (std::uint64_t now = 0; now < many; ++now) it.step(now);
  CHECK(m.report().peak[cm::tier::device] <= device);
  return it.collect();
}

/// @param half   each planner has one and two micro-batches in turn, on another device each; else both on both
template <class Program>
void has_the_bits_of_keep_all(bool half = true)
{
  const std::vector<float> kept[] = {train<Program>("keep_all", plenty, 1), train<Program>("keep_all", plenty, 2)};
  REQUIRE(kept[0].front() != kept[0][1]);
  REQUIRE(kept[0] != kept[1]);
  std::uint32_t number = 0;
  for (const std::string_view planner : any_planner::names) {
    ++number;
    if (support::sanitized && number % 3 != 1) continue;
    for (const cm::bytes device : {0_B, 24_KiB})
      for (const std::uint32_t micro_batches : {1U, 2U}) {
        if (half && (number + micro_batches + (device == 0_B ? 1 : 0)) % 2 == 0) continue;
        INFO(Program::name << ", planner " << planner << ", device " << device.count() << ", micro-batches "
                           << micro_batches);
        const bool is_identical = train<Program>(planner, device, micro_batches) == kept[micro_batches - 1];
        CHECK(is_identical);
        ++all_ways.runs;
        all_ways.identical += is_identical ? 1 : 0;
      }
  }
  write_ways();
}

/// Blocks without weights, each of which adds its number to its input. A backward run compares what it saved.
struct plain_chain {
  using network_type = act::checkpointed<manager_type, act::swap_all>;
  static constexpr std::uint32_t blocks = 8;
  static constexpr std::uint64_t rows = 64, width = 32;

  manager_type& m;
  network_type network;
  std::vector<cm::tensor<std::uint8_t>> saved{}, out{};
  bool is_right = true;

  explicit plain_chain(manager_type& owner)
      : m{owner},
        network{owner,
                {.budget = {.device = 128_KiB, .to_host_bytes_per_second = 1e6, .to_device_bytes_per_second = 1e6},
                 .rows = rows}}
  {
    for (std::uint32_t index = 0; index < blocks; ++index) {
      auto& block = network.add(std::to_string(index));
      saved.push_back(block.saves<std::uint8_t>({rows, width}, act::sized::by_rows));
      out.push_back(block.outputs<std::uint8_t>({rows, width}, act::sized::by_rows));
      block.forward_seconds = block.backward_seconds = 1e-3;
      block.forward = [this, index](auto& run) {
        const auto h = run.save(saved[index]);
        const auto y = run.save(out[index]);
        std::vector<std::uint8_t> x(run.rows() * width, 0);
        if (index > 0) std::ranges::copy(run.input(out[index - 1]).span(), x.begin());
        for (std::size_t i = 0; i < h.span().size(); ++i) {
          h.span()[i] = static_cast<std::uint8_t>(x[i] + i);
          y.span()[i] = static_cast<std::uint8_t>(h.span()[i] + 1);
        }
      };
      block.backward = [this, index](auto& run) {
        const auto h = run.restore(saved[index]);
        if (m.rehearsing()) return;
        is_right = is_right && h.span().size() == run.rows() * width;
        for (std::size_t i = 0; i < h.span().size(); ++i)
          is_right = is_right && h.span()[i] == static_cast<std::uint8_t>((index + 1) * i + index);
      };
    }
  }
  void step(std::uint64_t active)
  {
    auto iteration = network.iteration();
    network.run(iteration, {.rows = active});
  }
};

/// Bytes that four steps move, with these numbers of rows, on the smallest device.
std::uint64_t moved_with(std::uint64_t rows)
{
  cm::bytes device = plenty;
  for (const bool measures : {false, true}) {
    arena memory{{.device_capacity = device, .host_capacity = plenty}};
    manager_type m{memory, {.chunk_bytes = frame}};
    plain_chain it{m};
    device = m.rehearse([&] { it.step(rows); }, cm::rehearse_on::scratch).smallest_device;
    if (!measures) continue;
    for (int now = 0; now < 4; ++now) it.step(plain_chain::rows);
    const cm::report before = m.report();
    for (int now = 0; now < 4; ++now) it.step(rows);
    CHECK(it.is_right);
    CHECK(m.report().divergences == 0);
    CHECK(m.report().replans == before.replans);
    const cm::report copies = m.report().copies_since(before);
    return (copies.loaded + copies.written_back).count();
  }
  return 0;
}

}  // namespace

TEST_CASE("a batch of half the rows moves half the bytes, by the record and the plan of whole batches", "[activation]")
{
  const std::uint64_t whole = moved_with(plain_chain::rows);
  const std::uint64_t half = moved_with(plain_chain::rows / 2);
  half_moved = static_cast<double>(half) / static_cast<double>(whole);
  INFO("bytes " << half << " of " << whole);
  CHECK(whole > 4 * 2 * 6 * 2'048);
  CHECK(half_moved <= 0.55);
  write_ways();
}

TEST_CASE("a U-Net has the bits of one that keeps all activations, under every plan", "[activation]")
{
  has_the_bits_of_keep_all<small::convnet<manager_type, any_planner>>();
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

TEST_CASE("each way has the bits of keep_all under every plan, on both devices and with both accumulations",
          "[activation][.slow]")
{
  has_the_bits_of_keep_all<small::convnet<manager_type, any_planner>>(false);
  has_the_bits_of_keep_all<small::contrastive_network<manager_type, any_planner>>(false);
  has_the_bits_of_keep_all<small::adversarial_networks<manager_type, any_planner>>(false);
  has_the_bits_of_keep_all<small::normalised_network<manager_type, any_planner>>(false);
}

}  // namespace checkpointed_ways_test
