// SPDX-License-Identifier: Apache-2.0
// The bytes that one step of a sharded model moves over links, and its results where a rank dies at any of its
// collectives.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/manager/rehearsal.hpp>
#include <chunkmem/optimizer/early_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/catch.hpp>
#include <support/counting_ranks.hpp>
#include <support/failing.hpp>
#include <support/figures.hpp>
#include <support/rank_threads.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace step_of_ranks_test {

using namespace chunkmem;
using collective::operation;
using support::counting_ranks;
using support::failing;
using memory_type = failing<backend::host_arena>;

enum class when { at_once, late, early };

/// A stack of layers, each a unit of its own; at each turn of a pass a workspace wants the whole device, or less.
template <class Element>
class layers {
 public:
  using model_type = sharded_model<memory_type, counting_ranks>;
  static constexpr std::uint32_t count = 5;

  layers(memory_type& memory, counting_ranks& ranks, bytes frame, sharding::zero divided = sharding::zero_3,
         std::optional<bytes> workspace = {})
      : m_{memory, ranks, {.chunk_bytes = frame}, {.divided = divided}},
        workspace_{workspace.value_or(memory.capacity(tier::device))}
  {
    m_.use(kernel_);
    const std::uint64_t elements = frame.count() / sizeof(Element);
    for (std::uint32_t index = 0; index < count; ++index)
      weights_.push_back(m_.template add<Element>({elements}, role::parameter));
    for (const auto it : weights_) {
      const auto pin = m_.acquire(it, access::write);
      for (Element& value : pin.span()) value = round_to<Element>(0.5F);
    }
  }

  [[nodiscard]] memory_requirement rehearse(std::uint32_t micro_batches)
  {
    return m_.rehearse([&] { step(micro_batches); });
  }
  void step(std::uint32_t micro_batches, when time = when::at_once)
  {
    auto scope = m_.iteration(micro_batches);
    for (std::uint32_t batch = 0; batch < micro_batches; ++batch) {
      scope.pass(pass::forward, batch);
      for (const auto it : weights_) (void)m_.acquire(it, access::read).size();
      clear();
      scope.pass(pass::backward, batch);
      for (std::uint32_t index = count; index-- > 0;) {
        const auto gradient = m_.gradient(m_.acquire(weights_[index], access::read));
        if (!m_.rehearsing())
          for (Element& value : gradient.span()) value = round_to<Element>(0.25F);
      }
      for (std::uint32_t index = count; index-- > 0;) m_.gradient_done(weights_[index]);
      clear();
    }
    const optimizer::step_options options{.learning_rate = 0.1F, .clip = {.norm = time == when::early ? 1e9F : 1.0F}};
    switch (time) {
      case when::late: (void)late_.step(options); break;
      case when::early: (void)early_.step(options); break;
      default: (void)m_.step(kernel_, options);
    }
  }

 private:
  void clear() { (void)m_.lease(tier::device, workspace_).size(); }

  model_type m_;
  optimizer::sgd kernel_{{}};
  optimizer::late_updates<model_type, optimizer::sgd> late_{m_, kernel_};
  optimizer::early_updates<model_type, optimizer::sgd> early_{m_, kernel_, bytes{1 << 18}};
  bytes workspace_;
  std::vector<tensor<Element>> weights_;
};

void write_figure(const std::string& stage, double over)
{
  if (support::sanitized) return;  // it tries fewer ranks
  support::write_figures("test_sharding_" + stage, "build/test/bin/test_sharding",
                         {{"sharding.bytes_over_formula_" + stage, over, "", "==", 1}});
}

/// The operations that gather or add a model, and their number in a step: the table of docs/policies/ownership.md.
std::uint64_t rounds(const sharding::zero& divided, std::uint32_t micro_batches)
{
  return (divided.parameters ? 2 * micro_batches : 1) + (divided.gradients ? micro_batches : 1);
}

/// Bytes that one rank of `ranks` receives for gathers and sums in a step, over `rounds` times M (W-1)/W elements: in
/// stage 3 and 16 bits (4 k + 2 k) M (W-1)/W.
template <class Element>
std::vector<double> bytes_over_formula(std::uint32_t ranks, std::uint32_t micro_batches, const sharding::zero& divided)
{
  std::vector<double> over(ranks, 0);
  const bytes frame{std::uint64_t{ranks} * 4096 * 4};
  const collective::thread_group group{ranks, {}};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    memory_type memory{support::failure_plan{},
                       backend::host_arena_options{.device_capacity = frame * 14, .host_capacity = frame * 30}};
    collective::local_threads here{group, rank_id{rank}};
    counting_ranks counted{here};
    layers<Element> trainer{memory, counted, frame, divided};
    trainer.step(micro_batches);  // the first one is recorded
    counted.counts = {};
    constexpr std::uint32_t steps = 3;
    for (std::uint32_t step = 0; step < steps; ++step) trainer.step(micro_batches);
    const std::uint64_t moved =
        counted.counts[operation::all_gather].received + counted.counts[operation::reduce_scatter].received;
    const std::uint64_t model = layers<Element>::count * frame.count();  // in 16 bits 2 B for each parameter
    const std::uint64_t wanted = rounds(divided, micro_batches) * model / ranks * (ranks - 1) * steps;
    over[rank] = static_cast<double>(moved) / static_cast<double>(wanted);
    // measures of each unit, and one agreement, which has all settings
    if (counted.counts[operation::exchange].calls != steps * (layers<Element>::count + 1)) over[rank] = -1;
  });
  return over;
}

double worst_of(const sharding::zero& divided)
{
  double worst = 1;
  for (const std::uint32_t ranks : {2U, 3U, 4U, 8U})
    for (const std::uint32_t micro_batches : {1U, 3U}) {
      if (support::sanitized && ranks > 3) continue;  // counts are the same whatever threads do
      INFO(ranks << " ranks, " << micro_batches << " micro-batches");
      for (const double over : bytes_over_formula<bf16>(ranks, micro_batches, divided)) {
        CHECK(over == 1.0);
        if (over > worst || over < worst) worst = over;
      }
      for (const double over : bytes_over_formula<float>(ranks, micro_batches, divided)) CHECK(over == 1.0);
    }
  return worst;
}

TEST_CASE("a step gathers each unit once in each pass and sums it once in each micro-batch", "[sharding]")
{
  write_figure("stage3", worst_of(sharding::zero_3));
  (void)worst_of(sharding::zero_3_reduce_last);
}

TEST_CASE("where weights are kept a step gathers each unit once, and sums it once or in each micro-batch", "[sharding]")
{
  write_figure("stage2", worst_of(sharding::zero_2));
  write_figure("stage1", worst_of(sharding::zero_1));
}

/// The number of gathers of the weights in a step of four micro-batches.
struct gathers {
  double counted = 0;
  double expected = 0;  // by the rule of configurator::moved_by, which has a test of its own
};

/// @param frames   of the device
gathers gathers_with_room(std::uint32_t frames)
{
  constexpr std::uint32_t ranks = 2, micro_batches = 4;
  const bytes frame{std::uint64_t{ranks} * 4096 * 4};
  std::vector<std::uint64_t> gathered(ranks, 0), summed(ranks, 0);
  gathers found;
  const collective::thread_group group{ranks, {}};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    memory_type memory{support::failure_plan{},
                       backend::host_arena_options{.device_capacity = frame * frames, .host_capacity = frame * 30}};
    collective::local_threads here{group, rank_id{rank}};
    counting_ranks counted{here};
    layers<bf16> trainer{memory, counted, frame, sharding::zero_3, bytes{1}};
    const memory_requirement need = trainer.rehearse(micro_batches);
    trainer.step(micro_batches);
    counted.counts = {};
    trainer.step(micro_batches);
    gathered[rank] = counted.counts[operation::all_gather].received;
    summed[rank] = counted.counts[operation::reduce_scatter].received;
    if (rank != 0) return;
    const auto stays = static_cast<double>((memory.capacity(tier::device) - need.smallest_device).count());
    const double share = std::max(0.0, 1 - stays / static_cast<double>(need.by_role[role::gathered].count()));
    found.expected = (1 - share) + 2 * micro_batches * share;
  });
  const std::uint64_t model = layers<bf16>::count * frame.count() / ranks * (ranks - 1);
  CHECK(gathered[0] == gathered[1]);
  CHECK(summed == std::vector<std::uint64_t>(ranks, micro_batches * model));
  found.counted = static_cast<double>(gathered[0]) / static_cast<double>(model);
  return found;
}

TEST_CASE("divided weights are gathered once in a step where a device has room for them", "[sharding]")
{
  CHECK(gathers_with_room(30).counted == 1.0);
}

TEST_CASE("as many divided weights stay whole as have room above the smallest device, or nearly as many", "[sharding]")
{
  double before = 9;
  for (std::uint32_t frames = 6; frames <= 14; frames += support::sanitized ? 3 : 1) {
    const gathers found = gathers_with_room(frames);
    CAPTURE(frames, found.counted, found.expected);
    CHECK(found.counted <= before);
    CHECK(found.expected >= found.counted / 2);
    CHECK(found.expected <= found.counted * 2);
    before = found.counted;
  }
}

/// The rank throws at a call of its communicator, as if it had died there.
struct death : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A rank dies at each collective of a step in turn. @param least   collectives that a step has   @return   the slowest
/// end of a rank [s]
double die_everywhere(const sharding::zero& divided, std::uint64_t least, when time = when::at_once)
{
  constexpr std::uint32_t ranks = 3;
  constexpr std::uint64_t deadline = 500'000'000;  // nanoseconds
  const bytes frame{std::uint64_t{ranks} * 4096 * 4};
  std::uint64_t calls = 0;
  double slowest = 0;
  for (std::uint64_t fatal = 0; fatal <= calls; ++fatal) {
    std::vector<std::string> ends(ranks);
    std::vector<double> seconds(ranks, 0);
    std::uint64_t of_step = 0;
    const collective::thread_group group{ranks, {.deadline = deadline}};
    support::on_ranks(ranks, [&](std::uint32_t rank) {
      auto died = std::chrono::steady_clock::now();
      try {
        memory_type memory{support::failure_plan{},
                           backend::host_arena_options{.device_capacity = frame * 14, .host_capacity = frame * 30}};
        collective::local_threads here{group, rank_id{rank}};
        counting_ranks counted{here};
        layers<float> trainer{memory, counted, frame, divided};
        trainer.step(1, time);
        const std::uint64_t first = counted.calls;
        if (rank == 1)
          counted.before = [&](std::uint64_t now) {
            if (now == first + fatal) throw death{"dies"};
          };
        died = std::chrono::steady_clock::now();
        trainer.step(1, time);
        trainer.step(1, time);  // a death at the last collective is heard of in the next step
        ends[rank] = "ended";
        if (rank == 0) of_step = (counted.calls - first) / 2;
      } catch (const death&) {
        ends[rank] = "died";
      } catch (const comm_error&) {
        ends[rank] = "comm_error";
      } catch (const std::exception& other) {
        ends[rank] = other.what();
      }
      seconds[rank] = std::chrono::duration<double>(std::chrono::steady_clock::now() - died).count();
    });
    if (fatal == 0) {
      CHECK(ends == std::vector<std::string>{"comm_error", "died", "comm_error"});
      calls = least;
    } else {
      INFO("at call " << fatal);
      CHECK(ends == std::vector<std::string>{"comm_error", "died", "comm_error"});
    }
    for (const double it : seconds) slowest = std::max(slowest, it);
  }
  return slowest;
}

TEST_CASE("where a rank dies at any collective of a step, every other one has an error within its deadline",
          "[sharding]")
{
  // Gathers of two passes, sums, and an agreement; where weights are kept, gathers behind the update.
  const double divided = die_everywhere(sharding::zero_3, 3 * layers<float>::count + 1);
  const double kept = die_everywhere(sharding::zero_2, 2 * layers<float>::count + 1);
  std::cout << "slowest end of a rank: " << divided << " s and " << kept
            << " s behind the begin of the step, deadline 0.5 s\n";
}

TEST_CASE("so it is at every collective of late and early steps", "[sharding]")
{
  for (const when time : {when::late, when::early}) {
    INFO((time == when::late ? "late" : "early"));
    (void)die_everywhere(sharding::zero_3, 3 * layers<float>::count + 1, time);
    (void)die_everywhere(sharding::zero_2, 2 * layers<float>::count + 1, time);
  }
}

/// Fails once, at the begin of an update or a measure.
struct failing_workers {
  mutable int until = -1;  // calls that succeed before; negative: all
  [[nodiscard]] unsigned threads() const
  {
    if (until >= 0 && until-- == 0) throw std::runtime_error{"no thread"};
    return 1;
  }
  template <class Work>
  void run(unsigned parts, Work&& work) const
  {
    for (unsigned part = 0; part < parts; ++part) work(part);
  }
};

/// One rank. Three tensors share a unit, and a fourth has one of its own.
struct shared_unit {
  using model_type = sharded_model<backend::host_arena, collective::local_threads>;

  shared_unit()
  {
    m.use(kernel);
    for (int index = 0; index < 3; ++index) weights.push_back(m.add<float>({100}, role::parameter));
    weights.push_back(m.add<float>({16384}, role::parameter));
    for (const auto it : weights) std::ranges::fill(m.acquire(it, access::write).span(), 1.0F);
  }
  void differentiate(std::size_t index)
  {
    auto gradient = m.gradient(m.acquire(weights[index], access::read));
    std::ranges::fill(gradient.span(), 0.25F);
    m.gradient_done(std::move(gradient));
  }
  void differentiate_all()
  {
    for (std::size_t index = 0; index < weights.size(); ++index) differentiate(index);
  }
  [[nodiscard]] std::vector<float> values()
  {
    std::vector<float> all;
    for (const auto it : weights) {
      const auto pin = m.acquire(it, access::read);
      all.insert(all.end(), pin.span().begin(), pin.span().end());
    }
    return all;
  }

  backend::host_arena memory{{.device_capacity = bytes{2 << 20}, .host_capacity = bytes{8 << 20}}};
  const collective::thread_group group{1};
  collective::local_threads ranks{group, rank_id{0}};
  model_type m{memory, ranks, {.chunk_bytes = bytes{65536}}};
  optimizer::sgd kernel{{.momentum = 0.5F}};
  const failing_workers workers;
  optimizer::early_updates<model_type, optimizer::sgd, const failing_workers> early{m, kernel, bytes{1 << 20}, workers};
  std::vector<tensor<float>> weights;
};

/// @param fails   call of the workers that fails in the second step; negative: none
/// @param spoilt   the second step is undone   @return   the weights after three steps, and whether a call failed
std::pair<std::vector<float>, bool> three_steps(int fails, bool spoilt)
{
  shared_unit it;
  bool has_failed = false;
  for (int step = 0; step < 3; ++step) {
    const auto iteration = it.m.iteration();
    it.differentiate_all();
    if (step == 1) it.workers.until = fails;
    const optimizer::step_options options{.learning_rate = 0.5F, .clip = {.norm = spoilt && step == 1 ? 10.0F : 1e6F}};
    try {
      (void)it.early.step(options);
    } catch (const std::runtime_error&) {
      has_failed = true;
      (void)it.early.step(options);
    }
    it.workers.until = -1;
  }
  return {it.values(), has_failed};
}

TEST_CASE("an early update that fails in the middle of a share is undone as a whole", "[sharding]")
{
  for (const bool spoilt : {false, true}) {
    const std::vector<float> right = three_steps(-1, spoilt).first;
    int failures = 0;
    for (auto found = three_steps(0, spoilt); found.second; found = three_steps(++failures, spoilt)) {
      INFO("call " << failures);
      CHECK(found.first == right);
    }
    CHECK(failures >= 4);  // four runs
  }
}

/// @param fails   the second step is called before its last gradient is made, and updates nothing
/// @return   its norm, and the weights after it
std::pair<double, std::vector<float>> step_with_a_later_gradient(bool fails)
{
  shared_unit it;
  // the norm of all gradients is above the limit: 32.29, and 32.19 without the last one
  const optimizer::step_options options{.learning_rate = 0.5F, .clip = {.norm = 32.2F}};
  double norm = 0;
  for (int step = 0; step < 2; ++step) {
    const auto iteration = it.m.iteration();
    for (const std::size_t index : {0U, 1U, 3U}) it.differentiate(index);
    if (step == 1 && fails) {
      it.workers.until = 0;
      CHECK_THROWS_AS(it.early.step(options), std::runtime_error);
    }
    it.differentiate(2);
    norm = it.early.step(options).norm;
  }
  return {norm, it.values()};
}

TEST_CASE("a gradient that is made after an early step has failed counts in the norm over ranks", "[sharding]")
{
  CHECK(step_with_a_later_gradient(true) == step_with_a_later_gradient(false));
}

TEST_CASE("no gradient is opened over ranks while a step is half done, so that it can be called again", "[sharding]")
{
  const auto train = [](bool is_early, bool fails) {
    shared_unit it;
    const auto take = [&] {
      const optimizer::step_options options{.learning_rate = 0.5F, .clip = {.norm = 1e6F}};
      is_early ? (void)it.early.step(options) : (void)it.m.step(it.kernel, options, it.workers);
    };
    for (int step = 0; step < 2; ++step) {
      const auto iteration = it.m.iteration();
      it.differentiate_all();
      if (step == 1 && fails) {
        it.workers.until = 1;  // behind the first tensor of a share
        CHECK_THROWS_AS(take(), std::runtime_error);
        CHECK_THROWS_AS((void)it.m.gradient(it.weights[0]), usage_error);
        CHECK_THROWS_AS(it.m.gradient_zero(it.weights[3]), usage_error);
      }
      take();
    }
    return it.values();
  };
  for (const bool is_early : {false, true}) CHECK(train(is_early, true) == train(is_early, false));
}

}  // namespace step_of_ranks_test
