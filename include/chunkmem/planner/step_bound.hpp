// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/planner/group_bound.hpp>
#include <chunkmem/planner/parameter_groups.hpp>
#include <chunkmem/planner/rank_settings.hpp>
#include <chunkmem/planner/timed_optimizer.hpp>
#include <chunkmem/planner/training_script.hpp>
#include <chunkmem/workload/machine.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// A block of a step: a part of the model that runs forward, and later backward, as a whole.
///
///     needs.blocks.push_back({.parameters = 1e6, .forward_seconds = 0.1, .backward_seconds = 0.2});
struct step_block {
  double parameters = 0;        ///< of the rank
  double forward_seconds = 0;   ///< of compute
  double backward_seconds = 0;  ///< of compute, the block's second forward run included
};

/// The needs of a step of one rank, and the memory and rates of the rank, before any decision.
///
///     const step_needs needs = step_needs_of(shape, setup, share, settings);
struct step_needs {
  double parameters = 0;        ///< of the rank; each has a 16-bit weight and its states
  double state_bytes = 12;      ///< of a parameter: a master and the lists of the optimizer
  double update_bytes = 28;     ///< that an update of a parameter reads and writes
  double unread = 0;            ///< parameters of the rank whose weights no backward pass reads: embedding tables
  double forward_seconds = 0;   ///< of compute
  double backward_seconds = 0;  ///< of compute, with recomputed layers
  double gather_seconds = 0;    ///< of all weights once; sums of gradients take as long
  double gathered_bytes = 0;    ///< of all weights of all other ranks
  double group_seconds = 0;     ///< a lower bound of a step for every size of its groups: least_group_step
  double device_at_peak = 0;  ///< bytes of the device without the peak of activations; below 0: activations do not fit
  double device_at_turn = 0;  ///< bytes of the device without activations at the end of the forward pass
  double device_between = 0;  ///< bytes of the device without activations
  double host = 0;            ///< bytes of the rank's share of the host
  double swapped = 0;         ///< bytes of activations that go to the host before the turn and come back after it
  workload::machine_rates rates;  ///< of the rank; updates are those of the optimizer
  bool takes_norm = false;        ///< no gather of a next weight before the last sum, and no update but with `undoes`
  bool undoes = false;            ///< with a norm: updates come before it, and are undone where it decides otherwise
  bool updates_at_once = false;   ///< the caller begins the next forward pass after the last update: no step is late
  // step_needs_of leaves these empty: the size of blocks is free there, and no weights are kept whole.
  double kept_whole = 0;           ///< parameters whose whole weights the rank keeps: of all ranks in stages 1 and 2
  double border_seconds = 0;       ///< the way of the first block, from its gradient to its next weights
  double least_block_seconds = 0;  ///< of gathering the smallest block; its sum takes equally long
  std::vector<step_block> blocks;  ///< in the order of the forward pass

  [[nodiscard]] bool updates_wait() const noexcept { return takes_norm && !undoes; }  ///< for the norm
};

/// A resource that a step waits for.
enum class step_limit : std::uint8_t {
  compute,       ///< products, and updates on the device
  host_updates,  ///< updates on the host
  to_device,     ///< bytes of the link to the device
  to_host,       ///< bytes of the link to the host
  host_memory,   ///< bytes of host memory
  collectives,   ///< gathers of weights, sums of gradients
  border,        ///< the way of the first block, on which no pass computes
};

/// The free decisions of a step, as shares of the rank's parameters.
///
///     const step_freedom none{};   // the host updates everything
struct step_freedom {
  double on_device = 0;  ///< updated on the device
  double resident = 0;   ///< as many states lie on the device at every moment
};

/// A lower bound of the time of a step, for all decisions.
///
///     const step_bound bound = step_bound_of(shape, setup, share, settings);
///     std::cout << "no step is faster than " << bound.seconds << " s\n";
struct step_bound {
  bool fits = false;                                ///< else not even the bound finds room
  double seconds = 0;                               ///< from step to step
  step_limit limit = step_limit::compute;           ///< of the bound, from the last gradient to the next turn
  step_limit backward_limit = step_limit::compute;  ///< from the turn to the last gradient
  step_freedom best;                                ///< the decisions for which the bound is this low
};

/// The name of a limit. @return   "compute" for step_limit::compute, and so on
[[nodiscard]] constexpr const char* name_of(step_limit it) noexcept
{
  constexpr const char* names[] = {"compute",     "host updates", "to device", "to host",
                                   "host memory", "collectives",  "border"};
  return names[static_cast<std::size_t>(it)];
}

namespace detail {

inline constexpr double weight_bytes = 2;  // of a parameter, and of its gradient

/// The least work of a resource in a step [s]. The turn is the moment between the two passes.
struct resource_work {
  double whole = 0;     ///< from step to step
  double backward = 0;  ///< the part from the turn to the last gradient
  double forward = 0;   ///< the part from the last gradient to the turn of the next step
};

/// The parameters that some room on the device can serve, and the least numbers of parameters that move therefore.
///
/// - Absent: the backward pass reads each weight but the unread ones, and the forward pass read it before. A weight
///   that is not on the device at the turn comes from the host once more, in between.
/// - Apart: the device makes each gradient in the backward pass. At the last gradient, each parameter has its gradient
///   or its next weight on the device, or one of them went to the host. The next forward pass needs a weight on the
///   device, so as many weights, or gradients that become weights there, come to the device from then to the turn.
/// - Left: of these, the parameters that the device updates. They have no other reason to move.
/// - Evicted: the device made these weights, and the backward pass reads them, but the turn has no room for them. Each
///   one went to the host after its update, so that it can come again.
/// - Moved: states that the device updates, but that leave it, go and come once a step, since every step writes them.
///   The same is true of states that the host updates, but that lie on the device at some moment.
/// - Whole: weights of all ranks that are kept and have no room at the turn. Each was gathered into the device, went to
///   the host, and comes again for the backward pass. Then shares are not read there: `unread` has all of them.
struct moved_parameters {
  double on_device;  // updated there
  double on_host;    // updated there
  double resident;
  double absent;
  double apart;
  double left;
  double evicted;
  double moved;
  double whole;

  moved_parameters(const step_needs& needs, const step_freedom& how)
      : on_device{needs.parameters * how.on_device},
        on_host{needs.parameters - on_device},
        resident{needs.parameters * how.resident}
  {
    const double again = needs.parameters - needs.unread;
    const double at_turn = std::min(again, (needs.device_at_turn - needs.state_bytes * resident) / weight_bytes);
    const double between =
        std::min(needs.parameters, (needs.device_between - needs.state_bytes * resident) / weight_bytes);
    absent = again - at_turn;
    apart = needs.parameters - between;
    left = std::max(0.0, on_device - between);
    evicted = std::max(0.0, on_device - needs.unread - at_turn);
    moved = std::abs(on_device - resident);
    whole = std::max(0.0, needs.kept_whole - (needs.device_at_turn - needs.state_bytes * resident) / weight_bytes);
  }
};

/// Bytes of a link: `whole` is of a step, the others are of its parts, as in resource_work.
///
/// - The weight that the host makes goes to the device after its update, and its gradient went to the host before.
/// - With a norm, the device has both the gradient and the states of each of its updates between the last gradient and
///   the turn. The bytes that had no room on the device at the last gradient come up. The states, and the weights that
///   are read again, go down where they have no room at the turn.
/// - With a norm, a gradient that left and a weight that is evicted are two copies. Without one they can be the same.
/// - With undo the device may update before the norm, so bytes of shares cross as without one. Only whole weights are
///   gathered after the norm, so those without room at the turn go down from then on.
/// - Activations are made between the last gradient of the step before and the turn, and read between the turn and the
///   last gradient.
[[nodiscard]] inline resource_work bytes_up(const step_needs& needs, const moved_parameters& it)
{
  const double updating = needs.state_bytes * std::max(it.on_device, it.resident) + weight_bytes * it.on_device;
  return {weight_bytes * (it.on_host + it.absent + it.left + it.whole) + needs.state_bytes * it.moved + needs.swapped,
          weight_bytes * (it.absent + it.whole) + needs.swapped,
          needs.updates_wait() ? weight_bytes * it.on_host + std::max(0.0, updating - needs.device_between)
                               : weight_bytes * it.apart};
}
[[nodiscard]] inline resource_work bytes_down(const step_needs& needs, const moved_parameters& it)
{
  const double made = needs.state_bytes * std::max(it.on_device, it.resident) +
                      weight_bytes * std::max(0.0, it.on_device - needs.unread);
  const double back = needs.updates_wait() ? it.left + it.evicted : std::max(it.left, it.evicted);
  const double after_norm = (needs.updates_wait() ? std::max(0.0, made - needs.device_at_turn) : 0) +
                            (needs.takes_norm ? weight_bytes * it.whole : 0);
  return {weight_bytes * (it.on_host + back + it.whole) + needs.state_bytes * it.moved + needs.swapped,
          weight_bytes * it.apart, after_norm + needs.swapped};
}

/// All weights pass through the ring for the forward pass, and again for the backward pass where they are read, unless
/// they lie whole on the device at the turn. All gradients pass through it. With a norm, sums end before the last
/// gradient is known, and gathers for the forward pass begin later. Without one, only weights that have room on the
/// device at the end of the backward pass are gathered before.
///
/// All sums of a step, and all gathers for the next forward pass, lie between two turns. The last block runs backward
/// before the first sum, where gathers for that pass may fill the time, and forward after the last gather.
[[nodiscard]] inline resource_work collectives_of(const step_needs& needs, const moved_parameters& it)
{
  if (needs.gather_seconds <= 0 || needs.gathered_bytes <= 0) return {};
  const double read = 1 - needs.unread / needs.parameters;
  const double rest_at_turn = (needs.device_at_turn - needs.state_bytes * it.resident) / needs.gathered_bytes;
  const double rest_between = (needs.device_between - needs.state_bytes * it.resident) / needs.gathered_bytes;
  const double again = read - std::min(read, rest_at_turn);
  const step_block last = needs.blocks.empty() ? step_block{} : needs.blocks.back();
  const double twice = needs.gather_seconds * 2 + last.forward_seconds + last.backward_seconds;
  return {std::max(needs.gather_seconds * (2 + again), twice),
          needs.gather_seconds * (again + (needs.takes_norm ? 1 : 0)),
          needs.takes_norm ? needs.gather_seconds + last.forward_seconds
                           : needs.gather_seconds * (1 - std::min(1.0, rest_between))};
}

/// The least time from turn to turn of updates on the host [s].
///
/// Take any block and all blocks before it in the forward pass. They run backward after the blocks that follow them. So
/// their first gradient is there when the taken block and all that follow have run backward, and a block is summed. The
/// host then makes all updates of these blocks, but those that the device makes. After the last one a block is gathered
/// and runs forward, and at least all that follow the taken block run forward after it. The block that gives the
/// longest time counts; the last block stands for all updates. Where blocks are not known, all are one. Where the host
/// updates nothing the line holds too: a block is summed and gathered wherever its updates are made.
///
/// With updates at once the calling thread updates, and enqueues the forward pass when the last update is done. So the
/// whole forward pass comes after all updates on the host. With a norm that decides them, they come after the last
/// gradient. All are maxima of terms that are linear in the decisions, so convex.
[[nodiscard]] inline double host_update_seconds(const step_needs& needs, double on_device)
{
  const double at_once = needs.updates_at_once ? needs.forward_seconds : 0;
  const double block = needs.least_block_seconds;
  double left = needs.parameters;  // of a block and of all before it
  double forward = 0;              // of a block and of all after it
  double backward = 0;
  const auto behind = [&] {
    return backward + block + std::max(0.0, left - on_device) / needs.rates.host_updates_per_second +
           std::max(block + forward, at_once);
  };
  if (needs.blocks.empty()) return behind();
  double longest = 0;
  for (auto it = needs.blocks.rbegin(); it != needs.blocks.rend(); ++it) {
    forward += it->forward_seconds;
    backward += it->backward_seconds;
    longest = std::max(longest, behind());
    left -= it->parameters;
  }
  return longest;
}

/// The least work under these decisions, by step_limit. All are sums and maxima of terms that are linear in the
/// decisions, with no factor below 0, so they are convex in them. With a norm all updates lie between the last gradient
/// and the next turn, since the forward pass uses all weights. With undo they do not, and only gathers wait for the
/// norm.
///
/// With a norm, the sum of the first block ends the first part, and no pass computes meanwhile.
[[nodiscard]] inline std::array<resource_work, 6> work_of(const step_needs& needs, const step_freedom& how)
{
  const workload::machine_rates& rates = needs.rates;
  const moved_parameters moved{needs, how};
  const resource_work up = bytes_up(needs, moved);
  const resource_work down = bytes_down(needs, moved);
  const auto updates = [&](double all) { return resource_work{all, 0, needs.updates_wait() ? all : 0}; };
  const resource_work touched = updates(moved.on_host * needs.update_bytes);
  const resource_work on_device = updates(moved.on_device / rates.device_updates_per_second);
  const resource_work host = updates(moved.on_host / rates.host_updates_per_second);
  const double block = needs.least_block_seconds;
  const double last = needs.blocks.empty() ? 0 : needs.blocks.back().forward_seconds;
  const double behind = std::max(block + last, needs.updates_at_once ? needs.forward_seconds : 0);  // the last update
  const auto over = [](const resource_work& it, double rate) {
    return resource_work{it.whole / rate, it.backward / rate, it.forward / rate};
  };
  return {
      resource_work{needs.forward_seconds + needs.backward_seconds + on_device.whole,
                    needs.backward_seconds + (needs.takes_norm ? block : 0), needs.forward_seconds + on_device.forward},
      resource_work{host_update_seconds(needs, moved.on_device), 0, needs.updates_wait() ? host.forward + behind : 0},
      over(up, rates.to_device_bytes_per_second),
      over(down, rates.to_host_bytes_per_second),
      over({up.whole + down.whole + touched.whole, up.backward + down.backward,
            up.forward + down.forward + touched.forward},
           rates.host_memory_bytes_per_second),
      collectives_of(needs, moved)};
}

/// The bound under these decisions: one resource over the whole step, or one in each of its two parts.
[[nodiscard]] inline step_bound bound_under(const step_needs& needs, const step_freedom& how)
{
  const auto work = work_of(needs, how);
  const auto most = [&](double resource_work::*part) {
    return static_cast<std::size_t>(std::ranges::max_element(work, {}, part) - work.begin());
  };
  const std::size_t whole = most(&resource_work::whole);
  const std::size_t backward = most(&resource_work::backward);
  const std::size_t forward = most(&resource_work::forward);
  const double parts = work[backward].backward + work[forward].forward;
  if (work[whole].whole >= parts)
    return {true, work[whole].whole, static_cast<step_limit>(whole), static_cast<step_limit>(whole), how};
  return {true, parts, static_cast<step_limit>(forward), static_cast<step_limit>(backward), how};
}

/// The least of a convex function between two numbers, to a part in 10^9 of their distance; of equal ones an end.
template <class Function>
[[nodiscard]] double least_between(double low, double high, Function of)
{
  constexpr double golden = 0.6180339887498949;
  const double first = low;
  const double last = high;
  for (int round = 0; round < 44; ++round) {  // to a part in 10^9
    const double one = high - golden * (high - low);
    const double other = low + golden * (high - low);
    of(one) <= of(other) ? high = other : low = one;
  }
  const double found = low + (high - low) / 2;
  if (of(first) <= of(found)) return first;
  return of(last) <= of(found) ? last : found;
}

}  // namespace detail

/// The bound of a rank with these needs. It takes nothing from a run: shares, residency and order are free.
///
/// A step of a steady state has two parts: from the turn between its passes to the last gradient, and from there to the
/// next turn. With a norm the last gradient is there when it is summed over ranks, for updates begin then, or gathers
/// where updates came before and can be undone. A resource is busy for at least its work (step_limit), in each part and
/// in the whole step. So no step is shorter than the longest whole work, or than the longest works of both parts
/// together. The bound is the longer one, at the decisions that make it least. Over several ranks no step is shorter
/// than least_group_step either. A step may move more, wait for a chunk, or find no room, so the bound need not be
/// reached.
/// - The first block gets its gradient last, and the next forward pass begins with its weights. No pass computes on its
///   way between (border_seconds), so no step is shorter than both passes and this way.
/// - Decisions may differ from step to step. Work is convex in them, so their mean has no more of it.
/// - Resident states lie on the device also where activations are highest. The host holds all other states, so a small
///   host makes some resident. Any states may be these, also states that the host updates.
/// - A weight is copied, and never made again from its states.
///
/// Source: the lines of transfer::update_bound (after Deep Optimizer States, Maurya et al. 2024, arXiv 2410.21316), for
/// a whole step. Cost: some 8,000 evaluations of six lines; a millisecond.
[[nodiscard]] inline step_bound step_bound_of(const step_needs& needs)
{
  const double states = needs.state_bytes * needs.parameters;
  const double room = std::min({needs.device_at_peak, needs.device_at_turn, needs.device_between});
  const double least = std::max(0.0, states - needs.host);
  if (room < 0 || least > room) return {};
  const auto share = [&](double bytes) { return states > 0 ? std::min(1.0, bytes / states) : 0; };
  const auto under = [&](const step_freedom& how) { return detail::bound_under(needs, how).seconds; };
  const auto resident_at = [&](double on_device) {
    return detail::least_between(share(least), share(room), [&](double resident) {
      return under({on_device, resident});
    });
  };
  const double on_device = detail::least_between(0, 1, [&](double it) { return under({it, resident_at(it)}); });
  step_bound found = detail::bound_under(needs, {on_device, resident_at(on_device)});
  if (const double border = needs.forward_seconds + needs.backward_seconds + needs.border_seconds;
      needs.border_seconds > 0 && found.seconds < border) {
    found.seconds = border;
    found.limit = found.backward_limit = step_limit::border;
  }
  if (found.seconds < needs.group_seconds) {
    found.seconds = needs.group_seconds;
    found.limit = found.backward_limit = step_limit::collectives;
  }
  constexpr double search_error = 1e-6;
  found.seconds *= 1 - search_error;
  return found;
}

namespace detail {

/// The least time from the sums of many parameters of a rank to their new weights on the device, for each of them [s].
/// The host updates some while their gradients come down and their weights go up, and the device updates the others.
[[nodiscard]] inline double update_seconds(const workload::machine_rates& rates)
{
  const double by_host = std::max({weight_bytes / rates.to_host_bytes_per_second,
                                   weight_bytes / rates.to_device_bytes_per_second, 1 / rates.host_updates_per_second});
  return 1 / (1 / by_host + rates.device_updates_per_second);
}

/// Parameters of tables that are looked up, and that no product of a backward pass reads.
[[nodiscard]] inline double unread_parameters(const workload::transformer_shape& shape,
                                              const workload::training_setup& setup)
{
  double all = 0;
  double last = 0;
  double first = 0;
  for (const workload::transformer_tensor& it : workload::tensors_of(shape)) {
    if (it.part != workload::transformer_operator::embedding) continue;
    last = static_cast<double>(it.elements());
    if (all == 0) first = last;
    all += last;
  }
  if (shape.projects_embedding()) all -= last;                 // a matrix
  if (shape.ties_embedding && setup.has_logits) all -= first;  // the head reads it
  return all;
}

}  // namespace detail

/// The needs of a workload on one rank of a machine. The chunk size, the share of updates and the room for gathered
/// weights are ignored in the settings. Activations that move take no room.
/// @param activations   an entry for each layer of the shape; `setup.recomputes_layers` is ignored
/// @throws              as forecast_training
[[nodiscard]] inline step_needs step_needs_of(const workload::transformer_shape& shape,
                                              const workload::training_setup& setup, const workload::rank_share& share,
                                              const rank_settings& settings, const layer_activations& activations)
{
  settings.check(), share.check();
  const std::uint64_t whole = workload::parameters_of(shape);
  const double ranks = static_cast<double>(share.ranks);
  const parameter_groups groups{shape, setup, whole};
  constexpr double one_each = 1e9;  // then a nanosecond is a FLOP, and nothing is rounded up
  const training_script script{groups, activations, one_each};
  const double flops_per_second = share.rates.device_flops_per_second * settings.reached_share;
  const per_tier<bytes> capacity = capacities_of(share, settings);
  step_needs made;
  made.parameters = static_cast<double>(whole) / ranks;
  made.unread = detail::unread_parameters(shape, setup) / ranks;
  made.state_bytes = settings.states.bytes();
  made.update_bytes = settings.states.update_bytes();
  made.rates = share.rates;
  const update_rates updates = update_rates_of(share, settings);
  made.rates.host_updates_per_second = updates.host_parameters_per_second;
  made.rates.device_updates_per_second = updates.device_parameters_per_second;
  made.takes_norm = settings.takes_norm;
  made.updates_at_once = !settings.updates_late;
  made.device_between = static_cast<double>(capacity[tier::device].count());
  made.host = static_cast<double>(capacity[tier::host].count());
  made.device_at_peak = made.device_between;
  if (share.ranks > 1) {
    const std::uint64_t nanoseconds =
        exchange_of(share, settings).nanoseconds(bytes{2 * (whole / share.ranks * share.ranks)});
    made.gathered_bytes = 2 * made.parameters * (ranks - 1);
    made.gather_seconds = static_cast<double>(nanoseconds - std::min<std::uint64_t>(nanoseconds, 1)) * 1e-9;
  }
  std::vector<bytes> sizes(script.leases());
  double leased = 0;
  double* pass = &made.forward_seconds;
  for (const act& it : script.acts()) switch (it.kind) {
      case act_kind::lease: leased += static_cast<double>((sizes[it.id] = it.size).count()); break;
      case act_kind::give: leased -= static_cast<double>(sizes[it.id].count()); break;
      case act_kind::backward:
        made.device_at_turn = made.device_between - leased;
        pass = &made.backward_seconds;
        break;
      case act_kind::use: {
        made.device_at_peak = std::min(made.device_at_peak, made.device_between - leased);
        *pass += static_cast<double>(it.nanoseconds) / flops_per_second;
        break;
      }
      case act_kind::save:
      case act_kind::restore:
      case act_kind::let_go:
      case act_kind::drop: break;  // the manager moves these bytes
    }
  if (share.ranks > 1) {
    group_work work = group_work_of(shape, setup, flops_per_second);
    work.forward_seconds = made.forward_seconds, work.backward_seconds = made.backward_seconds;
    work.update_seconds = detail::update_seconds(made.rates) / ranks;
    made.group_seconds = least_group_step(work, exchange_of(share, settings), settings.takes_norm);
  }
  return made;
}

/// As above, with all layers as in `setup` and their activations on the device.
[[nodiscard]] inline step_needs step_needs_of(const workload::transformer_shape& shape,
                                              const workload::training_setup& setup, const workload::rank_share& share,
                                              const rank_settings& settings = {})
{
  return step_needs_of(shape, setup, share, settings, layer_activations::all(shape.layers, setup.recomputes_layers));
}

/// The bound of a workload on one rank of a machine.
///
/// Use:
///
///     const planner::step_bound bound = planner::step_bound_of(shape, {.micro_batch = 4}, share);
///     if (bound.fits) std::cout << "at least " << bound.seconds << " s, for " << name_of(bound.limit) << '\n';
///
/// @throws   as forecast_training
[[nodiscard]] inline step_bound step_bound_of(const workload::transformer_shape& shape,
                                              const workload::training_setup& setup, const workload::rank_share& share,
                                              const rank_settings& settings = {})
{
  return step_bound_of(step_needs_of(shape, setup, share, settings));
}

}  // namespace planner

}  // namespace chunkmem::inline v0
