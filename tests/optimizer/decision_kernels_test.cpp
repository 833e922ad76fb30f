// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/decision_kernels.hpp>

#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/sgd.hpp>

#include <support/catch.hpp>
#include <support/hostile.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

namespace measure_kernel_test {

namespace cm = chunkmem;
using cm::gradient_measure;
using namespace chunkmem::optimizer;

namespace {

bool same(const gradient_measure& left, const gradient_measure& right)
{
  return std::memcmp(&left.squares, &right.squares, 8) == 0 &&
         std::memcmp(&left.magnitudes, &right.magnitudes, 8) == 0 &&
         std::memcmp(&left.largest, &right.largest, 4) == 0 && left.finite == right.finite;
}

template <class Element>
Element number_of(float value)
{
  return cm::round_to<Element>(value);
}

/// Blocks as `measure_one_block` takes them; `spoilt` is a place for a NaN.
template <class Element>
void equals_the_host(std::size_t elements, std::uint64_t key, bool is_hostile)
{
  std::vector<Element> numbers(elements);
  for (std::size_t index = 0; index < elements; ++index) {
    const float value =
        is_hostile && index % 4099 == 4098 ? support::hostile(11 * (key + index)) : support::tame(key + index);
    numbers[index] = number_of<Element>(index % 5 == 0 ? value * 1e-6F : value);
  }
  const std::uint64_t blocks = blocks_of(elements);
  std::vector<gradient_measure> sums(blocks + 2, gradient_measure{-1.0, -1.0, -1.0F, true});
  block_range range{99, 99};
  loop_launcher::run(measure_kernel{reinterpret_cast<const std::byte*>(numbers.data()), cm::dtype_of<Element>, elements,
                                    sums.data(), &range, 1});
  for (std::uint64_t block = 0; block < blocks; ++block) {
    const std::size_t begin = block * cm::measure_block;
    const std::span<const Element> all{numbers};
    REQUIRE(same(sums[1 + block],
                 cm::measure_one_block(all.subspan(begin, std::min(cm::measure_block, elements - begin)))));
  }
  CHECK(sums[0].squares == -1.0);
  CHECK(sums[blocks + 1].squares == -1.0);
  if (blocks > 0) CHECK((range.first == 1 && range.count == blocks));
}

}  // namespace

TEST_CASE("blocks measured in lanes have the bits of the host's", "[optimizer]")
{
  for (const std::size_t elements :
       {0U, 1U, 31U, 32U, 33U, 193U, 210U, 225U, 255U, 256U, 257U, 4095U, 4096U, 4097U, 8'400U, 20'011U})
    for (const bool is_hostile : {false, true}) {
      INFO(elements << " elements" << (is_hostile ? ", hostile" : ""));
      equals_the_host<float>(elements, 3, is_hostile);
      equals_the_host<cm::bf16>(elements, 5, is_hostile);
      equals_the_host<cm::fp16>(elements, 7, is_hostile);
    }
}

TEST_CASE("blocks of hostile numbers have the bits of the host's", "[optimizer]")
{
  for (std::uint64_t key = 0; key < 64; ++key) equals_the_host<float>(4'098 + 4'099 * (key % 3), 1000 * key, true);
}

TEST_CASE("numbers are counted in blocks of 4,096", "[optimizer]")
{
  CHECK(blocks_of(0) == 0);
  CHECK(blocks_of(1) == 1);
  CHECK(blocks_of(4096) == 1);
  CHECK(blocks_of(4097) == 2);
}

}  // namespace measure_kernel_test

namespace clear_ranges_kernel_test {

using namespace chunkmem::optimizer;

TEST_CASE("ranges are cleared, as many as there are tensors", "[optimizer]")
{
  block_range ranges[3] = {{1, 2}, {3, 4}, {5, 6}};
  loop_launcher::run(clear_ranges_kernel{ranges, 2});
  CHECK((ranges[0].count == 0 && ranges[1].count == 0 && ranges[2].count == 6));
}

}  // namespace clear_ranges_kernel_test

namespace sum_blocks_kernel_test {

namespace cm = chunkmem;
using cm::gradient_measure;
using namespace chunkmem::optimizer;

TEST_CASE("sums of blocks add up to the measures of the host, tensor by tensor", "[optimizer]")
{
  const std::size_t sizes[] = {1, 5000, 0, 4096, 100'003};
  std::vector<gradient_measure> sums(40);
  std::vector<block_range> ranges(std::size(sizes));
  std::vector<gradient_measure> found(std::size(sizes), gradient_measure{-1.0, -1.0, -1.0F, false});
  std::vector<std::vector<float>> tensors;
  std::uint64_t first = 3;
  for (std::size_t index = 0; index < std::size(sizes); ++index) {
    tensors.push_back(support::tame_numbers(sizes[index], index));
    if (index == 3) tensors.back()[17] = -INFINITY;
    loop_launcher::run(measure_kernel{reinterpret_cast<const std::byte*>(tensors[index].data()), cm::dtype::float32,
                                      sizes[index], sums.data(), &ranges[index], first});
    first += blocks_of(sizes[index]);
  }
  loop_launcher::run(sum_blocks_kernel{sums.data(), ranges.data(), found.data(), std::size(sizes)});
  for (std::size_t index = 0; index < std::size(sizes); ++index) {
    const gradient_measure expected = cm::measure(std::span<const float>{tensors[index]});
    CHECK(std::memcmp(&found[index].squares, &expected.squares, 8) == 0);
    CHECK(std::memcmp(&found[index].magnitudes, &expected.magnitudes, 8) == 0);
    CHECK(found[index].largest == expected.largest);
    CHECK(found[index].finite == expected.finite);
  }
}

}  // namespace sum_blocks_kernel_test

namespace decide_kernel_test {

using chunkmem::gradient_measure;
using namespace chunkmem::optimizer;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

/// The decision by the formulas of docs/numerics.md.
void check_decision(const std::vector<gradient_measure>& measures, const clipping& clip, bool may_skip, float scale)
{
  device_step_state state;
  state.loss.scale = scale;
  loop_launcher::run(decide_kernel{measures.data(), measures.size(), clip, may_skip, &state});
  gradient_measure all;
  for (const gradient_measure& each : measures) all.add(each);
  double norm = clip.order == norm_order::l1 ? all.magnitudes : std::sqrt(all.squares);
  if (clip.order == norm_order::linf) norm = static_cast<double>(all.largest);
  norm /= static_cast<double>(scale);
  if (std::isnan(all.largest)) norm = std::numeric_limits<double>::quiet_NaN();
  double factor = 1.0;
  if (clip.norm > 0.0F) factor = static_cast<double>(clip.norm) / (norm + 1e-6);
  if (factor > 1.0) factor = 1.0;  // NaN stays
  const auto single = static_cast<float>(static_cast<double>(static_cast<float>(factor)) / static_cast<double>(scale));
  CHECK(std::memcmp(&state.norm, &norm, 8) == 0);
  CHECK((state.factor == single || (std::isnan(single) && std::isnan(state.factor))));
  const bool stays_finite = all.finite && std::isfinite(all.largest * single);
  CHECK(state.decision == (may_skip && !stays_finite ? step_decision::skip : step_decision::update));
  CHECK(state.total.squares == all.squares);
  CHECK(state.total.finite == all.finite);
}

}  // namespace

TEST_CASE("a decision is that of the formulas, for each norm, limit and loss scale", "[optimizer]")
{
  const std::vector<std::vector<gradient_measure>> gradients{
      {},
      {{0.25, 0.5, 0.5F, true}},
      {{1e-3, 1e-2, 1e-2F, true}, {}, {123.456, 77.7, 9.9F, true}},
      {{1e30, 1e20, 1e15F, true}, {1e-40, 1e-20, 1e-20F, true}},
      {{1.0, 1.0, 1.0F, true}, {infinite, infinite, std::numeric_limits<float>::infinity(), false}},
      {{infinite, infinite, std::numeric_limits<float>::quiet_NaN(), false}, {1.0, 1.0, 1.0F, true}},
      {{9e76, 3e38, 3e38F, true}},
  };
  for (const auto& measures : gradients)
    for (const norm_order order : {norm_order::l1, norm_order::l2, norm_order::linf})
      for (const float limit : {0.0F, 1e-40F, 0.37F, 1e9F})
        for (const float scale : {1.0F, 65536.0F, 1234.5F, 0x1p-10F, 0x1p-126F})
          for (const bool may_skip : {true, false})
            check_decision(measures, {.norm = limit, .order = order}, may_skip, scale);
}

TEST_CASE("a decision that is taken again is the same", "[optimizer]")
{
  const std::vector<gradient_measure> measures{{2.0, 3.0, 1.0F, true}};
  device_step_state state;
  const decide_kernel body{measures.data(), 1, {.norm = 0.5F}, true, &state};
  loop_launcher::run(body);
  const device_step_state first = state;
  loop_launcher::run(body);
  CHECK((state.factor == first.factor && state.norm == first.norm && state.total.squares == first.total.squares));
}

}  // namespace decide_kernel_test

namespace factors_kernel_test {

namespace cm = chunkmem;
using namespace chunkmem::optimizer;

namespace {

template <class Factors, class Options>
Factors factors_at(const Options& options, std::uint64_t number, float rate)
{
  device_step_state state;
  state.number = number - 1;
  Factors found{options, step_settings{}};
  loop_launcher::run(factors_kernel<Options, Factors>{options, &state, &rate, &found});
  return found;
}

}  // namespace

TEST_CASE("factors worked out from the state are those of the host, for step numbers up to a million", "[optimizer]")
{
  using factors = adam::device_factors;
  static_assert(element_kernel<factors_kernel<adam_options, factors>>);
  for (const adam_options& options :
       {adam_options{}, adam_options{.beta1 = 0.0F, .beta2 = 0.99F, .weight_decay = 0.3F, .decoupled = false},
        adam_options{.beta1 = 0.95F, .epsilon = 1e-30F, .weight_decay = 0.01F, .rate_factor = 0.1F}})
    for (std::uint64_t number = 1; number <= 1'000'000; number += 1 + number / 97) {
      const factors found = factors_at<factors>(options, number, 1e-3F);
      const factors expected{options, step_settings{1e-3F, number}};
      REQUIRE(std::memcmp(&found, &expected, sizeof found) == 0);
      const double first = 1.0 - std::pow(static_cast<double>(options.beta1), static_cast<double>(number));
      const double second = 1.0 - std::pow(static_cast<double>(options.beta2), static_cast<double>(number));
      REQUIRE(static_cast<double>(-found.negative_rate) ==
              Catch::Approx(static_cast<double>(1e-3F * options.rate_factor) / first).epsilon(1e-6));
      REQUIRE(static_cast<double>(found.scale) == Catch::Approx(1.0 / std::sqrt(second)).epsilon(1e-6));
    }
}

TEST_CASE("factors of sgd are those of the host", "[optimizer]")
{
  using factors = sgd::device_factors;
  const sgd_options options{.momentum = 0.8F, .weight_decay = 0.1F, .dampening = 0.2F, .rate_factor = 3.0F};
  const factors found = factors_at<factors>(options, 5, 0.25F);
  CHECK(found.negative_rate == -0.75F);
  CHECK(found.rest == 1.0F - 0.2F);
  CHECK((found.momentum == 0.8F && found.decay == 0.1F));
}

}  // namespace factors_kernel_test

namespace rates_kernel_test {

using namespace chunkmem::optimizer;

TEST_CASE("rates arrive, as many as a body was given", "[optimizer]")
{
  std::vector<float> rates(rates_kernel::most);
  for (std::size_t index = 0; index < rates.size(); ++index) rates[index] = static_cast<float>(index) + 0.5F;
  std::vector<float> to(rates.size() + 1, -1.0F);
  loop_launcher::run(rates_kernel{to.data(), std::span{rates}.first(3)});
  CHECK((to[0] == 0.5F && to[2] == 2.5F && to[3] == -1.0F));
  loop_launcher::run(rates_kernel{to.data(), rates});
  CHECK(to[rates_kernel::most - 1] == rates.back());
  CHECK(to[rates_kernel::most] == -1.0F);
  CHECK(rates_kernel{to.data(), {}}.count() == 0);
}

}  // namespace rates_kernel_test

namespace finish_kernel_test {

using namespace chunkmem::optimizer;

namespace {

void goes_on_like(loss_scale scale, std::uint64_t key)
{
  device_step_state state;
  state.number = 100;
  std::memcpy(&state.loss, scale.bytes().data(), sizeof state.loss);
  const finish_kernel body{&state, rule_of(scale)};
  for (std::uint64_t step = 0; step < 300; ++step) {
    const bool updates = support::scrambled(key + step) % 7 != 0;
    state.decision = updates ? step_decision::update : step_decision::skip;
    loop_launcher::run(body);
    updates ? scale.updated() : scale.skipped();
    REQUIRE(std::memcmp(&state.loss, scale.bytes().data(), sizeof state.loss) == 0);
    REQUIRE(state.number == 100 + scale.updates());
    REQUIRE(state.decision == step_decision::open);
  }
}

}  // namespace

TEST_CASE("a loss scale goes on as on the host, byte by byte", "[optimizer]")
{
  goes_on_like(loss_scale::fixed(128.0F), 1);
  goes_on_like(loss_scale::dynamic({.window = 3}), 2);
  goes_on_like(loss_scale::dynamic({.initial = 3.0F, .window = 1, .growth = 1.7F, .backoff = 0.3F, .largest = 100.0F}),
               3);
  goes_on_like(loss_scale::dynamic({.initial = 3e-38F, .window = 2, .smallest = 0x1p-126F, .largest = 1e-37F}), 4);
}

TEST_CASE("the end of a step that decided nothing counts nothing", "[optimizer]")
{
  device_step_state state;
  loop_launcher::run(finish_kernel{&state, {}});
  CHECK(state.number == 0);
  CHECK((state.loss.updates == 0 && state.loss.skips == 0));
}

}  // namespace finish_kernel_test
