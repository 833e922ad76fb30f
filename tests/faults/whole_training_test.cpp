// SPDX-License-Identifier: Apache-2.0
#define CHUNKMEM_TEST_FAILS_HEAP_AND_THREADS
#include "sweep.hpp"

#include <support/catch.hpp>
#include <support/figures.hpp>
#include <support/sanitized.hpp>

#include <cstdint>
#include <iostream>
#include <string>
#include <string_view>

namespace whole_training_test {

/// Every call of a training that can fail does so, in a run of its own: allocations of the heap, copies, arenas,
/// operations on files, starts of threads. From the first constructor to the last value that is read back, with
/// evictions, loads ahead of use, micro-batches that add up, a step that overflows, an evaluation, and a checkpoint.

using namespace fault_sweeps;

namespace {

/// Under a sanitizer a run takes several times as long, so only some calls fail.
constexpr std::uint64_t pace = support::sanitized ? 83 : 1;
constexpr std::uint64_t file_pace = support::sanitized ? 41 : 1;

void write_figures(const tally& sum)
{
  if (support::sanitized) return;  // it tries fewer runs
  support::write_figures(
      "test_faults.sweeps", "build/bench/bin/test_faults.sweeps",
      {{"engine.fault_runs_identical_percent",
        100.0 * static_cast<double>(sum.identical) / static_cast<double>(sum.runs), "percent", ">=", 100},
       {"engine.fault_injection_points", sum.points, "", ">=", 2000},
       {"engine.fault_runs", sum.runs, "", ">=", 2000}});
}

template <class Training>
tally every_source(swept<Training>& it, std::uint64_t heap_stride, std::uint64_t copy_stride, bool both)
{
  tally sum = it.sweep(fault_source::heap, heap_stride, both);
  sum += it.sweep(fault_source::copy, copy_stride, both);
  for (const fault_source from : {fault_source::arena, fault_source::thread})
    sum += it.sweep(from, 1, both || !support::sanitized);
  sum += it.sweep(fault_source::file, both ? 1 : file_pace, both);
  return sum;
}

template <class Training>
tally every_call(const std::string& name, const setting& it)
{
  swept<Training> all{name, it};
  return every_source(all, 1, 1, true);
}

/// The same under the policies that decide what is copied when.
template <class Training>
tally every_policy(const std::string& name, setting it)
{
  tally sum;
  for (const std::string_view eviction : {"belady", "lru", "cost_aware"})
    for (const std::string_view transfer : {"lookahead", "no_prefetch"}) {
      it.eviction = eviction;
      it.transfer = transfer;
      sum += every_call<Training>(name + ", " + std::string{eviction} + ", " + std::string{transfer}, it);
    }
  return sum;
}

}  // namespace

TEST_CASE("whatever fails in a training is a typed error, and after the retry every bit is that of an undisturbed one",
          "[faults]")
{
  tally sum;
  {
    swept<mixed_training<cm::fp16>> it{"fp16, gradients in place", in_place(mixed::precision::fp16)};
    sum += every_source(it, pace, pace, false);
    sum += it.pairs(support::sanitized ? 4 : 60, 1);
  }
  {
    swept<mixed_training<cm::bf16>> it{"bf16, two micro-batches", accumulating(mixed::precision::bf16)};
    sum += every_source(it, 9 * pace, 3 * pace, false);
    sum += it.pairs(support::sanitized ? 2 : 40, 2);
  }
  {
    swept<mixed_training<float>> it{"fp32, two micro-batches", accumulating(mixed::precision::fp32)};
    sum += every_source(it, 25 * pace, 5 * pace, false);
  }
  for (const mixed::updating when : {mixed::updating::late, mixed::updating::early}) {
    setting how = in_place(mixed::precision::bf16);
    how.how.updates = when;
    how.how.undo_bytes = 16 << 10;
    swept<mixed_training<cm::bf16>> it{
        when == mixed::updating::late ? "bf16, in place, late updates" : "bf16, in place, early updates", how};
    sum += every_source(it, 25 * pace, 5 * pace, false);
  }
  std::cout << "in all: " << sum.points << " injection points, " << sum.runs << " runs, " << sum.runs - sum.identical
            << " wrong or with a leak\n";
  CHECK(sum.identical == sum.runs);
  // once or until repaired, in the same iteration or a new one
  for (const std::uint64_t runs : sum.ways) CHECK(runs * 8 > sum.runs);
  write_figures(sum);
}

TEST_CASE("a training in which nothing failed, or that failed for good, is not one that survived", "[faults]")
{
  using training = mixed_training<float>;
  const setting how = accumulating(mixed::precision::fp32);
  const auto expected = training::expected(how);
  patient<training> quiet{how};
  support::faults.arm({});
  REQUIRE(expected.difference(quiet.train()) == "");
  support::faults.disarm();
  const auto saved = quiet.folder->last_of(".safetensors");
  const std::uint64_t copies = support::faults.calls(fault_source::copy);
  REQUIRE(copies > 0);
  const run_result late = run_with<training>(how, expected, saved, {fault_source::copy, copies});
  CHECK(late.difference == "");
  CHECK(late.struck == 0);
  CHECK_FALSE(late.is_survived());
  CHECK(run_with<training>(how, expected, saved, {fault_source::copy, copies - 1}).is_survived());
  CHECK_FALSE(run_with<training>(how, expected, {}, {fault_source::copy, 0}).is_survived());  // another checkpoint
}

TEST_CASE("so it is at every call, once and until it is repaired, under three evictions and two transfers",
          "[faults][.slow]")
{
  tally sum = every_policy<mixed_training<cm::fp16>>("fp16, in place", in_place(mixed::precision::fp16));
  sum += every_call<mixed_training<cm::bf16>>("bf16, two micro-batches", accumulating(mixed::precision::bf16));
  sum += every_call<mixed_training<float>>("fp32, two micro-batches", accumulating(mixed::precision::fp32));
  setting unrehearsed = in_place(mixed::precision::bf16);
  unrehearsed.rehearses = false;
  unrehearsed.device = 80_KiB;
  sum += every_call<mixed_training<cm::bf16>>("bf16, in place, not rehearsed", unrehearsed);
  setting launched = accumulating(mixed::precision::bf16);
  launched.launched = true;
  launched.placement = "device_margin";
  sum += every_policy<mixed_training<cm::bf16>>("bf16, kernels on streams, states in the margin", launched);
  std::cout << "in all: " << sum.points << " injection points, " << sum.runs << " runs, " << sum.runs - sum.identical
            << " wrong or with a leak\n";
  CHECK(sum.identical == sum.runs);
}

TEST_CASE("so it is where two things fail in one run, two thousand times", "[faults][.slow]")
{
  tally sum;
  swept<mixed_training<cm::fp16>> lent{"fp16, in place", in_place(mixed::precision::fp16)};
  sum += lent.pairs(1000, 11);
  swept<mixed_training<cm::bf16>> apart{"bf16, two micro-batches", accumulating(mixed::precision::bf16)};
  sum += apart.pairs(1000, 12);
  CHECK(sum.identical == sum.runs);
}

}  // namespace whole_training_test
