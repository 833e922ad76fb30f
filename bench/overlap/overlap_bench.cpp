// SPDX-License-Identifier: Apache-2.0
// Which part of the copying of a real training step does a plan hide behind the computing?
//
// The GPT of the example, 12 layers of width 128, eight micro-batches, on a throttled_arena: real bytes, copied by two
// threads, with kernels and updates on the calling thread. The device holds all bytes that a step needs, states
// included, or 1/2, 1/4 or 1/8 of them. Updates run on the device or on the host, at once or late. Early updates would
// be the same as those at once here: the calling thread computes, so every gradient is complete when the step begins.
// At each capacity below 1 the rate of both links is chosen so that the busier one is busy for 0.8 of the time that a
// step computes, with the bytes that the run without prefetching copies.
//
// The bound uses no measurement of a run with copies. It begins with the time of a step that has everything on the
// device, with the same kind of updates, and adds the time of `overlap::least_step` for the bytes that have to cross a
// link in backward passes and for the updates. All of these bytes lie in chunks, so the device holds no more of them
// than its whole frames have room for. The rows of one place and capacity are judged by the kind of updates whose
// planned step takes least.
//
// Time is the processor time of the calling thread and its waits for deadlines: other programs that take the processor
// do not count. The remaining noise comes from cache and memory bandwidth that others use. It makes the medians of runs
// that copy nothing differ by some percent. Each row shows the processor's part of its time: noise makes rows differ in
// that part, and plans make them differ in their waits. Wake-ups of threads are not in this time. The four runs take
// turns, step by step, and the clock of each stands still while another one runs.
#include "../transfer/planning_figures.hpp"
#include "model.hpp"
#include "overlap_bound.hpp"
#include "text.hpp"
#include "trainer.hpp"

#include <chunkmem/chunkmem.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
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
using overlap::moment;
using overlap::place;
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

/// The objects that all trainings share.
struct setup {
  gpt::training_text text = gpt::default_text();
  cm::optimizer::thread_pool workers{1};
  cm::bytes chunk = cm::align_up(cm::bytes{model_size.largest_tensor_bytes()}, cm::bytes{4096});
};

/// Seconds of a step and of its parts.
struct step_times : overlap::step_seconds {
  double waited = 0;  ///< of the whole, for copies
};

/// A training whose clock runs only while it takes a step.
class paced_training {
 public:
  paced_training(setup& with, place where, moment when, cm::bytes device, cm::bytes host, any_transfer transfer)
      : memory_{{.device_capacity = device, .host_capacity = host},
                support::links_alone(unthrottled, unthrottled),
                support::pace::caller},
        manager_{memory_,
                 {.chunk_bytes = with.chunk},
                 transfer,
                 cm::placement::update_share{where == place::device ? 1.0 : 0.0}},
        net_{gpt::declare(manager_, model_size, cm::dtype::float32)},
        trainer_{manager_, net_, with.text, {.schedule = {1e-3F, 100}}, with.workers},
        late_{manager_, trainer_.kernel(), with.workers},
        is_late_{when == moment::late}
  {
    memory_.stop_clock();
  }
  paced_training(const paced_training&) = delete;

  [[nodiscard]] cm::memory_requirement rehearse()
  {
    return manager_.rehearse([this] { take(0); });
  }
  void fill() { gpt::fill(manager_, net_, 1); }
  void step()
  {
    memory_.start_clock();
    take(number_++);
    memory_.stop_clock();
  }
  /// The loss of the last step, after all waits.
  [[nodiscard]] float end()
  {
    late_.finish();
    return loss_;
  }
  void take_rates(double up, double down) { memory_.take_costs(support::links_alone(up, down)); }
  /// Starts the measurement.
  void begin()
  {
    seconds_.clear();
    begin_ = manager_.report();
  }
  /// Medians of the steps since `begin`, each part by itself.
  [[nodiscard]] step_times median() const
  {
    return {{middle(&step_times::whole), middle(&step_times::forward), middle(&step_times::between),
             middle(&step_times::backward), middle(&step_times::update)},
            middle(&step_times::waited)};
  }
  /// The bytes that the bound needs. Backward passes read no bias and no position. The head reads the final
  /// norm behind the forward pass, where its late update runs too, so the bytes of updates are those of the others.
  [[nodiscard]] overlap::step_work work(place where, moment when) const
  {
    double read = 4.0 * static_cast<double>(net_.head_table.elements + net_.final_norm.elements);
    for (const gpt::layer_weights& it : net_.layers)
      for (const gpt::weight& each : {it.attention_norm, it.qkv, it.projection, it.mlp_norm, it.expand, it.contract})
        read += 4.0 * static_cast<double>(each.elements);
    for (const gpt::row_activations& row : net_.rows) {
      read += 4.0 * static_cast<double>(manager_.info(row.output).extents.elements());
      for (const gpt::saved_layer& saved : row.layers)
        for (const auto& tensor : gpt::of_layer(saved))
          read += 4.0 * static_cast<double>(manager_.info(tensor).extents.elements());
    }
    read += 4.0 * static_cast<double>(model_size.parameters());  // gradients
    const double updated = static_cast<double>(model_size.parameters() - net_.final_norm.elements);
    return {where, when, static_cast<int>(model_size.micro_batches), 4 * updated, 4 * updated, 8 * updated, read};
  }
  /// Bytes copied by a step since `begin`, on average.
  [[nodiscard]] double bytes_up() const { return per_step(moved().loaded); }
  [[nodiscard]] double bytes_down() const { return per_step(moved().written_back); }

 private:
  /// An iteration that reads the clock where passes begin.
  template <class Iteration>
  struct timed_passes {
    Iteration& inner;
    const support::throttled_arena& memory;
    std::uint64_t first_backward = 0;
    std::uint64_t last_backward = 0;
    std::uint64_t between = 0;  ///< of all backward passes but the first and the last

    void pass(cm::pass kind, std::uint32_t micro_batch)
    {
      if (kind == cm::pass::forward && micro_batch > 1) between += memory.now() - last_backward;
      inner.pass(kind, micro_batch);
      if (kind != cm::pass::backward) return;
      last_backward = memory.now();
      if (micro_batch == 0) first_backward = last_backward;
    }
  };

  void take(std::size_t number)
  {
    const std::uint64_t begin = memory_.now();
    const std::uint64_t waited = memory_.waited();
    auto iteration = manager_.iteration(static_cast<std::uint32_t>(model_size.micro_batches));
    timed_passes<decltype(iteration)> passes{iteration, memory_};
    loss_ = trainer_.gradient(number, passes);
    const std::uint64_t turn = memory_.now();
    if (is_late_)
      late_.step({.learning_rate = trainer_.learning_rate(number)});
    else
      trainer_.finish(number);
    const auto seconds = [](std::uint64_t from, std::uint64_t to) { return static_cast<double>(to - from) / 1e9; };
    const std::uint64_t now = memory_.now();
    seconds_.push_back({{seconds(begin, now), seconds(begin, passes.first_backward),
                         seconds(0, passes.between) / static_cast<double>(model_size.micro_batches - 2),
                         seconds(passes.last_backward, turn), seconds(turn, now)},
                        seconds(waited, memory_.waited())});
  }
  [[nodiscard]] double middle(double step_times::*part) const
  {
    std::vector<double> sorted;
    for (const step_times& each : seconds_) sorted.push_back(each.*part);
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
  cm::optimizer::late_updates<manager_type, cm::optimizer::adam, cm::optimizer::thread_pool> late_;
  bool is_late_;
  cm::report begin_;
  std::vector<step_times> seconds_;
  std::size_t number_ = 0;
  float loss_ = 0;
};

/// What one kind of updates came to at one capacity.
struct outcome {
  double seconds = std::numeric_limits<double>::infinity();  ///< of a planned step
  double over_bound = 0;
  double gain = std::numeric_limits<double>::infinity();  ///< of planned, as a part of the loss of no_prefetch
};

void print(const char* name, const paced_training& run, double bound)
{
  const step_times seconds = run.median();
  std::printf(
      "  %-12s %7.0f tokens/s, %.3f of the bound's time; the processor %.3f s, waits %.3f s; %.2f MiB up, %.2f MiB "
      "down\n",
      name, static_cast<double>(model_size.tokens_per_step()) / seconds.whole, seconds.whole / bound,
      seconds.whole - seconds.waited, seconds.waited, run.bytes_up() / 1048576, run.bytes_down() / 1048576);
}

outcome measure(setup& with, const cm::memory_requirement& need, place where, moment when, std::uint64_t part,
                bool& losses_agree)
{
  const cm::bytes room = need.everything + 4 * with.chunk;
  const cm::bytes host = 2 * need.chunks + with.chunk;
  const cm::bytes device{need.everything.count() / part};
  paced_training uncapped{with, place::device, when, room, host, any_transfer{cm::transfer::lookahead{}}};
  paced_training on_demand{with, where, when, device, host, any_transfer{cm::transfer::no_prefetch{}}};
  paced_training ahead{with, where, when, device, host, any_transfer{cm::transfer::lookahead{}}};
  paced_training planned{with, where, when, device, host, any_transfer{cm::transfer::planned{}}};
  paced_training* const runs[] = {&uncapped, &on_demand, &ahead, &planned};
  const auto in_turns = [&](int count) {
    for (int turn = 0; turn < count; ++turn)
      for (paced_training* it : runs) it->step();
  };
  for (paced_training* it : runs) it->fill();
  in_turns(warm_up);
  for (paced_training* it : runs) it->begin();
  in_turns(steps);  // links are free: measures the computing and the bytes of a step
  const double busier = std::max(on_demand.bytes_up(), on_demand.bytes_down());
  const double rate = busier > 0 ? busier / (copying_over_compute * uncapped.median().whole) : unthrottled;
  for (paced_training* it : {&on_demand, &ahead, &planned}) it->take_rates(rate, rate);
  in_turns(settling);
  for (paced_training* it : runs) it->begin();
  in_turns(steps);

  const step_times compute = uncapped.median();
  const double frames = static_cast<double>(device.count() / with.chunk.count() * with.chunk.count());
  const double bound = overlap::least_step(planned.work(where, when), compute, frames, rate);
  std::printf(
      "1/%llu, updates %s on the %s: device %.2f MiB, a step computes %.3f s, of that %.3f s from its last gradient "
      "to its end, %.3f s in the first forward pass and %.3f s in a backward pass; links of %.1f MiB/s; bound %.3f s\n",
      static_cast<unsigned long long>(part), when == moment::late ? "late" : "at once",
      where == place::device ? "device" : "host", static_cast<double>(device.count()) / 1048576, compute.whole,
      compute.update, compute.forward, compute.between, rate / 1048576, bound);
  print("no_prefetch", on_demand, bound);
  print("lookahead", ahead, bound);
  print("planned", planned, bound);
  outcome seen{planned.median().whole, planned.median().whole / bound};
  if (busier > 0) {
    seen.gain = (on_demand.median().whole - seen.seconds) / (on_demand.median().whole - bound);
    std::printf("  planned gains %.3f of what no_prefetch loses\n", seen.gain);
  }
  const float loss = uncapped.end();
  for (paced_training* it : runs) losses_agree = it->end() == loss && losses_agree;
  std::fflush(stdout);
  return seen;
}

}  // namespace

int main()
{
  setup with;
  const cm::memory_requirement need = paced_training{with,      place::device, moment::at_once,
                                                     boundless, boundless,     any_transfer{cm::transfer::lookahead{}}}
                                          .rehearse();
  std::printf("%llu parameters, %llu chunks of %.0f KiB; a step needs %.2f MiB on the device\n",
              static_cast<unsigned long long>(model_size.parameters()),
              static_cast<unsigned long long>(need.chunks.count() / with.chunk.count()),
              static_cast<double>(with.chunk.count()) / 1024, static_cast<double>(need.everything.count()) / 1048576);
  double over_bound = 0;
  double gain = std::numeric_limits<double>::infinity();
  bool losses_agree = true;
  for (const place where : {place::device, place::host})
    for (const std::uint64_t part : {2U, 4U, 8U}) {
      outcome best;
      for (const moment when : {moment::at_once, moment::late}) {
        const outcome seen = measure(with, need, where, when, part, losses_agree);
        if (seen.seconds < best.seconds) best = seen;
      }
      over_bound = std::max(over_bound, best.over_bound);
      gain = std::min(gain, best.gain);
    }
  if (!losses_agree) std::printf("the runs have different losses: bytes were lost\n");
  const int missed = transfer_bench::write_figures(
      "overlap_bench", {{"transfer.overlap_step_over_bound_worst", over_bound, "ratio", "<=", 1.10},
                        {"transfer.overlap_gain_over_possible_least", gain, "ratio", ">=", 0.8}});
  return losses_agree ? missed : 1;
}
