// SPDX-License-Identifier: Apache-2.0
// Trainings over ranks whose activations and states are beyond each device: every planner of activations with every
// time of updates and every stage of ZeRO has the bits of one rank.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/optimizer/early_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/sharding/process_groups.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/sharding/thread_ranks.hpp>
#include <chunkmem/transfer/planned.hpp>

#include <support/activation_chain.hpp>
#include <support/catch.hpp>
#include <support/covering.hpp>
#include <support/figures.hpp>
#include <support/train_on_ranks.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <latch>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace out_of_core_test {

using namespace chunkmem;
using support::chosen_planner;
using support::ranks::job;
using support::ranks::updates;

namespace {

enum axis : std::size_t { planner, when, zero, ranks, limit, batches, stream, transfer, units, groups, axes };
using point = support::point<axes>;

constexpr point extents{std::size(chosen_planner::names), 3, 4, 4, 4, 2, 2, 2, 2, 2};

job training_of(const point& at)
{
  constexpr sharding::zero divisions[] = {sharding::zero_1, sharding::zero_2, sharding::zero_3,
                                          sharding::zero_3_reduce_last};
  constexpr float limits[] = {0, 1e6F, 1, 0};
  return {.ranks = at[ranks] + 1U,
          .steps = 3,
          .micro_batches = at[batches] + 1U,
          .divided = divisions[at[zero]],
          .clip = limits[at[limit]],
          .skips = at[limit] < 3,
          .is_quarter = true,
          .planner = chosen_planner::names[at[planner]],
          .on_compute = at[stream] == 1,
          .when = static_cast<updates>(at[when]),
          .undo_kilobytes = 4096,
          .has_long_units = at[units] == 1};
}
std::string name_of(const point& at)
{
  static constexpr std::string_view names[][4] = {{"at once", "late", "early"},
                                                  {"zero_1", "zero_2", "zero_3", "zero_3_reduce_last"},
                                                  {"1 rank", "2 ranks", "3 ranks", "4 ranks"},
                                                  {"no limit", "a limit above the norm", "clipped", "nothing decides"},
                                                  {"1 micro-batch", "2 micro-batches"},
                                                  {"calling thread", "compute agent"},
                                                  {"lookahead", "planned"},
                                                  {"units of a chunk", "units of a chunk for each rank"},
                                                  {"one group", "sums apart"}};
  std::string all{chosen_planner::names[at[planner]]};
  for (std::size_t which = when; which < axes; ++which) all += ", " + std::string{names[which - 1][at[which]]};
  return all;
}
/// Its ranks have bytes for a quarter of what they need. @return   what differs from one rank, or nothing
template <class Ends>
std::string train_over(const point& at)
{
  using model =
      sharded_model<support::ranks::arena::type, Ends, ownership::sharded, support::every_eviction,
                    support::every_layout, support::every_placement, support::every_transfer, support::chosen_gradient>;
  const std::vector<std::string> complaints =
      support::ranks::train_as<float, model, Ends, support::ranks::activation_chain<model>>(
          support::ranks::arena{}, training_of(at), support::every_eviction{"belady"},
          support::every_layout{"size_class_layout"}, support::every_placement{"optimizer_on_host"},
          support::every_transfer{at[transfer] == 1 ? "planned" : "lookahead"}, support::chosen_gradient{false});
  for (const std::string& each : complaints)
    if (!each.empty()) return each;
  return {};
}

std::string train(const point& at)
{
  using ends = collective::local_threads;
  return at[groups] == 1 ? train_over<sharding::sums_apart<ends>>(at) : train_over<ends>(at);
}

/// @return   how many have other bits
std::uint64_t differing(const std::vector<point>& rows)
{
  std::uint64_t wrong = 0;
  for (const point& row : rows) {
    const std::string complaint = train(row);
    if (complaint.empty()) continue;
    ++wrong;
    UNSCOPED_INFO(name_of(row) << ": " << complaint);
  }
  return wrong;
}
const std::vector<point>& every_training()
{
  static const std::vector<point> all = support::legal_points(extents, [](const point&) { return true; });
  return all;
}

}  // namespace

TEST_CASE("trainings in a quarter of the device have the bits of one rank for every planner of activations",
          "[sharding]")
{
  const std::vector<point> rows = support::covering<2>(extents, every_training());
  const std::uint64_t wrong = differing(rows);
  CHECK(wrong == 0);
  CHECK(rows.size() >= 32);
  support::write_figures(
      "test_sharding_out_of_core", "build/test/bin/test_sharding",
      {{"sharding.out_of_core_bits_percent", 100 * (rows.size() - wrong) / rows.size(), "%", "==", 100}});
}

TEST_CASE("so they have for every three values of planner, time of updates, stage of ZeRO, ranks and the rest",
          "[sharding][.slow]")
{
  const std::vector<point> rows = support::covering<3>(extents, every_training());
  const std::uint64_t wrong = differing(rows);
  CHECK(wrong == 0);
  std::cout << rows.size() - wrong << " of " << rows.size()
            << " trainings in a quarter of the device have the bits of one rank\n";
}

namespace {

/// Steepest descent that says when it has begun.
struct told_descent {
  static constexpr std::string_view name = "told_descent";
  [[nodiscard]] static std::span<const list_spec> lists() noexcept { return {}; }
  void update(const optimizer::update_spans& spans, const optimizer::step_settings& settings) const noexcept
  {
    *has_begun = true;
    for (std::size_t i = 0; i < spans.parameter.size(); ++i)
      spans.parameter[i] = std::fma(-settings.learning_rate, spans.gradient[i], spans.parameter[i]);
  }
  std::atomic<bool>* has_begun;
  optimizer::step_progress progress{};
};

/// Two ranks with three layers take a step. The compute agent makes the gradient of layer 0, the last one, behind the
/// first update alone, or gives up.
/// @return   the mistake, or nothing
std::string step_before_the_end(sharding::zero divided, updates when, const optimizer::step_options& options)
{
  static constexpr std::uint64_t elements = 16384;  // a share fills a chunk
  constexpr std::uint32_t layers = 3;
  const bytes frame{elements / 2 * sizeof(float)};
  std::string complaints[2];
  sharding::thread_ranks{2}.run([&](sharding::thread_ranks::place& here) {
    backend::host_arena memory{{.device_capacity = frame * 32, .host_capacity = frame * 64, .async_compute = true}};
    sharded_model<backend::host_arena, collective::local_threads> m{
        memory, here.all(), {.chunk_bytes = frame}, {.divided = divided}};
    std::atomic<bool> has_begun = true;
    told_descent kernel{&has_begun};
    m.use(kernel);
    std::vector<tensor<float>> weights;
    for (std::uint32_t layer = 0; layer < layers; ++layer) weights.push_back(m.add<float>({elements}, role::parameter));
    for (const tensor<float> weight : weights) {
      const auto pin = m.acquire(weight, access::write);
      std::ranges::fill(pin.span(), 1.0F);
    }
    optimizer::early_updates early{m, kernel, frame * 8};
    optimizer::late_updates late{m, kernel};
    std::atomic<bool> came_first = true;
    for (std::uint32_t step = 0; step < 2; ++step) {
      auto scope = m.iteration();
      scope.pass(pass::forward);
      for (const tensor<float> weight : weights) (void)m.acquire(weight, access::read, agent::compute);
      scope.pass(pass::backward);
      has_begun = false;
      for (std::uint32_t layer = layers; layer-- > 0;) {
        auto gradient = m.gradient(m.acquire(weights[layer], access::read, agent::compute));
        memory.launch(agent::compute, [to = gradient.data(), layer, &has_begun, &came_first]() noexcept {
          for (std::uint64_t tries = 0; layer == 0 && !has_begun; ++tries) {
            if (tries == 100'000'000) came_first = false;
            if (!came_first) break;
            std::this_thread::yield();
          }
          std::fill_n(to, elements, 0.5F);
        });
        m.gradient_done(std::move(gradient));
      }
      switch (when) {
        case updates::early: early.step(options); break;
        case updates::late: late.step(options); break;
        default: m.step(kernel, options);
      }
      if (late.waiting() != 0) complaints[here.rank()] = "an update waits";
    }
    const auto pin = m.acquire(weights[0], access::read);
    if (!came_first) complaints[here.rank()] = "no update came before the last gradient";
    if (pin.span()[0] == 1.0F) complaints[here.rank()] = "nothing was updated";
  });
  return complaints[0] + complaints[1];
}

}  // namespace

TEST_CASE("a step that nothing decides updates a share while gradients of earlier layers are made", "[sharding]")
{
  const optimizer::step_options options{.learning_rate = 0.01F, .skip_nonfinite = false};
  for (const sharding::zero& divided : {sharding::zero_1, sharding::zero_2, sharding::zero_3}) {
    CHECK(step_before_the_end(divided, updates::at_once, options) == "");
    CHECK(step_before_the_end(divided, updates::late, options) == "");
    CHECK(step_before_the_end(divided, updates::early, options) == "");
  }
}

TEST_CASE("with a limit on the norm an early update comes while gradients of earlier layers are made", "[sharding]")
{
  const optimizer::step_options options{.learning_rate = 0.01F, .clip = {.norm = 1e6F}};
  for (const sharding::zero& divided : {sharding::zero_1, sharding::zero_2, sharding::zero_3})
    CHECK(step_before_the_end(divided, updates::early, options) == "");
}

namespace {

/// Two ranks add the gradient of layer 1, which the compute agent makes behind a gather of layer 0, or gives up.
/// @return   whether the gather came before the sum of the gradient
template <class Ranks>
bool gathers_before_sum(Ranks& ranks)
{
  static constexpr std::uint64_t elements = 16384;
  const bytes frame{elements / 2 * sizeof(float)};
  backend::host_arena memory{{.device_capacity = frame * 32, .host_capacity = frame * 64, .async_compute = true}};
  const agent reader = memory.adopt();
  sharded_model<backend::host_arena, Ranks> m{memory, ranks, {.chunk_bytes = frame}};
  std::atomic<bool> has_begun = false;
  told_descent kernel{&has_begun};
  m.use(kernel);
  std::vector<tensor<float>> weights;
  for (std::uint32_t layer = 0; layer < 2; ++layer)
    weights.push_back(m.template add<float>({elements}, role::parameter));
  const auto room = m.template add<float>({elements}, role::activation);  // for the gather, apart from the gradient's
  for (const tensor<float> weight : weights) std::ranges::fill(m.acquire(weight, access::write).span(), 1.0F);
  std::atomic<bool> is_gathered = false;
  std::atomic<bool> came_first = true;
  bool has_right_weight = true;
  {
    auto scope = m.iteration();
    scope.pass(pass::backward);
    (void)m.acquire(room, access::write);
    auto gradient = m.gradient(weights[1], agent::compute);
    memory.launch(agent::compute, [to = gradient.data(), &is_gathered, &came_first]() noexcept {
      for (std::uint64_t tries = 0; !is_gathered && came_first; ++tries) {
        if (tries == 100'000'000) came_first = false;
        std::this_thread::yield();
      }
      std::fill_n(to, elements, 0.5F);
    });
    m.gradient_done(std::move(gradient));
    m.drop(room);
    const auto weight = m.acquire(weights[0], access::read, reader);
    memory.launch(reader, [from = weight.data(), &is_gathered, &has_right_weight]() noexcept {
      has_right_weight = std::all_of(from, from + elements, [](float value) { return value == 1.0F; });
      is_gathered = true;
    });
    m.settle();
    memory.wait(agent::host, memory.record(reader));
  }
  m.step(kernel, {.learning_rate = 1});
  const auto after = m.acquire(weights[1], access::read);
  return came_first && has_right_weight && after.span()[elements - 1] == 0.0F;  // 1 - (0.5 + 0.5)
}

/// Two ranks, whose sums have groups of their own, both answer `is_first(ranks)` with true.
template <class Question>
bool on_both_ranks(Question is_first)
{
  const sharding::thread_ranks gathers{2}, sums{2};
  bool said[2] = {};
  gathers.run([&](sharding::thread_ranks::place& here) {
    sharding::thread_ranks::place other{sums, here.rank()};
    sharding::sums_apart ranks{here.process_groups(), other.process_groups()};
    said[here.rank()] = is_first(ranks);
  });
  return said[0] && said[1];
}

}  // namespace

TEST_CASE(
    "a gather does not wait behind the sum of a gradient that is not made yet, where sums have groups of their own",
    "[sharding]")
{
  CHECK(on_both_ranks([](auto& ranks) { return gathers_before_sum(ranks); }));
}

namespace {

/// Two ranks gather a weight while their copies to the device wait for the compute agent. This agent waits for the
/// gather, or gives up.
/// @return   whether the gather came first
template <class Ranks>
bool gathers_before_copies(Ranks& ranks)
{
  static constexpr std::uint64_t elements = 16384;
  const bytes frame{elements / 2 * sizeof(float)};
  backend::host_arena memory{{.device_capacity = frame * 32, .host_capacity = frame * 64, .async_compute = true}};
  sharded_model<backend::host_arena, Ranks> m{memory, ranks, {.chunk_bytes = frame}};
  std::atomic<bool> has_begun = false;
  told_descent kernel{&has_begun};
  m.use(kernel);
  const auto weight = m.template add<float>({elements}, role::parameter);
  std::ranges::fill(m.acquire(weight, access::write).span(), 1.0F);
  std::atomic<bool> is_gathered = false;
  std::atomic<bool> came_first = true;
  auto scope = m.iteration();
  scope.pass(pass::forward);
  memory.launch(agent::compute, [&is_gathered, &came_first]() noexcept {
    for (std::uint64_t tries = 0; !is_gathered && came_first; ++tries) {
      if (tries == 100'000'000) came_first = false;
      std::this_thread::yield();
    }
  });
  memory.wait(agent::to_device, memory.record(agent::compute));
  const auto pin = m.acquire(weight, access::read, agent::compute);
  m.settle();
  is_gathered = true;
  memory.wait(agent::host, memory.record(agent::compute));
  return came_first && pin.span()[elements - 1] == 1.0F;
}

}  // namespace

TEST_CASE("a gather does not wait behind copies that wait for compute, where sums have groups of their own",
          "[sharding]")
{
  CHECK(on_both_ranks([](auto& ranks) { return gathers_before_copies(ranks); }));
}

TEST_CASE("shares go to the device with other copies where the backend has no agent left for them", "[sharding]")
{
  for (const std::size_t own : {0U, 1U}) {
    const sharding::thread_ranks gathers{1}, sums{1};
    gathers.run([&](sharding::thread_ranks::place& here) {
      sharding::thread_ranks::place other{sums, 0};
      sharding::sums_apart ranks{here.process_groups(), other.process_groups()};
      backend::host_arena memory{{.device_capacity = bytes{131072}, .host_capacity = bytes{262144}}};
      for (std::size_t number = 0; number < own; ++number) (void)memory.adopt();
      sharded_model<backend::host_arena, decltype(ranks)> m{memory, ranks, {.chunk_bytes = bytes{16384}}};
      CHECK(memory.agents() == max_agents);
      const auto weight = m.add<float>({256}, role::parameter);
      std::ranges::fill(m.acquire(weight, access::write).span(), 3.0F);
      auto scope = m.iteration();
      scope.pass(pass::forward);
      const auto pin = m.acquire(weight, access::read, agent::compute);
      m.settle();
      CHECK(pin.span()[255] == 3.0F);
    });
  }
}

namespace {

/// Two ranks with four layers train by a plan. Beside weights and shares the device has room for the gradients of two
/// layers. In the last step the compute agent of rank 1 makes the gradient of each layer when rank 0 makes that of the
/// layer below, or gives up.
/// @return   for how many layers it gave up
std::uint32_t sums_that_held_up_a_gradient()
{
  static constexpr std::uint64_t elements = 8192;
  constexpr std::uint32_t layers = 4;
  constexpr std::uint32_t steps = 8;
  const bytes frame{elements * sizeof(float)};
  std::atomic<std::uint32_t> begun = layers;  // the layer whose gradient rank 0 makes
  std::atomic<std::uint32_t> held_up = 0;
  sharding::thread_ranks{2}.run([&](sharding::thread_ranks::place& here) {
    backend::host_arena memory{{.device_capacity = frame * 8, .host_capacity = frame * 32, .async_compute = true}};
    sharded_model<backend::host_arena, collective::local_threads, transfer::planned> m{
        memory, here.all(), {.chunk_bytes = frame}, {.divided = sharding::zero_2}};
    std::atomic<bool> has_begun = false;
    told_descent kernel{&has_begun};
    m.use(kernel);
    std::vector<tensor<float>> weights;
    for (std::uint32_t layer = 0; layer < layers; ++layer) weights.push_back(m.add<float>({elements}, role::parameter));
    for (const tensor<float> weight : weights) std::ranges::fill(m.acquire(weight, access::write).span(), 1.0F);
    for (std::uint32_t step = 0; step < steps; ++step) {
      const bool is_watched = step + 1 == steps;
      auto scope = m.iteration();
      scope.pass(pass::forward);
      for (const tensor<float> weight : weights) (void)m.acquire(weight, access::read, agent::compute);
      scope.pass(pass::backward);
      for (std::uint32_t layer = layers; layer-- > 0;) {
        auto gradient = m.gradient(m.acquire(weights[layer], access::read, agent::compute));
        memory.launch(agent::compute, [to = gradient.data(), layer, is_watched, is_first = here.rank() == 0, &begun,
                                       &held_up]() noexcept {
          if (is_watched && is_first) begun = layer;
          for (std::uint64_t tries = 0; is_watched && !is_first && layer > 0 && begun >= layer; ++tries) {
            if (tries == 100'000'000 && ++held_up > 0) break;
            std::this_thread::yield();
          }
          std::fill_n(to, elements, 0.5F);
        });
        m.gradient_done(std::move(gradient));
      }
      m.step(kernel, {.learning_rate = 0.01F});
    }
  });
  return held_up;
}

}  // namespace

TEST_CASE("a gradient does not wait for the sum of the one before it, where the plan has another free frame",
          "[sharding]")
{
  CHECK(sums_that_held_up_a_gradient() == 0);
}

namespace {

using apart_ends = sharding::sums_apart<sharding::process_groups<collective::local_threads>>;

/// Two ranks that wait for a minute. Rank 1 does `gives_up`, and lives on unless that throws. Rank 0 waits for it, in
/// the sum of a gradient or in the gather of a weight.
/// @return   the error of rank 0
std::optional<comm_failure> told_by(
    bool waits_in_sum, call_ref<void(sharded_model<backend::host_arena, apart_ends>&, apart_ends&)> gives_up)
{
  static constexpr std::uint64_t elements = 16384;
  const bytes frame{elements / 2 * sizeof(float)};
  const collective::thread_group_options patient{.deadline = 60'000'000'000};
  const sharding::thread_ranks gathers{2, 0, patient}, sums{2, 0, patient};
  std::optional<comm_failure> told;
  std::latch has_heard{1};
  const auto work = [&](sharding::thread_ranks::place& here) {
    sharding::thread_ranks::place other{sums, here.rank()};
    apart_ends ranks{here.process_groups(), other.process_groups()};
    backend::host_arena memory{{.device_capacity = frame * 32, .host_capacity = frame * 64, .async_compute = true}};
    sharded_model<backend::host_arena, apart_ends> m{memory, ranks, {.chunk_bytes = frame}};
    std::atomic<bool> has_begun = false;
    told_descent kernel{&has_begun};
    m.use(kernel);
    const auto weight = m.add<float>({elements}, role::parameter);
    std::ranges::fill(m.acquire(weight, access::write).span(), 1.0F);
    auto scope = m.iteration();
    scope.pass(pass::backward);
    if (here.rank() == 1) {
      gives_up(m, ranks);
      has_heard.wait();
      return;
    }
    try {
      if (waits_in_sum) {
        {
          auto gradient = m.gradient(weight);
          std::ranges::fill(gradient.span(), 1.0F);
          m.gradient_done(std::move(gradient));
        }
        m.settle();
      } else {
        (void)m.acquire(weight, access::read);
      }
    } catch (const comm_error& failed) {
      told = failed.fault().failure;
    }
    has_heard.count_down();
  };
  try {
    gathers.run(work);
  } catch (const std::runtime_error&) {  // the rank that died
  }
  return told;
}

}  // namespace

TEST_CASE("the death of a rank ends the sums and the gathers of the others", "[sharding]")
{
  for (const bool waits_in_sum : {false, true}) {
    const std::optional<comm_failure> told =
        told_by(waits_in_sum, [](auto&, apart_ends&) { throw std::runtime_error{"a rank dies"}; });
    CHECK(told == comm_failure::peer_lost);
  }
}

TEST_CASE("a rank that gives up ends the sums and the gathers of all ranks", "[sharding]")
{
  for (const bool waits_in_sum : {false, true})
    CHECK(told_by(waits_in_sum, [](auto& m, apart_ends&) { m.revoke(); }) == comm_failure::revoked);
}

TEST_CASE("a rank that hears of a failure in the group of gathers or of sums ends the other one", "[sharding]")
{
  using ownership::process_group;
  for (const bool waits_in_sum : {false, true})
    CHECK(told_by(waits_in_sum, [waits_in_sum](auto& m, apart_ends& ranks) {
            (waits_in_sum ? ranks.of(process_group::all) : ranks.of_sums(process_group::all)).revoke();
            try {
              m.check();
            } catch (const comm_error&) {
              return;
            }
            throw std::logic_error{"a group that has ended was not noticed"};
          }) == comm_failure::revoked);
}

TEST_CASE("groups of sums that are of other ranks, or those of gathers, are refused", "[sharding]")
{
  const sharding::thread_ranks gathers{1}, sums{2};
  sharding::thread_ranks::place here{gathers, 0}, other{sums, 1};
  CHECK_THROWS_AS((sharding::sums_apart{here.all(), other.all()}), config_error);
  CHECK_THROWS_AS((sharding::sums_apart{here.all(), here.all()}), config_error);
  CHECK_THROWS_AS((sharding::sums_apart{here.process_groups(), here.process_groups()}), config_error);
}

}  // namespace out_of_core_test
