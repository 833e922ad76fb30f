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
/// and backward the stage calls one by one.

namespace cm = chunkmem;
namespace pipe = chunkmem::pipeline;
namespace small = support::small;
using namespace cm::literals;
using arena = cm::backend::host_arena;
using manager = cm::manager<arena>;
using network = small::network<manager, support::chosen_planner>;

namespace {

constexpr std::uint32_t micro_batches = 4, batches = 4;
constexpr cm::bytes plenty = 256_KiB;

/// A stage with three layers and a skip connection. Odd batches have fewer rows.
class stage_of_layers {
 public:
  stage_of_layers(manager& m, std::uint32_t stage, std::uint32_t in_flight, std::string_view planner, bool is_last)
      : m_{m}, stage_{stage}, is_last_{is_last}
  {
    m_.use(kernel_);
    for (std::uint32_t slot = 0; slot < in_flight; ++slot) {
      networks_.push_back(std::make_unique<network>(
          m_,
          small::network_shape{.name = "stage " + std::to_string(stage) + " slot " + std::to_string(slot),
                               .skips = {{0, 2}}},
          support::chosen_planner{planner}, slot == 0 ? nullptr : networks_.front().get()));
      network& it = *networks_.back();
      it.fit_budget(support::chosen_planner{planner});
      it.input = [this, slot](const auto& run, std::uint64_t i) {
        if (stage_ == 0 || m_.rehearsing()) return small::datum(11, run.moment(), i);
        return reinterpret_cast<const float*>(inputs_[slot].data())[i];
      };
    }
    inputs_.resize(in_flight);
  }
  void fill()
  {
    networks_.front()->fill();
    loss_ = 0;  // of a rehearsal
  }
  /// As many micro-batches in flight as there are networks, then all of them back.
  void rehearsed_step()
  {
    for (std::uint32_t mb = 0; mb < micro_batches; ++mb) {
      forward({.step = {.micro_batch = mb}});
      if (mb + 1 >= networks_.size()) backward({.step = {.micro_batch = mb + 1 - count()}});
    }
    for (std::uint32_t mb = micro_batches - count() + 1; mb < micro_batches; ++mb)
      backward({.step = {.micro_batch = mb}});
    update({});
  }

  void forward(const pipe::forward_run& run)
  {
    network& it = take(run.step, run.input);
    if (run.step.micro_batch % micro_batches == 0)
      iteration_.reset(new iteration_type(networks_.front()->chain.iteration("train", micro_batches)));
    it.chain.forward(
        *iteration_,
        {.step = batch_of(run.step), .micro_batch = run.step.micro_batch % micro_batches, .rows = rows_of(run.step)});
    if (run.output.empty()) return;
    const auto out = m_.acquire(it.output(0), cm::access::read);
    float* const to = reinterpret_cast<float*>(run.output.data());
    std::fill_n(to, small::rows * small::width, 0.0F);
    std::copy_n(out.data(), rows_of(run.step) * small::width, to);
  }
  void backward(const pipe::backward_run& run)
  {
    network& it = take(run.step, run.input);
    const std::uint64_t count = rows_of(run.step) * small::width;
    if (is_last_) {
      loss_ += it.meet(0, rows_of(run.step), [](std::uint64_t i) { return 0.125F * static_cast<float>(i % 7); });
    } else {
      const auto slope = m_.acquire(it.slope(0), cm::access::write);
      if (!run.output_gradient.empty())
        std::copy_n(reinterpret_cast<const float*>(run.output_gradient.data()), count, slope.data());
    }
    it.chain.backward(*iteration_);
    if (!run.input_gradient.empty()) {
      const auto slope = m_.acquire(it.slope(0), cm::access::read);
      float* const to = reinterpret_cast<float*>(run.input_gradient.data());
      std::fill_n(to, small::rows * small::width, 0.0F);
      std::copy_n(slope.data(), count, to);
    }
    it.drop_slopes();
  }
  void update(const pipe::operation&)
  {
    iteration_.reset();
    small::update(m_, kernel_);
  }
  std::vector<float> collect()
  {
    std::vector<float> left{loss_};
    networks_.front()->collect(left);
    return left;
  }

 private:
  using iteration_type = decltype(std::declval<manager&>().iteration("train"));

  [[nodiscard]] std::uint32_t count() const { return static_cast<std::uint32_t>(networks_.size()); }
  [[nodiscard]] static std::uint64_t batch_of(const pipe::operation& step) { return step.micro_batch / micro_batches; }
  [[nodiscard]] static std::uint64_t rows_of(const pipe::operation& step)
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
  cm::optimizer::sgd kernel_{{.momentum = 0.9F}, {.masters = false}};
  std::vector<std::unique_ptr<network>> networks_;
  std::vector<std::span<const std::byte>> inputs_;  // by slot
  std::unique_ptr<iteration_type> iteration_;
  float loss_ = 0;
};

/// Loss and weights by stage. @param tight   on the smallest device that a rehearsal of each stage proves
std::vector<std::vector<float>> train(std::string_view planner, bool tight)
{
  const pipe::schedule plan =
      pipe::make_schedule(pipe::one_f_one_b{}, {.stages = 2, .micro_batches = micro_batches, .batches = batches});
  const std::vector<cm::bytes> inputs(2, small::frame);
  std::vector<std::vector<float>> left(2);
  pipe::thread_stages{plan}.run([&](pipe::thread_stages::place& here) {
    const std::uint32_t stage = here.stage();
    const pipe::boundary_buffers buffers{plan, stage, inputs};
    std::vector<std::byte> boundaries(buffers.size().count());
    cm::bytes device = plenty;
    const auto made = [&](manager& m) {
      return stage_of_layers{m, stage, plan.stage_count() - stage, planner, stage == 1};
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
    runner.run(it);
    left[stage] = it.collect();
  });
  return left;
}

}  // namespace

TEST_CASE("networks inside of stages have the bits of those that keep all activations", "[pipeline]")
{
  const auto kept = train("keep_all", false);
  REQUIRE(kept[1][0] > 0);
  for (const std::string_view planner : {"keep_all", "swap_all", "recompute_all", "karma"})
    for (const bool tight : {true, false}) {
      INFO("planner " << planner << (tight ? ", on the smallest device" : ""));
      CHECK(train(planner, tight) == kept);
    }
}

}  // namespace network_in_stage_test
