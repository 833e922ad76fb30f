// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/manager/rank_manager.hpp>
#include <chunkmem/manager/rehearsal.hpp>
#include <chunkmem/optimizer/device_updates.hpp>
#include <chunkmem/optimizer/rate_meter.hpp>
#include <chunkmem/optimizer/split_rule.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>
#include <chunkmem/optimizer/update_site.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/tensor/tensor.hpp>
#include <chunkmem/transfer/update_split.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

/// The calling thread decides. Each parameter is measured and updated in the tier of its placement: by kernels on the
/// device, or by the workers. @tparam Where   a split_updates
template <class Where>
class split_site : public decided_by_caller {
 public:
  static constexpr bool has_bytes = true;
  static constexpr bool host_reaches = false;

  /// @param where   outlives this object   @throws usage_error   it is of another manager than the step
  template <class Backend>
  split_site(Backend& backend, Where& where) : where_{where}
  {
    where.expect_of(backend);
  }

  template <class Work>
  void at_place(memory_location planned, Work work) const
  {
    where_.at_place(planned, work);
  }
  template <class Kernel, class Place>
  [[nodiscard]] gradient_measure measure(const Kernel&, const std::byte* gradient, dtype type, std::uint64_t elements,
                                         Place place) const
  {
    return where_.measure(gradient, type, elements, place);
  }
  template <device_optimizer_kernel Kernel, class Place>
  void update(const Kernel& kernel, const parameter_bytes& all, const update_request& request, Place place) const
  {
    where_.update(kernel, all, request, place);
  }
  void remake(const parameter_bytes& all, memory_location) const { round_from_master(all); }
  void remake(const parameter_bytes& all, agent) const { where_.on_device().remake(all); }
  void end(step_decision decision, const step_options& options) const
  {
    decided_by_caller::end(decision, options);
    where_.note_end(decision);
  }

 private:
  Where& where_;
};

}  // namespace detail

/// Updates a share of the parameters on the device and the others on the host. Measured steps choose the share. `step`,
/// late_updates, `sharded_model::step` and pipeline::stage_step take this object in place of their workers.
///
///     manager<backend::host_arena, placement::update_share> m{memory};
///     optimizer::split_updates<decltype(m), loop_launcher, thread_pool> updates{m, pool};
///     const memory_requirement need = updates.rehearse([&] { train_step(); });
///     while (training) {
///       { auto it = m.iteration(); pass_through_layers(m); step(m, adam, options, updates); }
///       updates.end_step();   // between two iterations
///     }
///
/// The placement chooses the parameters that the device updates: a share of them, spread evenly. The device runs
/// kernels, and the calling thread with its workers updates the others meanwhile. Bits, counts and checkpoints are
/// those of a step on the host, for every share.
///
/// The first steps measure, and split_rule chooses. With each share that is tried:
///
/// - Steps 1 and 2 are metered: one update after another, each after its copies. Their iterations are recorded. The
///   later steps up to `settling_steps` follow the plans of these records.
/// - The next `measured_steps` give the seconds of a step: their median. A measured step lasts from one `end_step` to
///   the next. So an occasional checkpoint does not change the choice; a checkpoint after each step may.
///
/// A step that is skipped does not count. The last share holds until `measure_again`. No checkpoint has the share: a
/// resumed training measures again. All ranks use one share, by the rates of all: the gathers of a rank depend on the
/// bytes on its device, and every rank has to gather alike. So every rank calls `end_step`; at the end of a stage ranks
/// exchange their measurements.
///
/// Good where host and device both update for a part of the step. Poor where all states stay on the device: use
/// device_updates. Memory: as device_updates while a parameter is updated on the device. Cost of a metered step: host,
/// device and links wait for each other. early_updates does not take this object. Source: Deep Optimizer States (Maurya
/// et al. 2024, arXiv 2410.21316).
/// @tparam Owner      a manager, or a sharded_model; its placement is update_share, or any_placement with it
/// @tparam Launcher   as of device_updates   @tparam Workers   of updates on the host
/// @threads           one caller, that of the owner
template <class Owner, class Launcher, executor Workers = const serial>
class split_updates {
 public:
  using update_site = detail::split_site<split_updates>;

  /// @param owner, workers   outlive this object   @throws usage_error   too few steps, or a gain that is not from 0 to
  ///   1
  explicit split_updates(Owner& owner, Workers& workers, const split_options& options = {}, Launcher launcher = {})
      : owner_{owner},
        workers_{workers},
        options_{options},
        device_{owner, std::move(launcher)},
        rule_{options.least_gain}
  {
    expects(options.settling_steps >= least_settling && options.measured_steps > 0,
            "a split of updates without measured steps (give at least 4 settling_steps and 1 measured_steps)");
    begin_stage();
  }
  split_updates(const split_updates&) = delete;

  /// Rehearses the step with all updates on the device and with all on the host. Where the device is too small for the
  /// first, all updates stay on the host. Without this call, such a device makes a later step throw out_of_memory.
  /// @return   the larger sizes of both, as far as they fit   @throws as the owner's rehearse, for updates on the host
  memory_requirement rehearse(call_ref<void()> step)
  {
    memory_requirement on_device;
    take_share(1);
    try {
      on_device = owner_.rehearse(step);
      has_room_ = true;
    } catch (const config_error&) {
      has_room_ = false;
    } catch (...) {
      take_share();
      throw;
    }
    take_share();
    memory_requirement need = owner_.rehearse(step);
    if (!has_room_) return need;
    need.smallest_device = std::max(need.smallest_device, on_device.smallest_device);
    need.smallest_host = std::max(need.smallest_host, on_device.smallest_host);
    return need;
  }

  /// Ends the measurement of a step, after its iteration. Every rank makes this call after every step. Does nothing in
  /// a rehearsal.
  /// @throws usage_error   in an iteration; ranks are not at the same stage, or have other options; comm_error. Where a
  ///   stage was about to end, its steps are measured again
  void end_step()
  {
    if (manager().rehearsing()) return;
    expects(!manager().is_iterating(), "end_step of split_updates in an iteration: end the iteration first");
    const bool counts = std::exchange(has_updated_, false);
    if (rule_.is_held()) return;
    if (steps_ < options_.settling_steps) {
      if (counts) ++steps_;
      is_metering_ = steps_ < metered_steps;
      if (steps_ == options_.settling_steps) begin_ = seconds_now();
      return;
    }
    const double now = seconds_now();
    if (counts)
      seconds_.push_back(now - begin_);
    else
      seconds_.clear();  // a skipped step leaves no late updates to the next step
    begin_ = now;
    if (seconds_.size() == options_.measured_steps) end_stage(take_seconds());
  }
  /// Begins the search for a share again, with all updates on the host. Every rank makes this call, between two
  /// iterations.
  /// @throws usage_error   in an iteration; nothing was changed
  void measure_again()
  {
    take_share(0);
    rule_ = split_rule{options_.least_gain};
    meter_ = {};
    begin_stage();
  }
  /// The share of all ranks, and the seconds that led to it.
  [[nodiscard]] const measured_split& split() const noexcept { return rule_.now(); }
  /// The rates of this rank. A rate that was not measured is the largest double.
  [[nodiscard]] transfer::update_rates rates() const noexcept { return meter_.rates(); }

  // As an executor: the workers, for work of a step that does not run on the device.

  [[nodiscard]] unsigned threads() const noexcept { return workers_.threads(); }
  template <class Work>
  void run(unsigned parts, Work&& work) const
  {
    workers_.run(parts, work);
  }

  // Called by steps.

  /// @throws usage_error   the step is of another manager
  template <class Backend>
  void expect_of(const Backend& backend) const
  {
    device_.expect_of(backend);
  }
  [[nodiscard]] device_updates<Owner, Launcher>& on_device() noexcept { return device_; }
  template <class Work>
  void at_place(memory_location planned, Work& work)
  {
    if (planned == memory_location::host) {
      begin_copies();
      return work(memory_location::host);
    }
    device_.with_room([&] {
      begin_copies();
      work(agent::compute);
    });
  }
  /// As of device_updates. @pre the gradient is on the device
  template <class Visit>
  void for_each_block(const std::byte* gradient, dtype type, std::uint64_t elements, Visit visit)
  {
    end_copies();
    device_.for_each_block(gradient, type, elements, visit);
  }
  [[nodiscard]] gradient_measure measure(const std::byte* gradient, dtype type, std::uint64_t elements, agent)
  {
    gradient_measure all;
    for_each_block(gradient, type, elements, [&](std::uint64_t, const gradient_measure& block) { all.add(block); });
    return all;
  }
  [[nodiscard]] gradient_measure measure(const std::byte* gradient, dtype type, std::uint64_t elements, memory_location)
  {
    end_copies();
    return measure_parameter(gradient, type, elements, workers_);
  }
  template <class Kernel>
  void update(const Kernel& kernel, const parameter_bytes& all, const detail::update_request& request, agent)
  {
    end_copies();
    metered(true, all, [&] { device_.update(kernel, all, request); });
  }
  template <class Kernel>
  void update(const Kernel& kernel, const parameter_bytes& all, const detail::update_request& request, memory_location)
  {
    end_copies();
    metered(false, all, [&] {
      update_parameter(kernel, all, request.transform, request.settings_of(all.tensor), request.seed, workers_,
                       request.callers);
    });
  }
  void note_end(step_decision decision) noexcept { has_updated_ = decision == step_decision::update; }

 private:
  static constexpr std::uint32_t metered_steps = 2;   // late updates of the first run in the second
  static constexpr std::uint32_t least_settling = 4;  // and two that follow a plan

  /// The manager of this rank.
  [[nodiscard]] auto& manager() const noexcept { return rank_manager(owner_); }
  using manager_type = std::remove_reference_t<decltype(rank_manager(std::declval<Owner&>()))>;
  static constexpr bool is_over_ranks = requires(Owner& model) { model.shares(); };

  void take_share() { take_share(rule_.now().device_share); }
  void take_share(double share)
  {
    using placement_type = std::remove_cvref_t<decltype(manager().placement())>;
    static_assert(std::is_constructible_v<placement_type, placement::update_share>,
                  "chunkmem: split_updates of a manager whose placement is no update_share (name "
                  "placement::update_share among its policies)");
    manager().use_placement(placement_type{placement::update_share{.device_share = share, .in_turn = true}});
  }

  /// The median of the measured steps: a checkpoint after one of them does not change it.
  [[nodiscard]] double take_seconds() noexcept
  {
    std::ranges::sort(seconds_);
    const double median = seconds_[(seconds_.size() - 1) / 2];
    seconds_.clear();
    return median;
  }
  void end_stage(double seconds)
  {
    const measured_split_rank mine{meter_.rates(), meter_.traffic(), seconds, has_room_};
    if constexpr (is_over_ranks) {
      owner_.settle();
      const words own = words_of(mine);
      std::vector<std::uint64_t> all(own.size() * owner_.ranks().ranks());
      owner_.ranks().exchange(own, all);
      std::vector<measured_split_rank> ranks;
      for (std::size_t begin = 0; begin < all.size(); begin += own.size()) {
        const auto each = std::span{all}.subspan(begin).template first<word_count>();
        expects(each.back() == own.back(),
                "ranks measure different splits of their updates: give split_updates of all ranks "
                "the same options, and call end_step and measure_again on every rank");
        ranks.push_back(of_words(each));
      }
      rule_.end_stage(ranks);
    } else {
      rule_.end_stage({&mine, 1});
    }
    begin_stage();
  }
  void begin_stage()
  {
    steps_ = 0;
    seconds_.clear();
    seconds_.reserve(options_.measured_steps);
    is_metering_ = !rule_.is_held();
    take_share();
  }

  static constexpr std::size_t word_count = 11;
  using words = std::array<std::uint64_t, word_count>;
  /// The last word is the same on ranks that search for the same split.
  [[nodiscard]] words words_of(const measured_split_rank& it) const noexcept
  {
    collective::fingerprint search;
    search.add("split_updates");
    search.add(rule_.now().tried.size());
    search.add(options_.settling_steps);
    search.add(options_.measured_steps);
    search.add(std::bit_cast<std::uint64_t>(options_.least_gain));
    const auto word = [](double number) { return std::bit_cast<std::uint64_t>(number); };
    return {word(it.rates.host_updates_per_second),
            word(it.rates.device_updates_per_second),
            word(it.rates.to_device_bytes_per_second),
            word(it.rates.to_host_bytes_per_second),
            word(it.each.state_bytes),
            word(it.each.gradient_bytes),
            word(it.each.value_bytes),
            word(it.each.host_update_bytes),
            word(it.seconds),
            it.has_room ? 1U : 0U,
            search.value()};
  }
  [[nodiscard]] static measured_split_rank of_words(std::span<const std::uint64_t, word_count> all) noexcept
  {
    const auto number = [&](std::size_t index) { return std::bit_cast<double>(all[index]); };
    return {{number(0), number(1), number(2), number(3)},
            {number(4), number(5), number(6), number(7)},
            number(8),
            all[9] != 0};
  }

  /// The time after all enqueued work of the device.
  [[nodiscard]] double seconds_now() const
  {
    manager().backend().wait(agent::host, manager().backend().record(agent::compute));
    return clock();
  }
  [[nodiscard]] double clock() const { return static_cast<double>(manager().backend().now()) * 1e-9; }

  /// Before the pins of a metered parameter are taken: no copy runs.
  void begin_copies()
  {
    copies_.reset();
    if (!is_metering_ || manager().rehearsing()) return;
    if constexpr (is_over_ranks) owner_.settle();
    copies_.emplace(manager());
  }
  /// The pins are taken, and their copies were started.
  void end_copies()
  {
    if (!copies_) return;
    copies_->end(meter_);
    copies_.reset();
  }
  template <class Update>
  void metered(bool on_device, const parameter_bytes& all, Update update)
  {
    if (!is_metering_) return update();
    const double begin = seconds_now();
    update();
    meter_.add_update(on_device, all, seconds_now() - begin);
  }

  Owner& owner_;
  Workers& workers_;
  split_options options_;
  device_updates<Owner, Launcher> device_;
  split_rule rule_;
  rate_meter meter_;
  std::optional<metered_copies<manager_type>> copies_;
  double begin_ = 0;             // of a measured step [s]
  std::vector<double> seconds_;  // of the measured steps with this share
  std::uint32_t steps_ = 0;      // that settled with this share
  bool is_metering_ = false;
  bool has_updated_ = false;  // the last step
  bool has_room_ = true;
};

}  // namespace optimizer

}  // namespace chunkmem::inline v0
