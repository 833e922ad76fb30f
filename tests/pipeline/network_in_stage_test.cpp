// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/karma.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/pipeline/stage_runner.hpp>
#include <chunkmem/pipeline/thread_stages.hpp>

#include <support/catch.hpp>
#include <support/chosen_planner.hpp>
#include <support/small_network.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace network_in_stage_test {

/// Networks of `checkpointed` inside of a stage of a pipeline: a network for each micro-batch in flight, whose forward
/// and backward the stage calls one by one. Evaluations, several instances, batches of other sizes, skip connections
/// and backward runs that are skipped have the bits of networks that keep all activations.

namespace cm = chunkmem;
namespace pipe = chunkmem::pipeline;
namespace small = support::small;
using namespace cm::literals;
using arena = cm::backend::host_arena;
using manager = cm::manager<arena>;
using network = small::network<manager, support::chosen_planner>;

namespace {

constexpr std::uint32_t batches = 4, skipped_batch = 2;
constexpr cm::bytes plenty = 512_KiB;
constexpr std::uint64_t numbers = small::rows * small::width;

/// A stage with three layers and a skip connection. Odd batches have fewer rows, and one batch has no backward. With
/// two instances, a boundary has two views of a batch, and the last stage draws them together.
class stage_of_layers {
 public:
  stage_of_layers(manager& m, std::uint32_t stage, std::uint32_t in_flight, std::string_view planner, bool is_last,
                  std::uint32_t instances, std::uint32_t micro_batches)
      : m_{m}, stage_{stage}, is_last_{is_last}, instances_{instances}, micro_batches_{micro_batches}
  {
    m_.use(kernel_);
    for (std::uint32_t slot = 0; slot < in_flight; ++slot) {
      networks_.push_back(std::make_unique<network>(
          m_,
          small::network_shape{.name = "stage " + std::to_string(stage) + " slot " + std::to_string(slot),
                               .skips = {{0, 2}},
                               .instances = instances},
          support::chosen_planner{planner}, slot == 0 ? nullptr : networks_.front().get()));
      network& it = *networks_.back();
      it.fit_budget(support::chosen_planner{planner});
      it.input = [this, slot](const auto& run, std::uint64_t i) {
        if (stage_ == 0 || m_.rehearsing()) return small::datum(11, run.moment(), i);
        return reinterpret_cast<const float*>(inputs_[slot].data())[run.instance() * numbers + i];
      };
    }
    inputs_.resize(in_flight);
  }
  void fill()
  {
    networks_.front()->fill();
    loss_ = evaluated_ = 0;  // of a rehearsal
  }
  /// As many micro-batches in flight as there are networks, then all of them back.
  void rehearsed_step()
  {
    for (std::uint32_t mb = 0; mb < micro_batches_; ++mb) {
      forward({.step = {.micro_batch = mb}});
      if (mb + 1 >= networks_.size()) backward({.step = {.micro_batch = mb + 1 - count()}});
    }
    for (std::uint32_t mb = micro_batches_ - count() + 1; mb < micro_batches_; ++mb)
      backward({.step = {.micro_batch = mb}});
    update({.version = 1});
    for (std::uint32_t mb = 0; mb < micro_batches_; ++mb) evaluate({.step = {.micro_batch = mb}});
  }

  void forward(const pipe::forward_run& run)
  {
    network& it = take(run.step, run.input);
    if (run.step.micro_batch % micro_batches_ == 0)
      iteration_.reset(new iteration_type(networks_.front()->chain.iteration("train", micro_batches_)));
    for (std::uint32_t view = 0; view < instances_; ++view)
      it.chain.forward(*iteration_, {.step = batch_of(run.step),
                                     .micro_batch = run.step.micro_batch % micro_batches_,
                                     .instance = view,
                                     .rows = rows_of(run.step)});
    if (run.output.empty()) return;
    std::ranges::fill(run.output, std::byte{});
    for (std::uint32_t view = 0; view < instances_; ++view) send(it.output(view), view, run.step, run.output);
  }
  void backward(const pipe::backward_run& run)
  {
    network& it = take(run.step, run.input);
    std::ranges::fill(run.input_gradient, std::byte{});
    if (batch_of(run.step) == skipped_batch) return it.chain.skip_backward();
    for (std::uint32_t view = 0; view < instances_; ++view)
      if (is_last_)
        loss_ += meet(it, view, rows_of(run.step));
      else if (const auto slope = m_.acquire(it.slope(view), cm::access::write); !run.output_gradient.empty())
        std::copy_n(reinterpret_cast<const float*>(run.output_gradient.data()) + view * numbers,
                    rows_of(run.step) * small::width, slope.data());
    it.chain.backward(*iteration_);
    if (!run.input_gradient.empty())
      for (std::uint32_t view = 0; view < instances_; ++view) send(it.slope(view), view, run.step, run.input_gradient);
    it.drop_slopes();
  }
  void update(const pipe::operation& step)
  {
    iteration_.reset();
    if (step.version != skipped_batch + 1) small::update(m_, kernel_);
  }
  /// Half of the rows, of the first view.
  void evaluate(const pipe::forward_run& run)
  {
    network& it = *networks_.front();
    inputs_.front() = run.input;
    if (run.step.micro_batch == 0)
      iteration_.reset(new iteration_type(it.chain.evaluation("evaluate", micro_batches_)));
    it.chain.evaluate(*iteration_, {.step = 100, .micro_batch = run.step.micro_batch, .rows = small::rows / 2});
    if (is_last_) evaluated_ += it.sum_of_output(small::rows / 2);
    if (!run.output.empty()) {
      std::ranges::fill(run.output, std::byte{});
      const auto out = m_.acquire(it.output(0), cm::access::read);
      std::copy_n(out.data(), numbers / 2, reinterpret_cast<float*>(run.output.data()));
    }
    if (run.step.micro_batch + 1 == micro_batches_) iteration_.reset();
  }
  std::uint32_t end = batches;
  [[nodiscard]] bool ends_before(std::uint32_t batch) const { return batch >= end; }
  std::vector<float> collect()
  {
    std::vector<float> left{loss_, evaluated_};
    networks_.front()->collect(left);
    return left;
  }

 private:
  using iteration_type = decltype(std::declval<manager&>().iteration("train"));

  [[nodiscard]] std::uint32_t count() const { return static_cast<std::uint32_t>(networks_.size()); }
  /// Two views come closer to each other, and to a target each.
  float meet(network& it, std::uint32_t view, std::uint64_t active)
  {
    const auto other = m_.acquire(it.output(instances_ - 1 - view), cm::access::read);
    return it.meet(view, active, [&](std::uint64_t i) {
      return 0.25F * other.data()[i] + 0.125F * static_cast<float>((i + 3 * view) % 7);
    });
  }
  void send(cm::tensor<float> from, std::uint32_t view, const pipe::operation& step, std::span<std::byte> to)
  {
    const auto pin = m_.acquire(from, cm::access::read);
    std::copy_n(pin.data(), rows_of(step) * small::width, reinterpret_cast<float*>(to.data()) + view * numbers);
  }
  [[nodiscard]] std::uint64_t batch_of(const pipe::operation& step) { return step.micro_batch / micro_batches_; }
  [[nodiscard]] std::uint64_t rows_of(const pipe::operation& step)
  {
    return batch_of(step) % 2 == 1 ? small::rows - 3 : small::rows;
  }
  network& take(const pipe::operation& step, std::span<const std::byte> input)
  {
    const std::uint32_t slot = step.micro_batch % count();
    inputs_[slot] = input;
    return *networks_[slot];
  }

  manager& m_;
  std::uint32_t stage_;
  bool is_last_;
  std::uint32_t instances_;
  std::uint32_t micro_batches_;
  cm::optimizer::sgd kernel_{{.momentum = 0.9F}, {.masters = false}};
  std::vector<std::unique_ptr<network>> networks_;
  std::vector<std::span<const std::byte>> inputs_;  // by slot
  std::unique_ptr<iteration_type> iteration_;
  float loss_ = 0, evaluated_ = 0;
};

/// Losses and weights by stage, with an evaluation after half of the batches and one at the end.
/// @param tight   on the smallest device that a rehearsal of each stage proves
template <class Generator>
std::vector<std::vector<float>> train(const Generator& order, std::uint32_t micro_batches, std::uint32_t instances,
                                      std::string_view planner, bool tight)
{
  const pipe::schedule plan =
      pipe::make_schedule(order, {.stages = 2, .micro_batches = micro_batches, .batches = batches});
  const std::vector<cm::bytes> inputs(2, small::frame * instances);
  std::vector<std::vector<float>> left(2);
  pipe::thread_stages{plan}.run([&](pipe::thread_stages::place& here) {
    const std::uint32_t stage = here.stage();
    const pipe::boundary_buffers buffers{plan, stage, inputs};
    std::vector<std::byte> boundaries(buffers.size().count());
    cm::bytes device = plenty;
    const auto made = [&](manager& m) {
      const std::uint32_t in_flight =
          plan.name == "gpipe" ? micro_batches : std::min(micro_batches, plan.stage_count() - stage);
      return stage_of_layers{m, stage, in_flight, planner, stage == 1, instances, micro_batches};
    };
    if (tight) {
      arena memory{{.device_capacity = device, .host_capacity = plenty}};
      manager m{memory, {.chunk_bytes = small::frame}};
      auto it = made(m);
      device = m.rehearse([&] { it.rehearsed_step(); }, cm::rehearse_on::scratch).smallest_device;
    }
    arena memory{{.device_capacity = device, .host_capacity = plenty}};
    manager m{memory, {.chunk_bytes = small::frame}};
    auto it = made(m);
    m.rehearse([&] { it.rehearsed_step(); }, cm::rehearse_on::scratch);
    it.fill();
    auto links = here.links(memory);
    pipe::stage_runner runner{plan, links, memory, buffers, boundaries};
    it.end = batches / 2;
    runner.run(it);
    runner.evaluate(it);
    it.end = batches;
    runner.run(it, batches / 2);
    runner.evaluate(it);
    left[stage] = it.collect();
  });
  return left;
}

/// @param half   each planner has one and two instances in turn, on another device each; else both on both
template <class Generator>
void has_the_bits_of_keep_all(const Generator& order, std::uint32_t micro_batches,
                              std::span<const std::string_view> planners, bool half)
{
  for (const std::uint32_t instances : {1U, 2U}) {
    const auto kept = train(order, micro_batches, instances, "keep_all", false);
    REQUIRE(kept[1][0] > 0);
    REQUIRE(kept[1][1] != 0);
    std::uint32_t number = 0;
    for (const std::string_view planner : planners) {
      ++number;
      for (const bool tight : {true, false}) {
        if (half && (number + instances + (tight ? 1 : 0)) % 2 == 0) continue;
        INFO(micro_batches << " micro-batches, " << instances << " instances, planner " << planner
                           << (tight ? ", on the smallest device" : ""));
        CHECK(train(order, micro_batches, instances, planner, tight) == kept);
      }
    }
  }
}

}  // namespace

TEST_CASE("networks inside of stages have the bits of those that keep all activations", "[pipeline]")
{
  constexpr std::string_view some[] = {"keep_all", "swap_all", "recompute_all", "karma"};
  has_the_bits_of_keep_all(pipe::one_f_one_b{}, 4, some, true);
  has_the_bits_of_keep_all(pipe::gpipe{}, 4, std::span{some}.last(1), true);
  has_the_bits_of_keep_all(pipe::one_f_one_b{}, 1, std::span{some}.last(1), true);
}

TEST_CASE("networks inside of stages have the bits of keep_all under every plan, device and accumulation",
          "[pipeline][.slow]")
{
  for (const std::uint32_t micro_batches : {1U, 4U}) {
    has_the_bits_of_keep_all(pipe::one_f_one_b{}, micro_batches, support::chosen_planner::names, false);
    has_the_bits_of_keep_all(pipe::gpipe{}, micro_batches, support::chosen_planner::names, false);
  }
}

}  // namespace network_in_stage_test
