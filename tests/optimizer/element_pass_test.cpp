// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/element_pass.hpp>

#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/version_1.hpp>
#include <chunkmem/tensor/philox.hpp>
#include <chunkmem/tensor/rounding_bits.hpp>
#include <support/catch.hpp>
#include <support/hostile.hpp>
#include <support/oracles/dice.hpp>
#include <support/sanitized.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <iterator>
#include <utility>
#include <vector>

namespace element_pass_test {

namespace cm = chunkmem;
using cm::dtype;
using namespace cm::optimizer;
using namespace cm::optimizer::detail;

namespace {

constexpr std::uint64_t updates_in_ci = support::sanitized ? 100'000 : 10'000'000;

/// The element types of one update: what it reads and writes.
struct kind {
  dtype value, gradient, states;
  bool has_master, is_fresh, in_place;
};

/// Every kind that an update may have; the first ones have loops of their own.
std::vector<kind> all_kinds()
{
  std::vector<kind> all;
  for (const dtype value : {dtype::float32, dtype::bfloat16, dtype::float16})
    for (const dtype states : {dtype::float32, dtype::bfloat16})
      for (const bool wide : {false, true})
        for (const bool has_master : {false, true})
          for (const bool is_fresh : {false, true})
            for (const bool in_place : {false, true}) {
              const bool is_half = cm::is_16_bit(value);
              if ((wide || has_master) && !is_half) continue;
              if (is_fresh && !has_master) continue;
              if (in_place && (!has_master || is_fresh || wide)) continue;
              all.push_back({value, wide ? dtype::float32 : value, states, has_master, is_fresh, in_place});
            }
  return all;
}

float read(const std::byte* data, dtype type, std::size_t index)
{
  float single = 0;
  std::uint16_t half = 0;
  if (type == dtype::float32) return std::memcpy(&single, data + 4 * index, 4), single;
  std::memcpy(&half, data + 2 * index, 2);
  return type == dtype::bfloat16 ? cm::to_float(cm::bf16::from_bits(half)) : cm::to_float(cm::fp16::from_bits(half));
}
void write_half(std::byte* data, std::size_t index, std::uint16_t half)
{
  std::memcpy(data + 2 * index, &half, 2);
}
void write(std::byte* data, dtype type, std::size_t index, float value)
{
  if (type == dtype::float32) return static_cast<void>(std::memcpy(data + 4 * index, &value, 4));
  write_half(data, index, type == dtype::bfloat16 ? cm::bf16{value}.bits() : cm::fp16{value}.bits());
}
void write(std::byte* data, dtype type, std::size_t index, float value, std::uint16_t random)
{
  write_half(data, index,
             type == dtype::bfloat16 ? cm::round_stochastic<cm::bf16>(value, random).bits()
                                     : cm::round_stochastic<cm::fp16>(value, random).bits());
}

/// One parameter and its lists, as bytes.
template <std::size_t States>
struct parameter {
  parameter(const kind& of, std::size_t count, std::uint64_t seed) : is{of}, size{count}
  {
    for (std::vector<std::byte>* bytes : {&value, &gradient, &master, &states[0], &states[1]})
      bytes->resize(4 * size + 64);
    for (std::size_t index = 0; index < size; ++index) {
      put(value, is.value, index, seed++);
      put(gradient, is.gradient, index, seed++);
      put(master, dtype::float32, index, seed++);
      for (auto& state : states) put(state, is.states, index, seed++);
    }
  }
  /// Bits of any kind, or a number as they are in training.
  static void put(std::vector<std::byte>& bytes, dtype type, std::size_t index, std::uint64_t seed)
  {
    const std::uint64_t drawn = support::scrambled(seed);
    const auto bits = static_cast<std::uint32_t>(drawn);
    if (drawn >> 63U == 0) return write(bytes.data(), type, index, support::tame(bits));
    if (type == dtype::float32) return static_cast<void>(std::memcpy(bytes.data() + 4 * index, &bits, 4));
    write_half(bytes.data(), index, static_cast<std::uint16_t>(bits));
  }
  [[nodiscard]] const std::byte* slopes() const { return is.in_place ? value.data() : gradient.data(); }
  [[nodiscard]] update_streams<States> streams(const cm::rounding_key& key, std::uint64_t first)
  {
    update_streams<States> all;
    all.gradient = slopes();
    all.gradient_type = is.gradient;
    const bool from_master = is.has_master && !is.is_fresh;
    all.source = from_master ? master.data() : value.data();
    all.source_type = from_master ? dtype::float32 : is.value;
    all.master = is.has_master ? master.data() : nullptr;
    all.value = {value.data(), is.value, cm::is_16_bit(is.value) && !is.has_master};
    for (std::size_t index = 0; index < States; ++index)
      all.states[index] = {states[index].data(), is.states, cm::is_16_bit(is.states)};
    all.key = key;
    all.first = first;
    return all;
  }
  /// The same in the plainest way, element by element.
  template <class Work>
  [[gnu::noinline]] void update_plainly(const Work& work, const gradient_transform& how, const cm::rounding_key& key,
                                        std::uint64_t first)
  {
    for (std::size_t index = 0; index < size; ++index) {
      const float stored = read(slopes(), is.gradient, index);
      const float slope = how.limit > 0 ? transformed<true>(how, stored) : transformed<false>(how, stored);
      const bool from_master = is.has_master && !is.is_fresh;
      float now = from_master ? read(master.data(), dtype::float32, index) : read(value.data(), is.value, index);
      float of[States + 1] = {};
      for (std::size_t state = 0; state < States; ++state) of[state] = read(states[state].data(), is.states, index);
      [&]<std::size_t... Each>(std::index_sequence<Each...>) {
        work.one(now, slope, of[Each]...);
      }(std::make_index_sequence<States>{});
      const auto bits_for = [&](std::uint32_t list) {
        const cm::rounding_key of_list{key.seed, key.step, key.tensor, list};
        return Work::rule == numerics::version_3 ? cm::rounding_bits(of_list, first + index)
                                                 : cm::random_bits(of_list, first + index);
      };
      for (std::uint32_t state = 0; state < States; ++state)
        if (cm::is_16_bit(is.states))
          write(states[state].data(), is.states, index, of[state], bits_for(state));
        else
          write(states[state].data(), is.states, index, of[state]);
      if (is.has_master) write(master.data(), dtype::float32, index, now);
      if (cm::is_16_bit(is.value) && !is.has_master)
        write(value.data(), is.value, index, now, bits_for(value_stream));
      else
        write(value.data(), is.value, index, now);
    }
  }
  [[nodiscard]] bool operator==(const parameter& other) const
  {
    return value == other.value && master == other.master && states == other.states;
  }

  kind is;
  std::size_t size;
  std::vector<std::byte> value, gradient, master;
  std::array<std::vector<std::byte>, 2> states;
};

/// Updates of one arithmetic, of any kind, length and place, by one instruction set. @return   elements that were equal
template <class LaneWork, class Work>
std::uint64_t compare(instruction_set set, const LaneWork& vectors, const Work& singles, std::uint64_t elements,
                      std::uint64_t seed)
{
  using environment = cm::float_environment::settings;
  constexpr std::size_t states = LaneWork::states;
  support::dice random{seed};
  const std::vector<kind> kinds = all_kinds();
  std::uint64_t done = 0;
  while (done < elements) {
    const kind& is = kinds[random.below(static_cast<std::uint32_t>(kinds.size()))];
    constexpr float factors[] = {1.0F, 0.37F, 1.0F / 65'536, 3.0F, 0x1p60F};
    const gradient_transform how{factors[random.below(5)], random.below(2) == 0 ? 0.0F : 0.5F};
    const cm::rounding_key key{random.below(1'000'000), random.below(1000), random.below(50), 0};
    std::uint64_t first = std::uint64_t{128} * random.below(1'000'000);
    if (random.below(4) == 0)
      first += (std::uint64_t{1} << 32U) - std::uint64_t{128} * 1'000'000;  // near a block's end
    if (random.below(8) == 0) first = (std::uint64_t{1} << 32U) - 256;      // and across
    parameter<states> fast{is, 1 + random.below(random.below(16) == 0 ? 4000 : 600),
                           support::scrambled(seed) + 3000 * done};
    parameter<states> plain = fast;
    element_pass<LaneWork>{vectors, fast.streams(key, first), &how}.run(set, fast.size);
    {
      // singles in flush mode, of every other parameter, where the rule allows it
      const bool flushes = LaneWork::rule != numerics::version_1 && random.below(2) == 0;
      const cm::float_environment mode{flushes ? environment::flushing() : environment{}};
      plain.update_plainly(singles, how, key, first);
    }
    INFO(name_of(is.value) << ", gradient " << name_of(is.gradient) << ", states " << name_of(is.states) << ", "
                           << (is.has_master ? "master, " : "") << (is.is_fresh ? "fresh, " : "")
                           << (is.in_place ? "in place, " : "") << fast.size << " elements");
    const bool same = fast == plain;
    REQUIRE(same);
    done += fast.size;
  }
  return done;
}

/// Both kinds of Adam and all of SGD. @param elements   of each set
template <numerics Rule>
std::uint64_t compare_rule(instruction_set set, std::uint64_t elements)
{
  using adams = adam_arithmetic<Rule>;
  using sgds = sgd_arithmetic<Rule>;
  const step_settings settings{1e-2F, 3};
  const typename adams::factors decoupled{{.weight_decay = 0.1F}, settings};
  const typename adams::factors coupled{{.weight_decay = 0.1F, .decoupled = false}, {40.0F, 3}};
  const typename sgds::factors steep{{.momentum = 0.9F, .weight_decay = 0.1F, .dampening = 0.1F}, settings};
  const std::uint64_t each = elements / 3;
  std::uint64_t done = 0;
  using of_adam = typename adams::lane_work;
  using of_sgd = typename sgds::template lane_work<1>;
  done += compare(set, of_adam{decoupled, false}, typename adams::template work<false>{decoupled}, each, 1);
  done += compare(set, of_adam{coupled, true}, typename adams::template work<true>{coupled}, each, 2);
  done += compare(set, of_sgd{steep, false}, typename sgds::template momentum_work<false>{steep}, each / 3, 3);
  done += compare(set, of_sgd{steep, true}, typename sgds::template momentum_work<true>{steep}, each / 3, 4);
  done +=
      compare(set, typename sgds::template lane_work<0>{steep, false}, typename sgds::plain_work{steep}, each / 3, 5);
  return done;
}

/// @param elements   of each set by version 3; a tenth of them by each older version
std::uint64_t compare_all(std::uint64_t elements)
{
  std::uint64_t done = 0;
  for (const instruction_set set : instruction_sets) {
    if (!is_available(set)) continue;
    INFO(name_of(set));
    done += compare_rule<numerics::version_3>(set, elements);
    done += compare_rule<numerics::version_2>(set, elements / 10);
    done += compare_rule<numerics::version_1>(set, elements / 10);
  }
  std::cout << done << " random updates equal those of single elements\n";
  return done;
}

}  // namespace

TEST_CASE("vectors update as single elements do, of every kind, length and place, with wild data too", "[optimizer]")
{
  CHECK(compare_all(updates_in_ci / std::size(instruction_sets)) > 0);
}

TEST_CASE("so they do in a thousand million updates by each instruction set", "[optimizer][.slow]")
{
  CHECK(compare_all(1'000'000'000) > 0);
}

}  // namespace element_pass_test
