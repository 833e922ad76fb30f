// SPDX-License-Identifier: Apache-2.0
// Is the split of updates that the first steps measure ever slower than the better of all updates on the host and all
// on the device?
//
// 20 random machines by seed: 1 to 4 ranks, and for each rank the rates of updates on the host and on the device, of
// both directions of the link, and of its port. For each machine also: ZeRO 1 to 3, the time of updates, a limit on the
// norm, and the room of the device. The real sharded_model trains on throttled_arena: real threads, real bytes.
// Compute, copies, collectives and updates take the time of the rates, by the clocks of the agents. split_updates does
// not get the rates of the machine.
//
// After the steps that measure, the held split and both extremes run in turn, three rounds in one process, each after
// steps that settle. A machine's ratio is the median over the rounds of the held split over the better extreme. Where
// the held split is an extreme, it is the same program as that extreme, which has run in the round already: its time is
// that of the extreme. The ratio of the second run to the first is printed as the noise of the machine.
//
//   measured_split_bench [first seed] [machines]
#include "../transfer/planning_figures.hpp"
#include "throttled_training.hpp"

#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/split_updates.hpp>
#include <chunkmem/optimizer/update_kernel.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <vector>

namespace {

using namespace out_of_core;

constexpr double compute_seconds = 0.06;  // of a step, forward and backward
constexpr int rounds = 3;
constexpr int settling = 6;  // steps after a change of the split
constexpr int measured_steps = 4;

/// The rates of one rank, and its port.
struct rank_rates {
  double host_updates = 0;  ///< parameters per second
  double device_updates = 0;
  double up = 0;  ///< bytes per second
  double down = 0;
  double port = 0;
};

/// A training on a random machine.
struct machine {
  std::uint64_t seed = 0;
  std::uint32_t ranks = 1;
  cm::sharding::zero divided;
  bool is_late = false;
  bool clips = false;
  std::uint32_t tensors = 0;
  std::uint32_t more_frames = 0;  ///< frames of the device above the least number
  std::vector<rank_rates> of_rank;

  [[nodiscard]] cm::bytes unit() const { return least_share * ranks; }
  [[nodiscard]] std::uint64_t elements() const { return unit().count() / 2; }  ///< of a tensor
  [[nodiscard]] double own_parameters() const { return static_cast<double>(tensors * elements()) / ranks; }
};

machine draw_machine(std::uint64_t seed)
{
  support::dice dice{seed};
  machine it;
  it.seed = seed;
  it.ranks = static_cast<std::uint32_t>(1 + seed % 4);
  constexpr cm::sharding::zero stages[] = {cm::sharding::zero_3, cm::sharding::zero_2, cm::sharding::zero_1};
  it.divided = stages[seed / 4 % 3];
  it.is_late = dice.one_in(3);
  it.clips = dice.one_in(2);
  it.tensors = dice.between(16, 32);
  it.more_frames = dice.between(8, 40);
  // from `least` to `most` times the compute, uniform in the logarithm
  const auto times = [&](double least, double most) {
    return least * std::pow(most / least, dice.between(0, 1000) / 1000.0) * compute_seconds;
  };
  const auto about = [&] { return dice.between(80, 125) / 100.0; };  // ranks of one machine differ
  const double parameters = it.own_parameters();
  const double host = times(0.3, 5);
  const double device = times(0.02, 0.5);
  const double up = times(0.2, 3);
  const double down = times(0.2, 3);
  for (std::uint32_t rank = 0; rank < it.ranks; ++rank)
    it.of_rank.push_back({parameters / host * about(), parameters / device * about(), 12 * parameters / up * about(),
                          12 * parameters / down * about(), 6 * parameters * it.ranks / (times(0.1, 0.5))});
  return it;
}

/// Runs kernels on the agent; an update takes the time of its parameters at a rate.
class throttled_launcher {
 public:
  explicit throttled_launcher(double parameters_per_second) : nanoseconds_{1e9 / parameters_per_second} {}

  template <class Kernel>
  void operator()(support::throttled_arena& memory, cm::agent stream, const Kernel& kernel) const
  {
    cm::optimizer::loop_launcher{}(memory, stream, kernel);
    if constexpr (is_update<Kernel>::value) {
      const double elements = static_cast<double>(kernel.count()) * 4;  // of a call
      memory.advance(stream, static_cast<std::uint64_t>(elements * nanoseconds_));
    }
  }

 private:
  template <class Kernel>
  struct is_update : std::false_type {};
  template <class Work, class Factors>
  struct is_update<cm::optimizer::update_kernel<Work, Factors>> : std::true_type {};
  double nanoseconds_;  // of a parameter
};

/// One rank's training without activations: only weights are moved and updated.
class rank_of_machine {
 public:
  using end_type = support::throttled_ranks<cm::collective::local_threads>;
  using model_type = cm::sharded_model<support::throttled_arena, end_type, any_transfer, cm::placement::update_share>;
  using updates_type = cm::optimizer::split_updates<model_type, throttled_launcher>;

  rank_of_machine(const machine& it, const rank_rates& rates, end_type& group, support::throttled_arena& memory)
      : machine_{it},
        memory_{memory},
        kernel_{memory, rates.host_updates},
        model_{memory,
               group,
               {.chunk_bytes = it.divided.parameters ? it.unit() : least_share},
               {.divided = it.divided, .sum_scale = 1.0F / static_cast<float>(it.ranks), .unit_bytes = it.unit()},
               any_transfer{cm::transfer::planned{}},
               cm::placement::update_share{}},
        updates_{model_, cm::on_this_thread, {}, throttled_launcher{rates.device_updates}},
        late_{model_, kernel_, updates_}
  {
    model_.use(kernel_);
    for (std::uint32_t index = 0; index < it.tensors; ++index)
      weights_.push_back(model_.add<cm::bf16>({it.elements()}, cm::role::parameter));
  }
  rank_of_machine(const rank_of_machine&) = delete;

  [[nodiscard]] cm::memory_requirement rehearse()
  {
    return updates_.rehearse([this] { step(); });
  }
  void fill()
  {
    for (const auto weight : weights_) {
      const auto pin = model_.acquire(weight, cm::access::write);
      std::ranges::fill(pin.span(), cm::round_to<cm::bf16>(1.0F));
    }
  }
  void step()
  {
    auto iteration = model_.iteration();
    const double forward = compute_seconds / 3 / machine_.tensors;
    for (const auto weight : weights_) {
      const auto pin = model_.acquire(weight, cm::access::read, compute);
      work(forward);
    }
    for (std::size_t index = weights_.size(); index-- > 0;) {
      {
        auto pin = model_.acquire(weights_[index], cm::access::read, compute);
        const auto gradient = model_.gradient(std::move(pin));
        work(2 * forward);
      }
      model_.gradient_done(weights_[index], compute);
    }
    const cm::optimizer::step_options options{.clip = {.norm = machine_.clips ? 1e6F : 0.0F},
                                              .skip_nonfinite = machine_.clips};
    if (machine_.is_late)
      late_.step(options);
    else
      model_.step(kernel_, options, updates_);
  }
  /// Seconds of a step with this share of the updates on the device.
  [[nodiscard]] double seconds_at(double share)
  {
    model_.finish_updates();
    model_.shares().use_placement({.device_share = share, .in_turn = true});
    for (int step_number = 0; step_number < settling; ++step_number) step();
    const auto begin = clock();
    for (int step_number = 0; step_number < measured_steps; ++step_number) step();
    return std::chrono::duration<double>{clock() - begin}.count() / measured_steps;
  }
  void finish() { model_.finish_updates(); }
  [[nodiscard]] updates_type& updates() noexcept { return updates_; }

 private:
  static constexpr cm::agent compute = cm::agent::compute;

  /// The time after all enqueued compute.
  [[nodiscard]] support::throttled_arena::moment clock()
  {
    memory_.wait(cm::agent::host, memory_.record(compute));
    return memory_.caller_clock();
  }
  void work(double seconds)
  {
    if (!model_.rehearsing()) memory_.advance(compute, static_cast<std::uint64_t>(std::llround(seconds * 1e9)));
  }

  const machine& machine_;
  support::throttled_arena& memory_;
  throttled_adam kernel_;
  model_type model_;
  updates_type updates_;
  cm::optimizer::late_updates<model_type, throttled_adam, updates_type> late_;
  std::vector<cm::tensor<cm::bf16>> weights_;
};

/// One rank on its own device, host and port.
struct throttled_machine {
  throttled_machine(const machine& it, cm::sharding::thread_ranks::place& here, support::clocks_of_ranks& clocks,
                    cm::bytes device, cm::bytes host)
      : memory{{.device_capacity = device, .host_capacity = host, .async_compute = true},
               support::links_alone(it.of_rank[here.rank()].up, it.of_rank[here.rank()].down),
               support::pace::agents},
        port{{0, it.of_rank[here.rank()].port}},
        group{here.all(), memory, port, clocks},
        rank{it, it.of_rank[here.rank()], group, memory}
  {
  }

  support::throttled_arena memory;
  support::network_port port;
  rank_of_machine::end_type group;
  rank_of_machine rank;
};

/// Seconds of a step of the slowest rank.
struct round_of_three {
  double held = 0;
  double host = 0;
  double device = 0;
};
struct measured_machine {
  cm::optimizer::measured_split split;
  std::vector<cm::transfer::update_rates> rates;
  std::array<round_of_three, rounds> all{};
  std::vector<double> ratios;  ///< of each round, sorted: the held split over the better extreme
  std::vector<double> noise;   ///< of each round, sorted: a held extreme over another run of the same extreme

  [[nodiscard]] bool is_extreme() const { return split.device_share == 0 || split.device_share == 1; }
};

measured_machine train(const machine& it)
{
  cm::memory_requirement need;
  constexpr cm::bytes boundless{std::uint64_t{1} << 46};
  support::clocks_of_ranks clocks_of_rehearsal;
  cm::sharding::thread_ranks{it.ranks}.run([&](cm::sharding::thread_ranks::place& here) {
    throttled_machine run{it, here, clocks_of_rehearsal, boundless, boundless};
    const cm::memory_requirement found = run.rank.rehearse();
    if (here.rank() == 0) need = found;
  });
  const cm::bytes device = need.smallest_device + it.unit() * it.more_frames;
  const cm::bytes host = 2 * need.chunks + 64 * it.unit();
  measured_machine result;
  result.rates.resize(it.ranks);
  std::vector<std::array<round_of_three, rounds>> of_rank(it.ranks);
  support::clocks_of_ranks clocks;
  cm::sharding::thread_ranks{it.ranks}.run([&](cm::sharding::thread_ranks::place& here) {
    throttled_machine run{it, here, clocks, device, host};
    rank_of_machine& rank = run.rank;
    (void)rank.rehearse();
    rank.fill();
    run.memory.begin_afresh();
    while (rank.updates().split().stage != cm::optimizer::split_stage::held) {
      rank.step();
      rank.updates().end_step();
    }
    const double share = rank.updates().split().device_share;
    if (here.rank() == 0) result.split = rank.updates().split();
    result.rates[here.rank()] = rank.updates().rates();
    for (round_of_three& round : of_rank[here.rank()])
      round = {rank.seconds_at(share), rank.seconds_at(0), rank.seconds_at(1)};
    rank.finish();
    for (std::size_t agent = 0; agent < run.memory.agents(); ++agent)
      run.memory.wait(cm::agent::host, run.memory.record(static_cast<cm::agent>(agent)));
  });
  for (int round = 0; round < rounds; ++round) {
    round_of_three& slowest = result.all[static_cast<std::size_t>(round)];
    for (const auto& each : of_rank) {
      const round_of_three& mine = each[static_cast<std::size_t>(round)];
      slowest.held = std::max(slowest.held, mine.held);
      slowest.host = std::max(slowest.host, mine.host);
      slowest.device = std::max(slowest.device, mine.device);
    }
    const double better = std::min(slowest.host, slowest.device);
    if (!result.is_extreme()) {
      result.ratios.push_back(slowest.held / better);
      continue;
    }
    const double same = result.split.device_share == 0 ? slowest.host : slowest.device;
    result.ratios.push_back(same / better);
    result.noise.push_back(slowest.held / same);
  }
  std::ranges::sort(result.ratios);
  std::ranges::sort(result.noise);
  return result;
}

/// The largest ratio of some machines.
struct worst_of {
  void add(std::uint64_t of, double found)
  {
    ++machines;
    if (found <= ratio) return;
    ratio = found;
    seed = of;
  }
  std::uint64_t machines = 0;
  std::uint64_t seed = 0;
  double ratio = 0;
};

void print(const machine& it, const measured_machine& got)
{
  std::printf("machine %llu: %u ranks, ZeRO %d, updates %s%s, %u tensors, %u frames beside the least\n",
              static_cast<unsigned long long>(it.seed), it.ranks,
              it.divided.parameters ? 3 : (it.divided.gradients ? 2 : 1), it.is_late ? "late" : "at once",
              it.clips ? ", a limit on the norm" : "", it.tensors, it.more_frames);
  for (std::uint32_t rank = 0; rank < it.ranks; ++rank) {
    const rank_rates& right = it.of_rank[rank];
    const cm::transfer::update_rates& found = got.rates[rank];
    const double all = it.own_parameters();
    std::printf(
        "  rank %u: all updates on the host %.1f ms (measured %.1f), on the device %.1f (%.1f), states up %.1f (%.1f), "
        "down %.1f (%.1f)\n",
        rank, 1e3 * all / right.host_updates, 1e3 * all / found.host_updates_per_second,
        1e3 * all / right.device_updates, 1e3 * all / found.device_updates_per_second, 12e3 * all / right.up,
        12e3 * all / found.to_device_bytes_per_second, 12e3 * all / right.down,
        12e3 * all / found.to_host_bytes_per_second);
  }
  std::printf("  measuring steps, with this share on the device:");
  for (const cm::optimizer::tried_share& tried : got.split.tried)
    std::printf(" %.3f %.1f ms;", tried.device_share, 1e3 * tried.seconds);
  std::printf(" held: %.3f\n ", got.split.device_share);
  for (const round_of_three& round : got.all)
    std::printf(" %.1f ms of %.1f and %.1f;", 1e3 * round.held, 1e3 * round.host, 1e3 * round.device);
  const auto print_rounds = [](const char* what, const std::vector<double>& rounds_of) {
    if (!rounds_of.empty())
      std::printf(" %s %.4f (%.4f to %.4f)", what, rounds_of[rounds_of.size() / 2], rounds_of.front(),
                  rounds_of.back());
  };
  print_rounds("held over the better extreme", got.ratios);
  print_rounds("; an extreme, over another run of it", got.noise);
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments)
{
  const std::uint64_t first = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 1;
  const std::uint64_t machines = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 20;
  if (machines == 0) return 1;  // nothing was measured
  worst_of mixed, extremes, again;
  for (std::uint64_t seed = first; seed < first + machines; ++seed) {
    const machine it = draw_machine(seed);
    const measured_machine got = train(it);
    print(it, got);
    (got.is_extreme() ? extremes : mixed).add(seed, got.ratios[got.ratios.size() / 2]);
    if (got.is_extreme()) again.add(seed, std::max(got.noise.back(), 1 / got.noise.front()));
  }
  const auto tell = [](const worst_of& it, const char* what) {
    if (it.machines > 0)
      std::printf("%llu machines hold %s %.4f (machine %llu)\n", static_cast<unsigned long long>(it.machines), what,
                  it.ratio, static_cast<unsigned long long>(it.seed));
  };
  tell(mixed, "a mixed split; over the better extreme the worst takes");
  tell(extremes, "an extreme, which counts with its own time: 1 where it is the faster one; the worst takes");
  tell(again, "an extreme; two runs of one differ at most by a factor of");
  const double worst = std::max(mixed.ratio, extremes.ratio);
  return transfer_bench::write_figures("measured_split_bench",
                                       {{"sharding.measured_split_over_better_extreme", worst, "ratio", "<=", 1.0}});
}
