// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "patient.hpp"

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

/// One run of a training for each call that can fail in it.
namespace fault_sweeps {

using support::fault_point;
using support::fault_source;

/// The result of a sweep.
struct tally {
  std::uint64_t points = 0;  ///< calls that were made to fail
  std::uint64_t runs = 0;
  std::uint64_t identical = 0;          ///< runs with every bit of the undisturbed one, and nothing leaked
  std::uint64_t errors = 0;             ///< that trainers saw
  std::array<std::uint64_t, 4> ways{};  ///< runs by [stays * 2 + same_scope]

  tally& operator+=(const tally& more) noexcept
  {
    points += more.points;
    runs += more.runs;
    identical += more.identical;
    errors += more.errors;
    for (std::size_t index = 0; index < ways.size(); ++index) ways[index] += more.ways[index];
    return *this;
  }
};

/// A training, its results without errors, and its number of calls of each source.
template <class Training>
class swept {
 public:
  using outcome = typename Training::outcome;

  swept(std::string name, const setting& wanted)
      : name_{std::move(name)}, how_{wanted}, expected_{Training::expected(wanted)}
  {
    if (how_.rehearses) {
      const cm::bytes host = grow_device();
      how_.host = host + how_.device;  // it holds all chunks: a failed step fits again
    }
    patient<Training> quiet{how_};
    support::faults.arm({});
    const outcome left = quiet.train();
    support::faults.disarm();
    REQUIRE(expected_.difference(left) == "");
    REQUIRE(quiet.errors == 0);
    saved_ = quiet.folder->last_of(".safetensors");
    REQUIRE(!saved_.empty());
    const cm::report seen = quiet.m->report();
    REQUIRE(seen.evictions > 20);
    for (std::size_t index = 0; index < calls_.size(); ++index)
      calls_[index] = support::faults.calls(static_cast<fault_source>(index));
  }

  [[nodiscard]] std::uint64_t calls(fault_source from) const noexcept { return calls_[static_cast<std::size_t>(from)]; }

  /// @param same_scope   a failed update is called again inside its iteration
  tally run(bool same_scope, const fault_point& first, const fault_point& second = {})
  {
    how_.same_scope = same_scope;
    const run_result found = run_with<Training>(how_, expected_, saved_, first, second);
    INFO(name_ << ": " << text(first) << (second.at == fault_point::never ? "" : ", then ")
               << (second.at == fault_point::never ? "" : text(second)));
    CHECK(found.difference == "");
    CHECK(found.struck > 0);
    CHECK(found.leaked_blocks == 0);
    CHECK(found.leaked_arenas == 0);
    tally sum{1, 1, found.is_survived() ? 1U : 0U, static_cast<std::uint64_t>(found.errors)};
    sum.ways[(first.retained ? 2U : 0U) + (same_scope ? 1U : 0U)] = 1;
    return sum;
  }

  /// Every `stride`-th call of a source fails, and is tried again in the same iteration or a new one, by turns of two
  /// that go on from sweep to sweep.
  /// @param both   once and, in another run, until it is repaired; else by turns
  tally sweep(fault_source from, std::uint64_t stride, bool both)
  {
    tally sum;
    for (std::uint64_t index = 0; index < calls(from); index += stride) {
      const bool retained = turn_ % 2 == 1;
      const bool same_scope = turn_ / 2 % 2 == 1;
      ++turn_;
      tally one = run(same_scope, {from, index, retained});
      if (both) one += run(same_scope, {from, index, !retained});
      one.points = 1;
      sum += one;
    }
    std::cout << name_ << ", " << support::name_of(from) << ": " << sum.points << " of " << calls(from)
              << " injection points, " << sum.runs << " runs, " << sum.errors << " errors, " << sum.identical
              << " runs bit for bit as undisturbed and without a leak\n";
    CHECK(sum.runs > 0);
    return sum;
  }

  /// Two calls fail in each run: anything anywhere, and then something soon or late after it.
  tally pairs(std::uint64_t count, std::uint64_t seed)
  {
    support::dice chance{seed};
    const auto below = [&](std::uint64_t bound) {
      return bound == 0 ? 0 : std::uint64_t{chance.below(static_cast<std::uint32_t>(bound))};
    };
    const auto any = [&] {
      constexpr std::array kinds{fault_source::heap, fault_source::copy,  fault_source::heap,
                                 fault_source::copy, fault_source::arena, fault_source::file};
      return kinds[below(kinds.size())];
    };
    tally sum;
    for (std::uint64_t index = 0; index < count; ++index) {
      const fault_source one = any();
      const fault_source other = any();
      const bool soon = below(2) == 0;
      sum += run(index % 2 == 1, {one, below(calls(one)), below(4) == 0},
                 {other, below(soon ? 4 : calls(other)), below(4) == 0});
    }
    std::cout << name_ << ", two faults in each run, seed " << seed << ": " << sum.runs << " runs, " << sum.errors
              << " errors, " << sum.identical << " runs bit for bit as undisturbed and without a leak\n";
    return sum;
  }

 private:
  /// The device gets a frame more than the least, and more where the step finds no row of frames then. @return   the
  /// least host
  cm::bytes grow_device()
  {
    for (how_.device = patient<Training>{how_}.rehearse().smallest_device + 4_KiB;; how_.device += 4_KiB) try {
        return patient<Training>{how_}.rehearse().smallest_host;
      } catch (const cm::config_error&) {
        REQUIRE(how_.device < 1_MiB);
      }
  }

  [[nodiscard]] static std::string text(const fault_point& it)
  {
    return std::string{support::name_of(it.from)} + " " + std::to_string(it.at) +
           (it.retained ? ", until it is repaired" : "");
  }

  std::string name_;
  setting how_;
  outcome expected_;
  std::vector<std::byte> saved_;
  std::array<std::uint64_t, support::fault_sources> calls_{};
  std::uint64_t turn_ = 0;
};

/// Three steps with an evaluation, a checkpoint and a step that overflows.
[[nodiscard]] inline setting accumulating(mixed::precision kind)
{
  return {.how = {.kind = kind,
                  .micro_batches = 2,
                  .clip = {.norm = 1.0F},
                  .scale = {.scale = 512.0F, .window = 2},
                  .steps = 3,
                  .spoilt = {1, mixed::never}}};
}
/// The same with gradients in the place of their weights, which are those of one micro-batch.
[[nodiscard]] inline setting in_place(mixed::precision kind)
{
  setting it = accumulating(kind);
  it.how.micro_batches = 1;
  it.in_place = true;
  return it;
}

}  // namespace fault_sweeps
