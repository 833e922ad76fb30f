// SPDX-License-Identifier: Apache-2.0
#include <dry_forward.hpp>
#include <run.hpp>
#include <training.hpp>

#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/memory_folder.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <unistd.h>

namespace libtorch_training_test {

namespace cm = chunkmem;
using namespace cm::literals;
using namespace libtorch_gpt;
using Catch::Matchers::ContainsSubstring;
using manager = cm::manager<support::adversarial>;

namespace {

constexpr std::size_t steps = 4;

settings small(bool recompute = false, bool late = false, std::int64_t micro_batches = 1)
{
  return {.size = {.layers = 3,
                   .width = 16,
                   .heads = 2,
                   .context = 8,
                   .batch = 2,
                   .micro_batches = micro_batches,
                   .vocabulary = 64},
          .learning_rate = 3e-3F,
          .recompute = recompute,
          .late = late};
}

/// The same rows in every step, so that the loss falls.
at::Tensor tokens(const settings& how, std::size_t micro_batch)
{
  const extents& size = how.size;
  const auto start = static_cast<std::int64_t>(micro_batch * 3);
  return at::arange(start, start + size.batch * (size.context + 1))
      .mul(5)
      .remainder(size.vocabulary)
      .view({size.batch, size.context + 1});
}
token_source source(const settings& how)
{
  return [how](std::size_t, std::size_t micro_batch) { return tokens(how, micro_batch); };
}

struct outcome {
  std::vector<float> losses;
  std::vector<at::Tensor> values;
};

bool identical(const outcome& left, const outcome& right)
{
  if (left.losses != right.losses || left.values.size() != right.values.size()) return false;
  for (std::size_t index = 0; index < left.values.size(); ++index)
    if (!at::equal(left.values[index], right.values[index])) return false;
  return true;
}

template <class Training>
outcome outcome_of(Training& training, const settings& how)
{
  outcome result;
  for (std::size_t index = 0; index < steps; ++index) result.losses.push_back(training.step(index, source(how)));
  result.values = training.values();
  return result;
}

outcome plain(const settings& how)
{
  plain_training training{how};
  return outcome_of(training, how);
}

constexpr cm::bytes tight = 32_KiB;  // of 175 KiB

saved_sizes saved_by(const settings& how)
{
  return sizes_saved_by(how.size, how.recompute, at::kFloat, at::kCPU, how.sample.has_value());
}

std::size_t sum(const saved_sizes& all)
{
  return std::accumulate(all.begin(), all.end(), std::size_t{0});
}

/// Bytes of sampled inputs that autograd saves for another operation: fused attention may read its own output.
std::size_t saved_for_attention([[maybe_unused]] const settings& how)
{
#if TORCH_VERSION_MAJOR >= 2
  const extents& size = how.size;
  const auto saved = [&](bool multiplies) {
    const auto leaf = [](at::IntArrayRef shape) { return at::zeros(shape).requires_grad_(true); };
    const at::Tensor qkv = leaf({size.batch, size.context, 3, size.heads, size.width / size.heads});
    const auto parts = qkv.permute({2, 0, 3, 1, 4}).unbind(0);  // the output has the order of these
    const at::Tensor weight = leaf({size.width, size.width});
    saved_size_list list;
    const saving looked_at{&list};
    const at::Tensor mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
    const at::Tensor input = mixed.transpose(1, 2).reshape({size.batch, size.context, size.width});
    if (multiplies) (void)at::linear(input, weight);
    return sum(list.sizes());
  };
  if (saved(true) == saved(false))
    return sizeof(float) * static_cast<std::size_t>(size.layers * size.batch * size.context * size.width);
#endif
  return 0;
}

/// Every row of the step is a sample that comes back.
sample_numbers numbers(const settings& how)
{
  const auto of = [batch = static_cast<std::uint64_t>(how.size.batch)](std::size_t, std::size_t micro_batch) {
    std::vector<std::uint64_t> all;
    for (std::uint64_t row = 0; row < batch; ++row) all.push_back(micro_batch * batch + row);
    return all;
  };
  return {of, static_cast<std::uint64_t>(how.size.batch * how.size.micro_batches)};
}

struct rig {
  rig(const settings& how, cm::bytes device, support::schedule when, std::uint64_t seed, const saved_sizes& saved = {})
      : memory{{.device_capacity = device, .host_capacity = 512_KiB, .when = when, .seed = seed}},
        training{m, {}, how, workers, saved, numbers(how)}
  {
    training.fill();
  }
  ~rig() { REQUIRE(memory.faults().empty()); }

  support::adversarial memory;
  cm::optimizer::thread_pool workers{1};
  manager m{memory, {.chunk_bytes = 1_KiB}};
  chunked_training<manager, float> training;
};

outcome chunked(const settings& how, cm::bytes device, support::schedule when)
{
  rig it{how, device, when, 7};
  outcome result = outcome_of(it.training, how);
  REQUIRE((device > tight || it.m.report().evictions > 0));
  REQUIRE(it.m.report().peak[cm::tier::device] <= device);
  REQUIRE(it.m.report().divergences == 0);  // autograd asks for the same layers in the same order in each step
  return result;
}

}  // namespace

TEST_CASE("losses and weights are those of plain LibTorch, with all of the memory and with a fifth of it", "[libtorch]")
{
  const bool recompute = GENERATE(false, true);
  const bool late = GENERATE(false, true);
  const auto micro_batches = GENERATE(1, 2);
  const settings how = small(recompute, late, micro_batches);
  const outcome expected = plain(how);
  REQUIRE(expected.losses.back() < expected.losses.front());
  REQUIRE(identical(expected, chunked(how, 512_KiB, support::schedule::random)));
  for (const auto when : {support::schedule::latest, support::schedule::earliest, support::schedule::random})
    REQUIRE(identical(expected, chunked(how, tight, when)));
}

TEST_CASE("a step that failed in its middle is taken again with the same bits", "[libtorch]")
{
  const settings how = small(GENERATE(false, true));
  rig it{how, tight, support::schedule::random, 5};
  outcome result;
  for (std::size_t index = 0; index < steps; ++index) {
    {
      const auto all = it.m.lease(cm::tier::device, tight - 4_KiB);  // no layer has room beside it
      REQUIRE_THROWS_AS(it.training.step(index, source(how)), cm::out_of_memory);
    }
    result.losses.push_back(it.training.step(index, source(how)));
  }
  result.values = it.training.values();
  REQUIRE(identical(plain(how), result));
}

TEST_CASE("losses and weights are those of plain LibTorch with activations in chunks, on a small device too",
          "[libtorch]")
{
  const settings how = small(GENERATE(false, true), GENERATE(false, true), GENERATE(1, 2));
  const outcome expected = plain(how);
  const saved_sizes saved = saved_by(how);
  for (const cm::bytes device : {512_KiB, tight}) {
    rig it{how, device, support::schedule::random, 7, saved};
    REQUIRE(identical(expected, outcome_of(it.training, how)));
    const auto report = it.m.report();
    REQUIRE((device > tight || report.written_back > 0_B));
    REQUIRE(report.peak[cm::tier::device] <= device);
    REQUIRE(report.divergences == 0);
    REQUIRE(it.training.saved()->saved_bytes() > 0);
    REQUIRE(it.training.saved()->in_use() == 0);
    REQUIRE(it.training.saved()->unplaced_bytes() == 0);
  }
}

TEST_CASE("a step that failed in its last layer leaves no activation, and is taken again with the same bits",
          "[libtorch]")
{
  const settings how = small(GENERATE(false, true), false, 2);
  rig it{how, tight, support::schedule::random, 5, saved_by(how)};
  const token_source wrong = [&](std::size_t, std::size_t micro_batch) {
    at::Tensor result = tokens(how, micro_batch).clone();
    if (micro_batch == 1) result.narrow(1, how.size.context, 1).fill_(how.size.vocabulary);  // a target that is none
    return result;
  };
  outcome result;
  for (std::size_t index = 0; index < steps; ++index) {
    REQUIRE_THROWS(it.training.step(index, wrong));
    REQUIRE(it.training.saved()->in_use() == 0);
    result.losses.push_back(it.training.step(index, source(how)));
  }
  result.values = it.training.values();
  REQUIRE(identical(plain(how), result));
}

TEST_CASE("an evaluation in between needs no graph and changes nothing", "[libtorch]")
{
  const settings how = small();
  rig it{how, tight, support::schedule::random, 5};
  outcome result;
  for (std::size_t index = 0; index < steps; ++index) {
    result.losses.push_back(it.training.step(index, source(how)));
    const auto iteration = it.m.iteration("held out");
    const at::NoGradGuard without_graph;
    REQUIRE(it.training.net().loss(tokens(how, 9)).item<float>() > 0.0F);
  }
  result.values = it.training.values();
  REQUIRE(identical(plain(how), result));
}

TEST_CASE("with all rows of sampled inputs losses and weights are those of plain LibTorch", "[libtorch]")
{
  settings how = small(GENERATE(false, true), GENERATE(false, true), GENERATE(1, 2));
  const outcome expected = plain(how);
  how.sample = 1.0;
  for (const bool in_chunks : {false, true}) {
    rig it{how, tight, support::schedule::random, 7, in_chunks ? saved_by(how) : saved_sizes{}};
    REQUIRE(identical(expected, outcome_of(it.training, how)));
    REQUIRE(it.m.report().evictions > 0);
    REQUIRE(it.m.report().divergences == 0);
  }
}

TEST_CASE("autograd saves none of the sampled inputs, and losses have the same bits on a small device", "[libtorch]")
{
  settings how = small(GENERATE(false, true), false, GENERATE(1, 2));
  const std::size_t exact = sum(saved_by(how));
  const outcome without = plain(how);
  how.sample = 0.3;
  std::optional<outcome> first;
  for (const cm::bytes device : {512_KiB, tight}) {
    rig it{how, device, support::schedule::random, 7, saved_by(how)};
    const outcome found = outcome_of(it.training, how);
    if (first) REQUIRE(identical(*first, found));
    first = found;
    REQUIRE(found.losses.front() == without.losses.front());  // forward is exact
    REQUIRE(found.losses.back() < found.losses.front());
    REQUIRE(!identical(without, found));
    REQUIRE(it.training.saved()->unplaced_bytes() == 0);
    REQUIRE(it.training.saved()->in_use() == 0);
    if (!how.recompute)
      REQUIRE(sum(saved_by(how)) + it.training.inputs()->bytes_of_all_rows().count() ==
              exact + saved_for_attention(how));
    else
      REQUIRE(sum(saved_by(how)) == exact);
  }
}

TEST_CASE("a sampled step that failed is taken again, and a sampled training is taken up again, with the same bits",
          "[libtorch]")
{
  settings how = small(false, false, 2);
  how.sample = 0.3;
  rig whole{how, tight, support::schedule::random, 7, saved_by(how)};
  const outcome expected = outcome_of(whole.training, how);

  const token_source wrong = [&](std::size_t, std::size_t micro_batch) {
    at::Tensor result = tokens(how, micro_batch).flip({0}).clone();  // other rows for the same numbers
    if (micro_batch == 1) result.narrow(1, how.size.context, 1).fill_(how.size.vocabulary);
    return result;
  };
  support::memory_folder folder;
  outcome result;
  {
    rig it{how, tight, support::schedule::latest, 5, saved_by(how)};
    for (std::size_t index = 0; index < 2; ++index) {
      REQUIRE_THROWS(it.training.step(index, wrong));
      {
        const auto all = it.m.lease(cm::tier::device, tight - 4_KiB);  // no layer has room beside it
        REQUIRE_THROWS_AS(it.training.step(index, source(how)), cm::out_of_memory);
      }
      result.losses.push_back(it.training.step(index, source(how)));
    }
    cm::checkpoint::save(it.m, folder);
  }
  rig it{how, 512_KiB, support::schedule::earliest, 3, saved_by(how)};
  cm::checkpoint::load(it.m, folder);
  REQUIRE_THROWS_WITH(it.training.step(1, source(how)), ContainsSubstring("count steps up"));
  for (std::size_t index = 2; index < steps; ++index) result.losses.push_back(it.training.step(index, source(how)));
  result.values = it.training.values();
  REQUIRE(identical(expected, result));
}

TEST_CASE("a report is JSON whatever the losses are, and a loss is read back from it as itself", "[libtorch]")
{
  options chosen;
  chosen.report = std::filesystem::temp_directory_path() / ("chunkmem_libtorch_report_" + std::to_string(::getpid()));
  libtorch_gpt::outcome result;
  result.losses = {5.5451774F, NAN};
  result.tokens_per_second = 1.0 / 3.0;
  write_report(chosen, result);
  std::ifstream in{*chosen.report};
  const std::string all{std::istreambuf_iterator<char>{in}, {}};
  std::filesystem::remove(*chosen.report);
  REQUIRE(all ==
          "{\"program\": \"libtorch_gpt\", \"tokens_per_second\": 0.33333333333333331, \"losses\": [5.54517746, null], "
          "\"memory\": {}}\n");
}

}  // namespace libtorch_training_test
