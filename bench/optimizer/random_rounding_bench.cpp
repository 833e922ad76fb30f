// SPDX-License-Identifier: Apache-2.0
// How much longer does an update by Adam take with stochastic rounding than with rounding to nearest?
//
// bf16 without a master: only the value has 16 bits, or all three lists. Elements in the cache and in memory, with the
// best instruction set and with AVX2. Both ways take turns on the same bytes, in one thread, by processor time. A ratio
// is the median of such pairs. The figures are the worst of the four.
#include "../median.hpp"
#include "../transfer/planning_figures.hpp"

#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/element_pass.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

namespace cm = chunkmem;
using namespace cm::optimizer;
using cm::dtype;

namespace {

using bench::median;

constexpr std::size_t pairs = 31;
constexpr std::uint64_t of_a_time = std::uint64_t{1} << 23U;  // updates of elements in one measurement

struct list_count {
  const char* figure;
  const char* text;
  double bound;
  dtype moments;
};
constexpr list_count list_counts[] = {
    {"stochastic_over_nearest_time", "one list of 16 bits", 1.35, dtype::float32},
    {"stochastic_over_nearest_time_three_lists", "three lists of 16 bits", 1.6, dtype::bfloat16}};

/// The loop for these types, but rounded to nearest.
template <dtype Moments>
struct nearest_types : detail::usual_types<dtype::bfloat16, false, Moments> {
  static constexpr bool rounds_value(const auto&) noexcept { return false; }
  static constexpr bool rounds_state(const auto&, std::size_t) noexcept { return false; }
  [[nodiscard]] static bool are(const detail::update_streams<2>& all) noexcept
  {
    return all.states[0].type == Moments && !all.value.is_stochastic;
  }
};

/// One parameter of bf16 without a master, with numbers as in a training.
struct parameter {
  parameter(std::size_t count, dtype type) : elements{count}, moments{type}
  {
    const auto fill = [&](std::vector<std::byte>& bytes, dtype as, float number) {
      bytes.resize(count * cm::size_of(as));
      for (std::size_t index = 0; index < count; ++index)
        if (as == dtype::float32)
          reinterpret_cast<float*>(bytes.data())[index] = number;
        else
          reinterpret_cast<cm::bf16*>(bytes.data())[index] = cm::bf16{number};
    };
    fill(value, dtype::bfloat16, 1.0F);
    fill(gradient, dtype::bfloat16, 0.01F);
    fill(momentum, type, 0.01F);
    fill(variance, type, 0.0001F);
  }

  /// Processor seconds of `of_a_time` updates.
  double time(instruction_set set, bool is_random)
  {
    const adam kernel{{}, {.moments = moments, .masters = false, .instructions = set}};
    const cm::float_environment standard;
    const std::clock_t begin = std::clock();
    for (std::uint64_t done = 0; done < of_a_time; done += elements)
      kernel.with_lane_work({1e-6F, ++step}, [&]<class Work>(const Work& work) {
        detail::update_streams<2> all;
        all.gradient = gradient.data();
        all.source = value.data();
        all.gradient_type = all.source_type = dtype::bfloat16;
        all.value = {value.data(), dtype::bfloat16, is_random};
        const bool are_random = is_random && cm::is_16_bit(moments);
        all.states[0] = {momentum.data(), moments, are_random};
        all.states[1] = {variance.data(), moments, are_random};
        all.key = {7, step, 1, 0};
        const gradient_transform how;
        detail::element_pass<Work> pass{work, all, &how};
        if (is_random)
          pass.run(set, elements);
        else
          pass.template run_as<nearest_types<dtype::float32>, nearest_types<dtype::bfloat16>>(set, elements);
      });
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  }

  std::size_t elements;
  dtype moments;
  std::uint64_t step = 0;
  std::vector<std::byte> value, gradient, momentum, variance;
};

double ratio_of(std::size_t elements, instruction_set set, const list_count& lists)
{
  parameter it{elements, lists.moments};
  std::vector<double> nearest, random, ratios;
  for (std::size_t pair = 0; pair <= pairs; ++pair) {
    const bool random_first = pair % 2 == 0;
    double seconds[2];
    for (const bool is_random : {random_first, !random_first}) seconds[is_random ? 1 : 0] = it.time(set, is_random);
    if (pair == 0) continue;  // the first pair warms up
    nearest.push_back(seconds[0] * 1e9 / static_cast<double>(of_a_time));
    random.push_back(seconds[1] * 1e9 / static_cast<double>(of_a_time));
    ratios.push_back(seconds[1] / seconds[0]);
  }
  const double ratio = median(ratios);
  std::printf("%-23s %8zu elements, %-12s to nearest %6.3f ns, random %6.3f ns, ratio %5.3f\n", lists.text, elements,
              name_of(set).data(), median(nearest), median(random), ratio);
  return ratio;
}

}  // namespace

int main()
{
  std::vector<transfer_bench::figure> figures;
  for (const list_count& lists : list_counts) {
    double worst = 0;
    for (const std::size_t elements : {std::size_t{1} << 13U, std::size_t{1} << 22U})
      for (const instruction_set set : {best_instruction_set(), instruction_set::avx2})
        if (is_available(set)) worst = std::max(worst, ratio_of(elements, set, lists));
    std::printf("%s: %.3f, bound %.2f\n", lists.text, worst, lists.bound);
    figures.push_back({std::string{"optimizer."} + lists.figure, worst, "ratio", "<=", lists.bound});
  }
  return transfer_bench::write_figures("random_rounding_bench", figures);
}
