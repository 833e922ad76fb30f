// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/pipeline_timeline.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/pipeline/zero_bubble.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace support {

/// A row of tables 5 and 9 of zero bubble pipelines (Qi et al., 2023, arXiv 2401.10241): a GPT on eight stages, times
/// measured there [ms], and the bubble rates that follow. Sequences have 1,024 tokens.
struct zero_bubble_row {
  double heads = 0;
  double width = 0;
  std::uint32_t micro_batches = 0;
  chunkmem::pipeline::pass_seconds times{};
  std::uint32_t parts = 0;  // of a stage, of the interleaved schedule: one layer each
  double one_f_one_b = 0;
  double interleaved = 0;
  double h1 = 0;
  double h2 = 0;
  double limit_1 = 0;  // their heuristic, with the limits of one and two times d micro-batches: ZB-1p and ZB-2p
  double limit_2 = 0;
};

inline constexpr std::uint32_t zero_bubble_stages = 8;

inline std::vector<zero_bubble_row> zero_bubble_table()
{
  return {
      {24, 2304, 24, {18.522, 18.086, 9.337, 0.601}, 3, 0.2431, 0.1055, 0.1585, 0.1083, 0.1585, 0.0433},
      {24, 2304, 32, {18.513, 18.086, 9.331, 0.626}, 3, 0.1985, 0.0818, 0.1242, 0.0837, 0.1242, 0.0039},
      {24, 2304, 64, {18.546, 18.097, 9.321, 0.762}, 3, 0.1240, 0.0443, 0.0674, 0.0444, 0.0674, 0.0026},
      {32, 4096, 24, {29.718, 29.444, 19.927, 0.527}, 4, 0.2347, 0.0808, 0.1323, 0.0698, 0.1323, 0.0029},
      {32, 4096, 32, {29.802, 29.428, 19.530, 0.577}, 4, 0.1898, 0.0628, 0.1045, 0.0559, 0.1045, 0.0022},
      {32, 4096, 64, {29.935, 29.621, 19.388, 0.535}, 4, 0.1091, 0.0320, 0.0554, 0.0294, 0.0554, 0.0010},
  };
}

/// A simulated rate, and the printed one. @see zero_bubble_table
struct zero_bubble_rate {
  std::string name;
  double found = 0;
  double printed = 0;
  bool may_be_less = false;  // the search may find a better order than the paper, not a worse one

  /// Equal to the four printed decimals.
  [[nodiscard]] bool is_right() const
  {
    const double rounded = std::round(found * 1e4) / 1e4;
    return may_be_less ? rounded < printed + 1e-9 : std::abs(rounded - printed) < 1e-9;
  }
};

template <class Generator>
double bubble_rate_of(const Generator& generator, const zero_bubble_row& row)
{
  using namespace chunkmem::pipeline;
  const schedule plan = make_schedule(
      generator,
      {.stages = zero_bubble_stages, .micro_batches = row.micro_batches, .batches = 1, .seconds = row.times});
  const pipeline_costs costs = uniform_costs(plan, row.times);
  return pipeline_timeline{plan, costs}.run().bubble_rate();
}

/// The printed rates of the interleaved schedule count d transfers fewer than an event simulation. The paper does not
/// explain its count, so this closed form stands for the rows.
inline double interleaved_rate_of(const zero_bubble_row& row)
{
  const double p = zero_bubble_stages;
  const double v = row.parts;
  const double busy = row.micro_batches * row.times.all();
  const double whole = busy + (p - 1) * row.times.all() / v + (2 * p * v - p - 2) * row.times.transfer;
  return 1 - busy / whole;
}

inline std::vector<zero_bubble_rate> zero_bubble_rates(const zero_bubble_row& row)
{
  using namespace chunkmem::pipeline;
  const double saved = 34 * row.width + 5 * row.heads * 1024;
  const double kept = 32 * row.width / saved;
  return {
      {"1F1B", bubble_rate_of(one_f_one_b{}, row), row.one_f_one_b, false},
      {"interleaved, closed form", interleaved_rate_of(row), row.interleaved, false},
      {"ZB-H1", bubble_rate_of(zb_h1{}, row), row.h1, false},
      {"ZB-H2", bubble_rate_of(zb_h2{}, row), row.h2, false},
      {"ZB-1p", bubble_rate_of(zero_bubble{.limit = 1, .kept = kept}, row), row.limit_1, true},
      {"ZB-2p", bubble_rate_of(zero_bubble{.limit = 2, .kept = kept}, row), row.limit_2, true},
  };
}

/// The bubble rate of the best order that the released heuristic of zero bubble pipelines finds, with three
/// micro-batches for each stage and a limit on the saved activations of a stage.
struct zero_bubble_heuristic_row {
  std::uint32_t stages = 0;
  double limit = 0;  // in saved activations of the first stage of 1F1B
  double rate = 0;   // to six decimals
};

inline constexpr double zero_bubble_heuristic_heads = 48;
inline constexpr double zero_bubble_heuristic_width = 6144;
inline constexpr chunkmem::pipeline::pass_seconds zero_bubble_heuristic_times{10.419, 10.207, 7.715, 0.408};

inline std::vector<zero_bubble_heuristic_row> zero_bubble_heuristic()
{
  return {{4, 1, 0.113700},  {4, 2, 0.005300},  {8, 1, 0.130183},  {8, 2, 0.006178},  {12, 1, 0.135542},
          {12, 2, 0.006470}, {16, 1, 0.138197}, {16, 2, 0.006616}, {20, 1, 0.139782}, {20, 2, 0.006002},
          {24, 1, 0.140835}, {24, 2, 0.005007}, {28, 1, 0.141586}, {28, 2, 0.004295}, {32, 1, 0.142148},
          {32, 2, 0.003760}, {40, 1, 0.142934}, {40, 2, 0.004874}, {48, 1, 0.143457}, {48, 2, 0.005238}};
}

/// The rate of `zero_bubble` in a row. @param trials   of its search
inline double searched_rate_of(const zero_bubble_heuristic_row& row, std::uint32_t trials)
{
  using namespace chunkmem::pipeline;
  const double saved = 34 * zero_bubble_heuristic_width + 5 * zero_bubble_heuristic_heads * 1024;
  const schedule plan =
      make_schedule(zero_bubble{.limit = row.limit, .kept = 32 * zero_bubble_heuristic_width / saved, .trials = trials},
                    {.stages = row.stages, .micro_batches = 3 * row.stages, .seconds = zero_bubble_heuristic_times});
  const pipeline_costs costs = uniform_costs(plan, zero_bubble_heuristic_times);
  return pipeline_timeline{plan, costs}.run().bubble_rate();
}

}  // namespace support
