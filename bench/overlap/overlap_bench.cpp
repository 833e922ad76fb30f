// SPDX-License-Identifier: Apache-2.0
// How much of the copying of a real training step does a plan hide behind the computing?
//
// The GPT of the example, 12 layers of width 128, eight micro-batches, on a throttled_arena: real bytes, copied by two
// threads, with kernels and updates on the calling thread. The device holds all that a step needs, states included, or
// 1/2, 1/4 or 1/8 of it. Updates run on the device, so at capacity 1 nothing moves. At each other capacity the rate of
// both links is chosen so that the busier one is busy for 0.8 of the time that a step computes, with the bytes that the
// planned run copies.
//
// The bound takes nothing from a run with copies. It begins with the time of a step that has everything on the device.
// Updates come after the last gradient. Each needs its gradient and its states on the device, and at the last gradient
// the device holds no more of these bytes than it has room for. The others come up while the updates run, so these take
// as long as their compute or as these loads, whichever is longer. What passes load and write back is not counted.
//
// Time is the processor time of the calling thread, and what it waited for deadlines: other programs that take the
// processor do not count. What is left of noise is cache and memory bandwidth that others use. It makes the medians of
// runs that copy nothing differ by some percent. Wake-ups of threads are not in this time. The four runs take turns,
// step by step, and the clock of each stands still while another one runs.
#include "../transfer/planning_figures.hpp"
#include "model.hpp"
#include "text.hpp"
#include "trainer.hpp"

#include <chunkmem/chunkmem.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <support/throttled_arena.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

namespace {

namespace cm = chunkmem;
using any_transfer =
    cm::transfer::any_transfer<cm::transfer::lookahead, cm::transfer::no_prefetch, cm::transfer::planned>;
using manager_type = cm::manager<support::throttled_arena, any_transfer, cm::placement::update_share>;

constexpr int warm_up = 6;   // the first iteration records, later ones may plan again
constexpr int settling = 2;  // steps with the rates that were chosen
constexpr int steps = 9;
constexpr double copying_over_compute = 0.8;
constexpr double unthrottled = 1e15;
constexpr gpt::extents model_size{
    .layers = 12, .width = 128, .heads = 4, .context = 32, .batch = 1, .micro_batches = 8};
constexpr cm::bytes boundless{std::uint64_t{1} << 50};

cm::backend::cost_table links(double up, double down)
{
  return {.to_device = {0, up},
          .to_host = {0, down},
          .within_device = {0, unthrottled},
          .within_host = {0, unthrottled},
          .launch_nanoseconds = 0};
}

/// What all trainings share.
struct setup {
  gpt::training_text text = gpt::default_text();
  cm::optimizer::thread_pool workers{1};
  cm::bytes chunk = cm::align_up(cm::bytes{model_size.largest_tensor_bytes()}, cm::bytes{4096});
};

/// A training whose clock runs only while it takes a step.
class paced_training {
 public:
  paced_training(setup& with, cm::bytes device, cm::bytes host, any_transfer transfer)
      : memory_{{.device_capacity = device, .host_capacity = host},
                links(unthrottled, unthrottled),
                support::pace::caller},
        manager_{memory_, {.chunk_bytes = with.chunk}, transfer, cm::placement::update_share{1.0}},
        net_{gpt::declare(manager_, model_size, cm::dtype::float32)},
        trainer_{manager_, net_, with.text, {.schedule = {1e-3F, 100}}, with.workers}
  {
    memory_.stop_clock();
  }
  paced_training(const paced_training&) = delete;

  [[nodiscard]] cm::memory_requirement rehearse()
  {
    return manager_.rehearse([this] { (void)trainer_.step(0); });
  }
  void fill() { gpt::fill(manager_, net_, 1); }
  void step()
  {
    memory_.start_clock();
    const std::uint64_t begin = memory_.now();
    {
      auto iteration = manager_.iteration(static_cast<std::uint32_t>(model_size.micro_batches));
      loss_ = trainer_.gradient(number_, iteration);
      const std::uint64_t turn = memory_.now();
      trainer_.finish(number_++);
      updates_.push_back(static_cast<double>(memory_.now() - turn) / 1e9);
    }
    seconds_.push_back(static_cast<double>(memory_.now() - begin) / 1e9);
    memory_.stop_clock();
  }
  void take_rates(double up, double down) { memory_.take_costs(links(up, down)); }
  /// Measures from here on.
  void begin()
  {
    seconds_.clear(), updates_.clear();
    begin_ = manager_.report();
  }
  /// Of the steps since `begin` [s].
  [[nodiscard]] double median() const { return middle(seconds_); }
  [[nodiscard]] double median_of_updates() const { return middle(updates_); }
  /// Copied by a step since `begin`, on average.
  [[nodiscard]] double bytes_up() const { return per_step(moved().loaded); }
  [[nodiscard]] double bytes_down() const { return per_step(moved().written_back); }
  [[nodiscard]] float loss() const { return loss_; }

 private:
  [[nodiscard]] static double middle(std::vector<double> sorted)
  {
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }
  [[nodiscard]] double per_step(cm::bytes all) const
  {
    return static_cast<double>(all.count()) / static_cast<double>(seconds_.size());
  }
  [[nodiscard]] cm::report moved() const { return manager_.report().copies_since(begin_); }

  support::throttled_arena memory_;
  manager_type manager_;
  gpt::model net_;
  gpt::trainer<manager_type> trainer_;
  cm::report begin_;
  std::vector<double> seconds_;
  std::vector<double> updates_;
  std::size_t number_ = 0;
  float loss_ = 0;
};

/// The worst of all capacities.
struct summary {
  double over_bound = 0;
  double gain = std::numeric_limits<double>::infinity();
  bool losses_agree = true;
};

void print(const char* name, const paced_training& run, double bound)
{
  std::printf("  %-12s %7.0f tokens/s, %.3f of the bound's time; %.2f MiB up, %.2f MiB down\n", name,
              static_cast<double>(model_size.tokens_per_step()) / run.median(), run.median() / bound,
              run.bytes_up() / 1048576, run.bytes_down() / 1048576);
}

void measure(setup& with, const cm::memory_requirement& need, std::uint64_t part, summary& all)
{
  const cm::bytes room = need.everything + 4 * with.chunk;
  const cm::bytes host = 2 * need.chunks + with.chunk;
  const cm::bytes device{need.everything.count() / part};
  paced_training uncapped{with, room, host, any_transfer{cm::transfer::lookahead{}}};
  paced_training on_demand{with, device, host, any_transfer{cm::transfer::no_prefetch{}}};
  paced_training ahead{with, device, host, any_transfer{cm::transfer::lookahead{}}};
  paced_training planned{with, device, host, any_transfer{cm::transfer::planned{}}};
  paced_training* const runs[] = {&uncapped, &on_demand, &ahead, &planned};
  const auto in_turns = [&](int count) {
    for (int turn = 0; turn < count; ++turn)
      for (paced_training* it : runs) it->step();
  };
  for (paced_training* it : runs) it->fill();
  in_turns(warm_up);
  for (paced_training* it : runs) it->begin();
  in_turns(steps);  // links cost nothing: says how long a step computes, and what it moves
  const double busier = std::max(planned.bytes_up(), planned.bytes_down());
  const double rate = busier > 0 ? busier / (copying_over_compute * uncapped.median()) : unthrottled;
  for (paced_training* it : {&on_demand, &ahead, &planned}) it->take_rates(rate, rate);
  in_turns(settling);
  for (paced_training* it : runs) it->begin();
  in_turns(steps);

  // 4 B of a gradient and 8 of states in float32
  const double updated = 12.0 * static_cast<double>(model_size.parameters());
  const double late = std::max(0.0, updated - static_cast<double>(device.count())) / rate;
  const double updates = uncapped.median_of_updates();
  const double bound = uncapped.median() - updates + std::max(updates, late);
  std::printf("1/%llu: device %.2f MiB, a step computes %.3f s, of that %.3f s for updates, whose loads take %.3f s\n",
              static_cast<unsigned long long>(part), static_cast<double>(device.count()) / 1048576, uncapped.median(),
              updates, late);
  print("no_prefetch", on_demand, bound);
  print("lookahead", ahead, bound);
  print("planned", planned, bound);
  all.over_bound = std::max(all.over_bound, planned.median() / bound);
  if (planned.bytes_up() + planned.bytes_down() > 0) {
    const double gain = (on_demand.median() - planned.median()) / (on_demand.median() - bound);
    std::printf("  planned gains %.3f of what no_prefetch loses\n", gain);
    all.gain = std::min(all.gain, gain);
  }
  for (const paced_training* it : runs) all.losses_agree = all.losses_agree && it->loss() == uncapped.loss();
  std::fflush(stdout);
}

}  // namespace

int main()
{
  setup with;
  const cm::memory_requirement need =
      paced_training{with, boundless, boundless, any_transfer{cm::transfer::lookahead{}}}.rehearse();
  std::printf("%llu parameters, %llu chunks of %.0f KiB; a step needs %.2f MiB on the device\n",
              static_cast<unsigned long long>(model_size.parameters()),
              static_cast<unsigned long long>(need.chunks.count() / with.chunk.count()),
              static_cast<double>(with.chunk.count()) / 1024, static_cast<double>(need.everything.count()) / 1048576);
  summary all;
  for (const std::uint64_t part : {1, 2, 4, 8}) measure(with, need, part, all);
  if (!all.losses_agree) std::printf("the runs have different losses: bytes were lost\n");
  const int missed = transfer_bench::write_figures(
      "overlap_bench", {{"transfer.overlap_step_over_bound_worst", all.over_bound, "ratio", "<=", 1.10},
                        {"transfer.overlap_gain_over_possible_least", all.gain, "ratio", ">=", 0.8}});
  return all.losses_agree ? missed : 1;
}
