// SPDX-License-Identifier: Apache-2.0
#include "foresight.hpp"

#include "budget.hpp"
#include "either_gradient.hpp"
#include "file_trace.hpp"
#include "gather_times.hpp"
#include "policies.hpp"
#include "profile.hpp"
#include "rank_on_clocks.hpp"
#include "rank_on_host.hpp"
#include "rank_session.hpp"
#include "run.hpp"
#include "simulated_groups.hpp"
#include "stage_run_times.hpp"
#include "stages.hpp"
#include "training_on_host.hpp"
#include "virtual_clocks.hpp"

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/collective/network_costs.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/collective/simulated_ranks.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/pipeline_timeline.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/sharding/process_groups.hpp>
#include <chunkmem/sharding/thread_ranks.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace foresight_test {

namespace {

using Catch::Matchers::ContainsSubstring;
using chunkmem::activation::activation_plan;
using chunkmem::activation::block_action;

template <class Backend>
using training = gpt::training_on_host<chunkmem::manager<Backend, gpt::any_eviction, gpt::any_layout,
                                                         gpt::any_placement, gpt::any_transfer, gpt::either_gradient>>;

gpt::training_text some_text()
{
  std::string all;
  for (int i = 0; i < 200; ++i) all += "the quick brown fox jumps over the lazy dog " + std::to_string(i) + '\n';
  return {"made here", all};
}

gpt::options parsed(const std::vector<std::string>& words)
{
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  return gpt::parse_options(static_cast<int>(arguments.size()), arguments.data());
}
gpt::options chosen_by(std::vector<std::string> words)
{
  for (const char* const word : {"--steps", "8", "--threads", "1", "--sample", "0"}) words.emplace_back(word);
  return parsed(words);
}

std::vector<std::string> joined(std::vector<std::string> words, const std::vector<std::string>& more)
{
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const std::vector<std::vector<std::string>> sizes{
    {"--layers", "2", "--width", "16", "--heads", "2", "--context", "16", "--batch", "1", "--transfer", "planned"},
    {"--layers", "3", "--width", "32", "--heads", "2", "--context", "32", "--batch", "2"},
    {"--layers", "3", "--width", "16", "--heads", "2", "--context", "64", "--batch", "2"},
    {"--layers", "2", "--width", "32", "--heads", "4", "--context", "16", "--batch", "3", "--precision", "bf16"},
    {"--layers", "2", "--width", "16", "--heads", "2", "--context", "48", "--batch", "1", "--mlp", "relu",
     "--accumulate", "2"},
};
const std::array<const char*, 6> modes{"swap", "keep", "recompute", "karma", "planned", "sample=0.3"};

/// A training whose first steps were followed.
struct followed_run {
  gpt::foreseen_steps said;
  gpt::step_account seen;
  activation_plan plan;
  gpt::clock_rates rates;
  std::string told;
};

/// @param clocks   of a training on virtual clocks
template <class Backend>
followed_run run(const gpt::options& chosen, const gpt::clock_rates* clocks = nullptr)
{
  const gpt::training_text text = some_text();
  chunkmem::optimizer::thread_pool workers{1};
  using kind = training<Backend>;
  gpt::training_setup setup{chosen, text, workers, chunkmem::bytes{}};
  setup.rates = clocks;
  setup.chunk = align_up(chunkmem::bytes{kind::largest_tensor_bytes(chosen.size)}, chunkmem::bytes{4096});
  gpt::choose_activations<kind>(setup);
  const gpt::memory_budget budget = gpt::budget_for<kind>(setup);
  setup.is_followed = true;
  auto session = gpt::session_as_chosen<kind>(setup, budget.device, budget.host, gpt::either_gradient{chosen.gradient});
  (void)session.rehearse();
  session.fill();
  (void)session.train(nullptr, nullptr);
  const auto& followed = *session.followed();
  return {{.fits = followed.ahead().is_foreseen(), .compared = followed.ahead().said()},
          followed.seen(),
          followed.ahead().plan(),
          followed.ahead().rates(),
          followed.ahead().told()};
}

std::size_t again(const activation_plan& plan)
{
  std::size_t layers = 0;
  for (std::uint32_t layer = 0; layer < plan.inner_leaves.size(); ++layer)
    layers += plan.action_of(layer) == block_action::recompute ? 1 : 0;
  return layers;
}

/// @param gigabytes   a second on each link
gpt::clock_rates machine_of(double operations, double gigabytes)
{
  gpt::clock_rates made;
  made.operations_per_second.fill(operations);
  made.copies.to_device = made.copies.to_host = {.latency_nanoseconds = 0, .bytes_per_second = gigabytes * 1e9};
  made.updates = {1e8, 1e8, 1e12, 1e12};
  return made;
}

}  // namespace

TEST_CASE("each mode at each size moves the bytes that were said, and its peak is the one that was said",
          "[gpt_foresight]")
{
  for (const auto& size : sizes)
    for (const char* const mode : modes) {
      CAPTURE(size[1], size[3], mode);
      const followed_run found = run<chunkmem::backend::host_arena>(chosen_by(joined(size, {"--activations", mode})));
      REQUIRE(found.said.fits);
      CHECK(found.said.compared.loaded == found.seen.loaded);
      CHECK(found.said.compared.written_back == found.seen.written_back);
      CHECK(found.said.compared.device_peak == found.seen.device_peak);
      CHECK(found.seen.loaded > 0);
    }
}

TEST_CASE("slow links make a plan recompute, and fast links make none", "[gpt_foresight]")
{
  // Activations take most of the memory of such a model.
  const std::vector<std::string> deep{"--layers", "6",         "--width", "16",      "--heads",
                                      "2",        "--context", "256",     "--batch", "2"};
  const gpt::clock_rates slow = machine_of(1e11, 0.01);
  const gpt::clock_rates fast = machine_of(1e8, 1000);
  for (const char* const mode : {"karma", "planned"}) {
    CAPTURE(mode);
    const followed_run found = run<gpt::virtual_clocks>(chosen_by(joined(deep, {"--activations", mode})), &slow);
    CHECK(again(found.plan) > 0);
    CHECK_THAT(found.told, ContainsSubstring("R for a layer that runs forward again: R"));
  }
  CHECK(again(run<gpt::virtual_clocks>(chosen_by(joined(deep, {"--activations", "planned"})), &fast).plan) == 0);
}

TEST_CASE("rates are those of the machine, and the seconds that are said are the seconds that pass", "[gpt_foresight]")
{
  const gpt::clock_rates machine = machine_of(3e9, 2);
  const followed_run found =
      run<gpt::virtual_clocks>(chosen_by(joined(sizes[1], {"--activations", "planned"})), &machine);
  CHECK(found.rates.copies.to_device.bytes_per_second == Catch::Approx(2e9).epsilon(0.01));
  CHECK(found.rates.copies.to_host.bytes_per_second == Catch::Approx(2e9).epsilon(0.01));
  for (const auto part : {gpt::step_part::forward, gpt::step_part::backward, gpt::step_part::ends})
    CHECK(found.rates.operations_per_second[index_of(part)] == Catch::Approx(3e9).epsilon(0.01));
  CHECK(found.said.compared.seconds == Catch::Approx(found.seen.seconds).epsilon(0.01));
  CHECK(found.said.compared.loaded == found.seen.loaded);
}

TEST_CASE("activations that are kept are refused on a smaller device, and a larger default is told", "[gpt_foresight]")
{
  const gpt::training_text text = some_text();
  chunkmem::optimizer::thread_pool workers{1};
  using kind = training<chunkmem::backend::host_arena>;
  const auto budget_of = [&](const gpt::options& chosen) {
    gpt::training_setup setup{chosen, text, workers, chunkmem::bytes{16384}};
    gpt::choose_activations<kind>(setup);
    return gpt::budget_for<kind>(setup);
  };
  const gpt::options keeps = chosen_by(joined(sizes[2], {"--activations", "keep"}));
  const gpt::memory_budget budget = budget_of(keeps);
  REQUIRE(budget.device > chunkmem::bytes{budget.everything.count() / 4});
  std::FILE* const out = std::tmpfile();
  gpt::display{out}.header(keeps, text, budget, chunkmem::bytes{16384});
  std::string printed(8192, '\0');
  std::rewind(out);
  printed.resize(std::fread(printed.data(), 1, printed.size(), out));
  std::fclose(out);
  CHECK_THAT(printed,
             ContainsSubstring("is too small with --activations keep, which leaves all activations on the device"));
  const std::string less = std::to_string(budget.smallest_device.count() - 1) + "B";
  CHECK_THROWS_WITH(budget_of(chosen_by(joined(sizes[2], {"--activations", "keep", "--device-memory", less}))),
                    ContainsSubstring("with --activations keep, which leaves all activations on the device"));
}

TEST_CASE("all ranks take one plan, and each moves the bytes that it said", "[gpt_foresight]")
{
  using chunkmem::sharding::thread_ranks;
  for (const char* const mode : {"swap", "planned"}) {
    CAPTURE(mode);
    const gpt::options chosen = chosen_by(joined(sizes[1], {"--ranks", "3", "--shard", "3", "--activations", mode}));
    const gpt::training_text text = some_text();
    const gpt::rank_plan plan = gpt::rank_plan::of(chosen, 3);
    const thread_ranks gathers{3, plan.of_node}, sums{3, plan.of_node};
    std::vector<followed_run> found(3);
    gathers.run([&](thread_ranks::place& here) {
      thread_ranks::place for_sums{sums, here.rank()};
      chunkmem::sharding::sums_apart both{here.process_groups(), for_sums.process_groups()};
      const gpt::rank_on_host place{both};
      chunkmem::optimizer::thread_pool workers{1};
      const gpt::training_setup setup = gpt::setup_of_rank(chosen, text, place, plan, workers);
      const gpt::memory_budget budget = gpt::budget_of_rank(setup, place, plan);
      gpt::rank_session session{setup, place, plan, budget.device, budget.host};
      (void)session.train(nullptr, nullptr);
      const auto& followed = *session.followed();
      found[here.rank()] = {{.fits = followed.ahead().is_foreseen(), .compared = followed.ahead().said()},
                            followed.seen(),
                            followed.ahead().plan(),
                            followed.ahead().rates(),
                            {}};
    });
    for (const followed_run& mine : found) {
      CHECK(mine.said.fits);
      CHECK(mine.plan.steps == found.front().plan.steps);
      CHECK(mine.said.compared.loaded == mine.seen.loaded);
      CHECK(mine.said.compared.written_back == mine.seen.written_back);
      CHECK(mine.said.compared.device_peak == mine.seen.device_peak);
    }
  }
}

TEST_CASE("gathers on virtual clocks take the measured time, and more ranks take more of it", "[gpt_foresight]")
{
  const gpt::gather_times measured{.seconds = {1e-3, 4e-3}};
  const auto gather = [&](std::uint64_t share, std::uint32_t ranks) {
    const auto parts = chunkmem::collective::shares::of(chunkmem::bytes{share * ranks}, ranks);
    return static_cast<double>(measured.costs(ranks).all_gather(parts)) * 1e-9;
  };
  CHECK(gather(gpt::gather_times::large_share, 4) == Catch::Approx(4e-3));
  CHECK(gather(2 * gpt::gather_times::large_share, 4) == Catch::Approx(7e-3).epsilon(0.001));
  CHECK(gpt::gather_times{.seconds = {2e-3, 1e-3}}.costs(4).all_gather(chunkmem::collective::shares::of(
            chunkmem::bytes{1U << 20U}, 4)) == 2'000'000);  // bytes whose time is lost in noise
}

TEST_CASE("layers over ranks are timed without the waits for gathers", "[gpt_foresight]")
{
  const gpt::options chosen = chosen_by(joined(sizes[1], {"--ranks", "4", "--shard", "3", "--activations", "planned"}));
  const gpt::training_text text = some_text();
  const gpt::rank_plan plan = gpt::rank_plan::of(chosen, 4);
  gpt::rank_rates machine{machine_of(3e9, 2), {.of_node = 1, .nodes = 4, .network_bytes_per_second = 1e7}};
  machine.network.way = chunkmem::collective::network_costs::route::direct;
  chunkmem::collective::simulated_ranks link{machine.network};
  constexpr chunkmem::rank_id all_alike{0};
  gpt::simulated_groups gathers{machine.network, all_alike, plan.of_node, link};
  gpt::simulated_groups sums{machine.network, all_alike, plan.of_node, link};
  chunkmem::sharding::sums_apart both{gathers.groups, sums.groups};
  const gpt::rank_on_clocks place{both, machine};
  chunkmem::optimizer::thread_pool workers{1};
  const gpt::training_setup setup = gpt::setup_of_rank(chosen, text, place, plan, workers);
  const gpt::memory_budget budget = gpt::budget_of_rank(setup, place, plan);
  gpt::rank_session session{setup, place, plan, budget.device, budget.host};
  (void)session.steady_step();
  const auto& followed = *session.followed();
  for (const auto part : {gpt::step_part::forward, gpt::step_part::backward, gpt::step_part::ends})
    CHECK(followed.ahead().rates().operations_per_second[index_of(part)] == Catch::Approx(3e9).epsilon(0.01));
  CHECK(followed.seen().waited > followed.seen().parts[index_of(gpt::step_part::forward)]);
  CHECK(followed.ahead().said().seconds == Catch::Approx(followed.seen().seconds).epsilon(0.02));
}

TEST_CASE("a profile has the seconds that products of a layer take on virtual clocks", "[gpt_foresight]")
{
  const gpt::clock_rates clocks = machine_of(1e6, 1);
  const gpt::options chosen = chosen_by(
      {"--layers", "3", "--width", "16", "--heads", "2", "--context", "32", "--batch", "3", "--chunk-bytes", "32KiB"});
  chunkmem::optimizer::thread_pool workers{1};
  const auto found = gpt::measured_profile<training<gpt::virtual_clocks>>(chosen, some_text(), workers, &clocks);
  constexpr double context = 32, width = 16, vocabulary = 256;
  constexpr double linear = 2 * context * width * 12 * width;  // 3 of queries, keys and values, 1, 4 and 4
  constexpr double attention = 2 * context * width * context;
  CHECK(found.times.size() == 3);
  for (const std::uint64_t rows : {1U, 2U, 3U}) {
    const double scale = static_cast<double>(rows) * 1e-6;
    const auto last = found.seconds("node-0", 2, 1, rows);
    const auto middle = found.seconds("node-0", 1, 1, rows);
    CHECK(middle.forward == Catch::Approx((linear + 2 * attention) * scale));
    CHECK(middle.backward_input + middle.backward_weight == Catch::Approx((2 * linear + 5 * attention) * scale));
    CHECK(last.forward == Catch::Approx(middle.forward));
    CHECK(last.sum() - middle.sum() == Catch::Approx(3 * 2 * context * width * vocabulary * scale));  // the logits
    CHECK(found.size(&chunkmem::configurator::profiled_sizes::boundary, 1, 1, rows).count() ==
          static_cast<std::uint64_t>(4 * context * width) * rows);
    CHECK(found.size(&chunkmem::configurator::profiled_sizes::saved, 1, 1, rows).count() ==
          static_cast<std::uint64_t>(4 * context * (9 * width + 4)) * rows);
  }
}

TEST_CASE("the seconds between updates are those of the schedule with the shortest times of runs", "[gpt_foresight]")
{
  using namespace chunkmem::pipeline;
  const pipeline_shape shape{.stages = 2, .micro_batches = 4, .batches = 8};
  const schedule plan = make_schedule(gpipe{}, shape);
  gpt::stage_run_times times{2};
  times.add(0, gpt::stage_run::forward, 50);
  times.end_batch(false);  // of the first batch, which touches memory
  for (const double slower : {1.0, 1.5}) {
    for (std::size_t part = 0; part < 2; ++part) {
      times.add(part, gpt::stage_run::forward, 0.9 * slower);
      times.add(part, gpt::stage_run::forward, 1.1 * slower);
      times.add(part, gpt::stage_run::backward_input, 2 * slower);
    }
    times.add(1, gpt::stage_run::update, 3 * slower);
    times.end_batch(true);
  }
  const std::vector<double> seconds = times.seconds();
  CHECK(seconds == std::vector<double>{1, 2, 0, 0, 1, 2, 0, 3});
  const auto costs = gpt::costs_of_runs(plan, seconds, chunkmem::bytes{1000}, {.latency = 0.25});
  const pipeline_times whole = pipeline_timeline{plan, costs}.run();
  // Forward 4 + 1, back 8 + 2, an update and two links: the first stage begins the next batch before the last one ends.
  CHECK(gpt::seconds_between_updates(plan, costs, 1, 2, 7) * 7 < whole.seconds);
  CHECK(gpt::seconds_between_updates(plan, costs, 1, 2, 7) == Catch::Approx(5 + 10 + 2 * 0.25));
}

TEST_CASE("each stage moves the bytes that were said, and its peak is the one that was said", "[gpt_foresight]")
{
  const gpt::training_text text = some_text();
  for (const auto& how :
       std::vector<std::vector<std::string>>{{"--stages", "2"},
                                             {"--stages", "2", "--activations", "recompute", "--schedule", "gpipe"},
                                             {"--stages", "2", "--transfer", "planned"},
                                             {"--stages", "2", "--schedule", "2bw", "--clip", "1"},
                                             {"--stages", "2", "--schedule", "zb-h1", "--precision", "bf16"},
                                             {"--stages", "2", "--replicas", "2", "--shard", "3"}}) {
    CAPTURE(how);
    const gpt::options chosen = parsed(joined({"--steps", "8", "--threads", "1", "--layers", "3", "--width", "32",
                                               "--heads", "2", "--context", "16", "--batch", "2"},
                                              how));
    std::FILE* const out = std::tmpfile();
    CHECK(gpt::run_stages(chosen, text, gpt::display{out}) == 0);
    std::string printed(1U << 16U, '\0');
    std::rewind(out);
    printed.resize(std::fread(printed.data(), 1, printed.size(), out));
    std::fclose(out);
    CHECK_THAT(printed, ContainsSubstring("expect  stage 1: "));
    CHECK_THAT(printed, ContainsSubstring(" s a step\n"));
    CHECK_THAT(printed, ContainsSubstring("  stage 1\n") && ContainsSubstring("peak of the device"));
    CHECK_THAT(printed, !ContainsSubstring("likely cause, bytes"));
  }
}

TEST_CASE("a difference has a likely cause", "[gpt_foresight]")
{
  const gpt::options chosen = chosen_by(sizes[0]);
  const activation_plan first = gpt::plan_layer_runs(gpt::activation_mode::swap, chosen.size, gpt::boundless);
  gpt::step_account said{.seconds = 1, .parts = {0.2, 0.4, 0.1, 0.1}, .waited = 0.2, .loaded = 1024};
  said.device_peak = chunkmem::bytes{4096};
  gpt::foresight ahead{chosen,
                       first,
                       chunkmem::bytes{1U << 20U},
                       1000,
                       [&](const activation_plan&, const gpt::clock_rates&) {
                         return gpt::foreseen_steps{.fits = true, .compared = said, .operations = {1, 1, 1, 0}};
                       },
                       [](std::span<double>) {}};
  (void)ahead.choose({});
  CHECK_THAT(ahead.compared_with(said, {}), !ContainsSubstring("likely cause"));
  gpt::step_account seen = said;
  seen.seconds = 1.3;
  seen.waited = 0.5;
  CHECK_THAT(ahead.compared_with(seen, {}), ContainsSubstring("likely cause, seconds: waits for copies"));
  seen.waited = 0.2;
  seen.parts[1] = 0.7;
  CHECK_THAT(ahead.compared_with(seen, {}), ContainsSubstring("likely cause, seconds: backward runs of layers"));
  seen = said;
  seen.seconds = 0.8;
  seen.parts[0] = 0;
  CHECK_THAT(ahead.compared_with(seen, {}), ContainsSubstring("likely cause, seconds: forward runs of layers"));
  seen = said;
  seen.loaded = 2048;
  CHECK_THAT(ahead.compared_with(seen, {.skipped = 1}), ContainsSubstring("likely cause, bytes: 1 steps whose"));
  CHECK_THAT(ahead.compared_with(seen, {.is_resumed = true}),
             ContainsSubstring("a training that starts with the values of a file"));
  CHECK_THAT(ahead.compared_with(seen, {.was_saved = true}), ContainsSubstring("a checkpoint that was saved"));
  CHECK_THAT(ahead.compared_with(seen, {.divergences = 2}), ContainsSubstring("2 steps that differed from the record"));
}

}  // namespace foresight_test
