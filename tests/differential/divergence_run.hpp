// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "divergence_setting.hpp"
#include "managed_walk.hpp"
#include "plain_walk.hpp"

#include <chunkmem/placement/placements.hpp>
#include <support/any_backend.hpp>
#include <support/any_manager.hpp>
#include <support/own_policies.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Trains under one setting and compares everything that is left with the run on plain vectors.
namespace divergence {

using namespace cm::literals;

inline constexpr cm::bytes frame = 4_KiB;
inline constexpr cm::bytes plenty = 2_MiB;
inline constexpr std::size_t iterations = 10;
inline constexpr int most_enlargements = 24;

using support::any_backend;
using support::every_placement;
using manager = support::any_manager<any_backend>;

[[nodiscard]] inline every_placement placement_of(const setting& it)
{
  using cm::placement::device_margin, cm::placement::fixed_split, cm::placement::update_share;
  const every_placement all[setting::extents[setting::placement]] = {
      every_placement{cm::placement::optimizer_on_host{}},
      every_placement{fixed_split{0.0}},
      every_placement{fixed_split{0.3}},
      every_placement{fixed_split{0.7}},
      every_placement{fixed_split{1.0}},
      every_placement{device_margin{}},
      every_placement{device_margin{0.3}},
      every_placement{device_margin{1.0}},
      every_placement{update_share{0.25}},
      every_placement{update_share{0.75}},
      every_placement{support::device_only{}},
      every_placement{support::small_on_device{4_KiB}}};
  return all[it.at[setting::placement]];
}

[[nodiscard]] inline support::policies policies_of(const setting& it)
{
  return {.eviction = support::every_eviction{support::every_eviction::names[it.at[setting::eviction]]},
          .transfer = support::every_transfer{"planned"},
          .placement = placement_of(it),
          .gradient = support::chosen_gradient{it.in_place()}};
}

/// A manager for a setting, and its trainer.
template <class Element>
struct rig {
  rig(const setting& it, any_backend& memory)
      : m{support::make_manager<manager>(memory, {.chunk_bytes = frame}, policies_of(it))},
        walk{m, memory, it.recipe(), it.launched() ? cm::agent::compute : cm::agent::host}
  {
  }
  manager m;
  managed_walk<manager, any_backend, Element> walk;
};

/// A static partition takes the room for its share or refuses; the others take any from the smallest on.
[[nodiscard]] inline cm::bytes device_for(const setting& it, const cm::memory_requirement& need)
{
  const std::uint8_t which = it.at[setting::placement];
  if (it.at[setting::device] == 3 || (which >= 1 && which <= 4)) return need.everything;
  constexpr std::uint64_t quarters[] = {4, 5, 8};
  return cm::align_up(cm::bytes{need.smallest_device.count() * quarters[it.at[setting::device]] / 4}, frame);
}
[[nodiscard]] inline cm::bytes host_for(const setting& it, const cm::memory_requirement& need)
{
  return it.host_is_tight() ? cm::align_up(cm::bytes{need.smallest_host.count() * 9 / 8}, frame) : plenty;
}

/// A rehearsal refused the capacities, and said what it wants. So does a static partition, which counts gradients in
/// bytes of their own until an iteration has shown that they lie in their weights.
[[nodiscard]] inline bool wants_more(const cm::config_error& refused)
{
  const std::string_view said = refused.what();
  if (said.find("a static partition of this model needs ") != said.npos) return true;
  return said.find(" capacity is ") != said.npos && said.find("but this step needs at least ") != said.npos;
}

/// @param is_proven   false from the first iteration on that a rehearsal does not prove
template <class Walk>
[[nodiscard]] mixed::outcome train_with(Walk& walk, const std::vector<turn>& turns, bool& is_proven)
try {
  return walk.train(turns);
} catch (...) {
  is_proven = is_proven && !walk.strayed();
  throw;
}

/// Names the first broken promise, or nothing.
[[nodiscard]] inline std::string broken_promise(const cm::report& seen)
{
  for (const cm::tier where : {cm::tier::device, cm::tier::host})
    if (seen.peak[where] > seen.capacity[where] || seen.in_use[where] > seen.peak[where])
      return "more bytes than the capacity";
  return {};
}

/// The device by what a rehearsal with plenty of both says, then the host by one beside that device: next to a smaller
/// device more lives on the host. Where pins cut windows off, a device above the smallest can be too small, and gets
/// more frames.
template <class Element>
void choose_capacities(const setting& it, support::any_options& options)
{
  const auto need = [&] {
    any_backend memory{options};
    return rig<Element>{it, memory}.walk.rehearse();
  };
  options.device_capacity = options.host_capacity = plenty;
  options.device_capacity = device_for(it, need());
  for (int tries = 0;; ++tries) {
    try {
      options.host_capacity = host_for(it, need());
      return;
    } catch (const cm::config_error& refused) {
      if (tries == most_enlargements || !wants_more(refused)) throw;
    }
    options.device_capacity = options.device_capacity + frame;
  }
}

/// A run begins anew with more room where an iteration that nobody rehearsed does not fit, which is no defect: one that
/// strays pins and leases otherwise, and the regular one behind it leaves a record that is not its own, in the middle,
/// where nothing can be cleared; its windows of several frames are then cut up by what lies between them. A rehearsal
/// in the middle knows a higher peak of leases, and states that want tiers when the device is cleared. In a run without
/// one no iteration has been proven, and no placement knows the peak of leases. But as long as all were regular, what
/// was rehearsed fits.
template <class Element>
[[nodiscard]] std::string train(const setting& it, support::any_options options, tally& sum)
{
  const std::vector<turn> turns = random_turns(it.seed, iterations, !it.in_place());
  plain_walk reference{it.recipe()};
  const mixed::outcome expected = reference.train(turns);
  choose_capacities<Element>(it, options);
  for (int enlarged = 0;; ++enlarged) {
    bool is_proven = it.rehearses();
    try {
      any_backend memory{options};
      rig<Element> under{it, memory};
      if (it.rehearses()) under.walk.rehearse();
      std::string difference = expected.difference(train_with(under.walk, turns, is_proven));
      const cm::report seen = under.m.report();
      if (difference.empty()) difference = broken_promise(seen);
      memory.drain();
      if (difference.empty() && !memory.faults().empty()) difference = memory.faults().front();
      sum.iterations += seen.iterations;
      sum.divergences += seen.divergences;
      sum.replans += seen.replans;
      sum.loads += seen.loads;
      sum.retried += under.walk.retried();
      sum.enlarged += enlarged > 0 ? 1 : 0;
      const float limit = it.recipe().clip.norm;
      if (limit > 0)
        sum.clipped += static_cast<std::uint64_t>(
            std::count_if(reference.norms().begin(), reference.norms().end(),
                          [limit](double norm) { return norm > static_cast<double>(limit); }));
      sum.skipped += reference.skipped();
      return difference;
    } catch (const cm::out_of_memory&) {
      if (enlarged == most_enlargements || is_proven) throw;
    } catch (const cm::config_error& refused) {
      if (enlarged == most_enlargements || !wants_more(refused)) throw;
    }
    options.device_capacity = options.device_capacity + cm::bytes{4 * frame.count()};
    options.host_capacity = options.host_capacity + cm::bytes{8 * frame.count()};
  }
}

[[nodiscard]] inline std::string run(const setting& it, tally& sum)
{
  support::any_options options = cm::backend::host_arena_options{.async_compute = it.launched()};
  if (it.adversarial())
    options = support::adversarial_options{
        .when = static_cast<support::schedule>(it.seed / 5 % 3), .seed = 1 + it.seed, .async_compute = it.launched()};
  return it.is_short() ? train<cm::bf16>(it, options, sum) : train<float>(it, options, sum);
}

}  // namespace divergence
