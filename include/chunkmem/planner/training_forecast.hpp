// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/planner/rank_training.hpp>
#include <chunkmem/planner/scripted_rank.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// Virtual time and bytes of one step in the steady state [ns], [B].
///
///     const step_forecast& step = forecast.step;
///     std::cout << "busy " << step.busiest() << " of " << step.nanoseconds << " ns\n";
struct step_forecast {
  std::uint64_t nanoseconds = 0;  ///< from step to step
  std::uint64_t computing = 0;    ///< of this time, the device computes; updates on the device included
  std::uint64_t to_device = 0;    ///< the link is busy
  std::uint64_t to_host = 0;
  std::uint64_t updating = 0;    ///< the host updates, or takes norms
  std::uint64_t collecting = 0;  ///< groups are gathered or gradients scattered
  std::uint64_t loaded_bytes = 0;
  std::uint64_t written_back_bytes = 0;

  /// The busiest part: no order of the same work is faster.
  [[nodiscard]] std::uint64_t busiest() const noexcept
  {
    return std::max({computing, to_device, to_host, updating, collecting});
  }
};

/// The result of a simulated training.
///
///     const training_forecast forecast = forecast_training(shape, how, share, {});
///     if (forecast.fits) std::cout << forecast.step.nanoseconds << " ns\n";
struct training_forecast {
  bool fits = false;
  std::string why_not;       ///< one sentence with the bytes that are needed; empty where it fits
  memory_requirement need;   ///< of a rank, from a rehearsal; the smallest capacities also where the step does not fit
  per_tier<bytes> capacity;  ///< of a rank, for chunks and leases
  step_forecast step;
  report counts;                             ///< of the whole run: waits by cause, divergences, plans, highest bytes
  std::vector<std::uint64_t> steps;          ///< time of each measured step [ns], the last ones last
  training_timeline timeline;                ///< of the last iteration
  access_record record;                      ///< of an iteration
  std::vector<std::uint64_t> computed;       ///< by access index of the record, updates on the device with it [ns]
  std::vector<std::uint32_t> chunk_of_slot;  ///< where the slots of the record lie
  std::vector<std::uint32_t> frames;         ///< of each chunk
  std::uint32_t parameters = 0;              ///< of the rank; they have the first slots, and gradients the next
  std::uint32_t gather_units = 1;            ///< room for gathered groups that was simulated, at most that asked for
  std::uint32_t gathers_ahead = 0;           ///< groups that a step gathers for the next one
};

namespace detail {

/// A rank that runs until its steps repeat.
template <class Training>
class steady_run {
 public:
  explicit steady_run(Training& training) : training_{training} {}

  /// @throws out_of_memory   an iteration does not fit   @throws config_error   its time does not fit into a clock
  void run(std::uint32_t most, training_forecast& result)
  {
    training_.fill();
    mark last = now();
    std::vector<mark> marks{last};
    while (result.steps.size() < most) {
      training_.step();
      marks.push_back(now());
      if (marks.back().compute == UINT64_MAX || training_.clocks().now() == UINT64_MAX)
        throw config_error{
            "a step takes longer than virtual clocks count, 2^64 ns (a rate of this machine is far too low)"};
      result.steps.push_back(marks.back().compute - marks[marks.size() - 2].compute);
      const std::size_t done = result.steps.size();
      if (done >= 5 && result.steps[done - 1] == result.steps[done - 2] &&
          result.steps[done - 2] == result.steps[done - 3])
        break;
    }
    const bool repeats = result.steps.size() < most;
    const std::size_t measured = repeats ? 1 : 4;  // those that alternate count alike
    const mark& end = marks.back();
    const mark& begin = marks[marks.size() - 1 - measured];
    result.step.nanoseconds = (end.compute - begin.compute) / measured;
    result.step.computing = (end.computing - begin.computing) / measured;
    result.step.updating = (end.updating - begin.updating) / measured;
    result.step.collecting = (end.collecting - begin.collecting) / measured;
    const report moved = end.counts.copies_since(begin.counts);
    result.step.loaded_bytes = moved.loaded.count() / measured;
    result.step.written_back_bytes = moved.written_back.count() / measured;
    result.step.to_device = (end.to_device - begin.to_device) / measured;
    result.step.to_host = (end.to_host - begin.to_host) / measured;
    result.counts = end.counts;
    result.timeline = training_.timeline();
    result.record = *training_.engine().profile();
    result.computed.assign(training_.computed().begin(), training_.computed().end());
    const auto chunk_of_slot = training_.engine().chunk_of_slot();
    result.chunk_of_slot.assign(chunk_of_slot.begin(), chunk_of_slot.end());
    for (const chunk_snapshot& it : training_.engine().residency().chunks) result.frames.push_back(it.place.frames);
    result.parameters = training_.parameters();
  }

 private:
  struct mark {
    report counts;
    std::uint64_t compute = 0;
    std::uint64_t computing = 0;
    std::uint64_t updating = 0;
    std::uint64_t collecting = 0;
    std::uint64_t to_device = 0;
    std::uint64_t to_host = 0;
  };

  [[nodiscard]] mark now()
  {
    for (const timed_work& it : training_.timeline().computing) computing_ += it.nanoseconds;
    for (const timed_copy& it : training_.timeline().copies)
      (it.to == tier::device ? to_device_ : to_host_) += it.end - it.begin;
    return {training_.engine().report(),
            training_.clocks().clock(agent::compute),
            computing_ + training_.kernel().busy(memory_location::device),
            training_.kernel().busy(memory_location::host),
            training_.collective_busy(),
            to_device_,
            to_host_};
  }

  Training& training_;
  std::uint64_t computing_ = 0;
  std::uint64_t to_device_ = 0;
  std::uint64_t to_host_ = 0;
};

inline constexpr bytes endless{std::uint64_t{1} << 50};

/// The message of the error of `work`; empty without an error.
template <class Work>
[[nodiscard]] std::string refusal(Work work)
{
  try {
    work();
    return {};
  } catch (const config_error& refused) {
    return refused.what();
  } catch (const out_of_memory& refused) {
    return refused.what();
  } catch (const size_overflow& refused) {
    return refused.what();
  }
}

/// At least these capacities, and enough for the rehearsed step. @param rehearse   `rehearse(room)`: its requirement
/// @throws config_error   no capacity is enough
template <class Rehearse>
[[nodiscard]] per_tier<bytes> least_room(per_tier<bytes> room, Rehearse rehearse)
{
  room[tier::device] = std::max(room[tier::device], rehearse({{endless, endless}}).smallest_device);
  room[tier::host] = std::max(room[tier::host], rehearse({{room[tier::device], endless}}).smallest_host);
  return room;
}

/// A use of a larger device, cut to one of this capacity: first free bytes are left out, then states, then values.
[[nodiscard]] inline device_use within(device_use use, bytes capacity)
{
  bytes more = use.sum() - std::min(use.sum(), capacity);
  for (bytes* const each : {&use.free, &use.states, &use.values, &use.leases}) {
    const bytes less = std::min(*each, more);
    *each -= less;
    more -= less;
  }
  return use;
}

/// The record of an iteration with room for everything: of the second iteration, since updates may wait for it.
/// @throws out_of_memory   not even twice all bytes are enough
template <class Training>
[[nodiscard]] access_record profile_without_limits(Training& training)
{
  training.fill();
  training.step();
  training.step();
  return *training.engine().profile();
}

}  // namespace detail

/// The groups of a rank's parameters: on one rank the tensors of the model, over ranks a chunk of each rank.
/// @throws   as parameter_groups
[[nodiscard]] inline parameter_groups groups_of(const workload::transformer_shape& shape,
                                                const workload::training_setup& setup,
                                                const workload::rank_share& share, const rank_settings& settings)
{
  if (share.ranks == 1) return {shape, setup};
  return {shape, setup, chunk_elements_of(settings, share.ranks) * share.ranks};
}

/// The script of a rank's passes. With rank_settings::gathers_ahead, the step before gathers as many groups as a
/// forward pass would wait for. They are no more than the network has time for while a backward pass computes, beside
/// the sums and gathers of that pass. If it gathered more, the first groups of the next pass would wait for these.
/// @throws   as training_script
[[nodiscard]] inline training_script script_of(const parameter_groups& groups, const layer_activations& activations,
                                               const workload::rank_share& share, const rank_settings& settings)
{
  const double flops_per_second = share.rates.device_flops_per_second * settings.reached_share;
  training_script plain{groups, activations, flops_per_second, settings.gather_units};
  if (settings.gathers_ahead == 0 || share.ranks == 1 || settings.takes_norm) return plain;
  const group_times exchange = exchange_of(share, settings);
  double idle = 0;    // of the network in the backward pass
  double behind = 0;  // the gathers of the forward pass so far, behind its compute
  double late = 0;    // the most that a group of the forward pass is
  double longest = 0;
  bool is_backward = false;
  for (const act& it : plain.acts()) {
    is_backward = is_backward || it.kind == act_kind::backward;
    if (it.kind != act_kind::use) continue;
    const auto ring = static_cast<double>(exchange.nanoseconds(bytes{2 * groups.elements_of(it.id)}));
    const auto computes = static_cast<double>(it.nanoseconds);
    longest = std::max(longest, ring);
    if (is_backward) {
      idle += computes - ring * ((it.gathers ? 1 : 0) + (it.finishes_gradient ? 1 : 0));
    } else {
      if (it.gathers) behind += ring;
      late = std::max(late, behind);
      behind -= computes;
    }
  }
  if (longest <= 0 || idle < longest || late <= longest) return plain;  // the first group is as late as its own gather
  const double ahead = std::min({idle / longest, std::ceil(late / longest), 1.0 * settings.gathers_ahead});
  return {groups, activations, flops_per_second, settings.gather_units, static_cast<std::uint32_t>(ahead)};
}

/// Trains a transformer on one representative rank of a machine, in virtual time, until its steps repeat.
///
/// Only bookkeeping is allocated, so the model may have any size. The same arguments give the same answer. Policies
/// decide as they do in training, since the engine is the same.
///
/// Bytes are exact with known_before::rehearsal. On one rank the manager is the one that trains. Over ranks a rehearsal
/// of the sharded_model of division_of says what a rank needs, and whether it fits. The time of a step over ranks is
/// that of a rank_training, whose groups have equal sizes. Where the rank has no room for gather_units of them, half as
/// many are simulated, down to one, which gets the room that it needs.
/// Cost: see rank_training; a second to some for a few hundred groups.
///
/// Use:
///
///     const training_forecast found = forecast_training(shape, {.micro_batch = 4}, workload::share_of_rank(machine));
///     if (found.fits) ... found.step.nanoseconds
///     else ... found.why_not
///
/// @param share         of one rank, as workload::share_of_rank gives it
/// @param activations   an entry for each layer of the shape; `setup.recomputes_layers` is ignored
/// @param known   over ranks: the `need` of a forecast that fits, gathers as many groups ahead and differs in
///   `gather_units` at most, which no rehearsal of the sharded_model depends on; null: it is rehearsed
/// @return        `fits` is false where a rank's step needs more than the rank has. `why_not` then has the needed
///   bytes, if a pebibyte is enough
/// @throws config_error   an impossible shape, set-up, share or setting; size_overflow   costs of the model need more
///   than 64 bits
template <eviction_policy Eviction = eviction::belady, transfer_policy Transfer = transfer::planned,
          chunk_layout Layout = size_class_layout>
[[nodiscard]] training_forecast forecast_training(const workload::transformer_shape& shape,
                                                  const workload::training_setup& setup,
                                                  const workload::rank_share& share, const rank_settings& settings,
                                                  const layer_activations& activations, Eviction eviction = {},
                                                  Transfer transfer = {}, Layout layout = {},
                                                  const memory_requirement* known = nullptr)
{
  using training_type = rank_training<Eviction, Transfer, Layout>;
  settings.check(), share.check();
  const parameter_groups groups = groups_of(shape, setup, share, settings);
  std::optional<training_script> script{script_of(groups, activations, share, settings)};
  training_forecast result;
  result.capacity = capacities_of(share, settings);
  const bool is_lone = share.ranks == 1;
  const bool proves = settings.known == known_before::rehearsal;
  const auto rehearse_groups = [&](per_tier<bytes> room) {
    return training_type{groups, *script, share, settings, room, eviction, transfer, layout}.rehearse();
  };
  const auto rehearse = [&](per_tier<bytes> room) {
    rank_settings simulated = settings;
    simulated.gathers_ahead = script->gathers_ahead();
    return is_lone ? rehearse_groups(room)
                   : rehearse_over_ranks(shape, setup, share, simulated, activations, room, eviction, transfer, layout);
  };
  const auto profile = [&] {
    const bytes roomy = 2 * (result.capacity[tier::device] + result.capacity[tier::host]);
    training_type training{groups, *script, share, settings, {{roomy, roomy}}, eviction, transfer, layout};
    return detail::profile_without_limits(training);
  };
  const auto simulate = [&](per_tier<bytes> room) {
    training_type training{groups, *script, share, settings, room, eviction, transfer, layout};
    if (!proves)
      training.follow(profile());
    else if (const memory_requirement need = training.rehearse(); is_lone)
      result.need = need;
    detail::steady_run<training_type>{training}.run(settings.most_iterations, result);
  };
  const std::string why_not = detail::refusal([&] {
    if (is_lone || !proves) return simulate(result.capacity);
    result.need = known != nullptr ? *known : rehearse(result.capacity);
    for (rank_settings gathering = settings; !detail::refusal([&] { simulate(result.capacity); }).empty();) {
      result.steps.clear();
      if (script->units() == training_script::least_units) {
        simulate(detail::least_room(result.capacity, rehearse_groups));
        result.timeline.at_peak = detail::within(result.timeline.at_peak, result.capacity[tier::device]);
        return;
      }
      gathering.gather_units /= 2;
      const std::uint32_t rehearsed = script->gathers_ahead();
      script.emplace(script_of(groups, activations, share, gathering));
      if (script->gathers_ahead() != rehearsed) result.need = rehearse(result.capacity);
    }
  });
  result.gather_units = script->units();
  result.gathers_ahead = script->gathers_ahead();
  result.fits = why_not.empty();
  result.why_not = why_not;
  if (result.fits || result.need.rehearsed || !proves) return result;
  // A step that does not fit even without limits was refused above, with its bytes.
  (void)detail::refusal([&] {
    result.need = rehearse({{detail::endless, detail::endless}});
    result.need = rehearse({{std::max(result.capacity[tier::device], result.need.smallest_device), detail::endless}});
  });
  return result;
}

/// As above, with all layers as in `setup` and their activations on the device.
template <eviction_policy Eviction = eviction::belady, transfer_policy Transfer = transfer::planned,
          chunk_layout Layout = size_class_layout>
[[nodiscard]] training_forecast forecast_training(const workload::transformer_shape& shape,
                                                  const workload::training_setup& setup,
                                                  const workload::rank_share& share, const rank_settings& settings = {},
                                                  Eviction eviction = {}, Transfer transfer = {}, Layout layout = {})
{
  return forecast_training<Eviction, Transfer, Layout>(shape, setup, share, settings,
                                                       layer_activations::all(shape.layers, setup.recomputes_layers),
                                                       std::move(eviction), std::move(transfer), std::move(layout));
}

}  // namespace planner

}  // namespace chunkmem::inline v0
