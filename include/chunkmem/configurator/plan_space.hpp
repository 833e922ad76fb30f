// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// The plans of a search.
///
///     const plan_space space{.rows = 512, .with_tensor = false};
struct plan_space {
  std::uint64_t rows = 1;                  ///< of a batch, over all replicas
  bool with_tensor = true;                 ///< ranks may share layers; such plans cannot be run yet
  bool with_cuts = true;                   ///< with a profile: stages may have different numbers of layers
  bool with_zero_0 = false;                ///< replicas may divide nothing; such plans cannot be trained here
  std::uint32_t most_parts = 4;            ///< of a stage, for interleaved
  std::vector<schedule_kind> schedules{};  ///< empty: all but two_versions, which trains with older weights
};

/// Plans with the same degrees and the same micro-batch, and every other choice.
///
///     for (const plan_family& family : families_of(space, shape, 64))
///       for (const parallel_plan& plan : family.plans) ...
struct plan_family {
  std::vector<parallel_plan> plans;  ///< one or more, without devices
};

namespace detail {

[[nodiscard]] inline std::vector<std::uint64_t> divisors_of(std::uint64_t number)
{
  std::vector<std::uint64_t> all;
  for (std::uint64_t it = 1; it <= number / it; ++it)
    if (number % it == 0) {
      all.push_back(it);
      if (it != number / it) all.push_back(number / it);
    }
  std::ranges::sort(all);
  return all;
}

/// Whether gradients of weights have a run of their own, which reads the saved activations.
[[nodiscard]] constexpr bool divides_backward(schedule_kind kind) noexcept
{
  return kind == schedule_kind::zb_h1 || kind == schedule_kind::zb_h2 || kind == schedule_kind::zb_v;
}

/// Schedules and parts of a stage that a family can have.
[[nodiscard]] inline std::vector<parallel_plan> scheduled(const parallel_plan& start, const plan_space& space,
                                                          const trained_model& model)
{
  std::vector<parallel_plan> all;
  const auto wants = [&](schedule_kind kind) {
    if (space.schedules.empty()) return kind != schedule_kind::two_versions;
    return std::ranges::find(space.schedules, kind) != space.schedules.end();
  };
  for (std::size_t number = 0; number < schedule_kinds; ++number) {
    parallel_plan plan = start;
    plan.schedule = static_cast<schedule_kind>(number);
    if (plan.stages == 1 && plan.schedule != schedule_kind::one_f_one_b) continue;  // they are the same
    if (!wants(plan.schedule) && plan.stages > 1) continue;
    const bool is_interleaved = plan.schedule == schedule_kind::interleaved;
    if (is_interleaved && space.most_parts < 2) continue;
    const std::uint32_t most = is_interleaved ? space.most_parts : plan.schedule == schedule_kind::zb_v ? 2 : 1;
    for (plan.parts = most == 1 ? 1 : 2; plan.parts <= most; ++plan.parts)
      if (std::uint64_t{plan.parts} * plan.stages <= model.units()) all.push_back(plan);
  }
  return all;
}

/// Appends the variants of a schedule: recompute, states on the host, and the stages of ZeRO.
inline void append_variants(std::vector<parallel_plan>& plans, const parallel_plan& start, const plan_space& space)
{
  const bool divides = start.replicas > 1;
  for (const bool recomputes : {false, true}) {
    if (recomputes && divides_backward(start.schedule)) continue;
    for (const bool on_host : {false, true})
      for (std::uint32_t zero = divides && space.with_zero_0 ? 0 : 1; zero <= (divides ? 3U : 1U); ++zero) {
        plans.push_back(start);
        plans.back().recomputes = recomputes;
        plans.back().states_on_host = on_host;
        plans.back().zero = zero;
      }
  }
}

}  // namespace detail

/// The devices that plans may use: all of them, and fewer, since a slow device or link can cost more than it gives.
///
/// Nodes are removed in the order of their speed, the slowest first; of equal nodes a power of two is kept. Of a
/// cluster of at most eight devices any number is kept.
///
///     for (const std::vector<std::uint32_t>& devices : device_choices(whole)) std::cout << devices.size() << '\n';
///
/// @return   ascending numbers of devices; all devices first   Cost: O(devices log devices)
[[nodiscard]] inline std::vector<std::vector<std::uint32_t>> device_choices(const cluster& whole)
{
  constexpr std::uint32_t few = 8;
  const auto speed = [&](std::uint32_t node) { return whole.nodes[node].device_flops_per_second; };
  std::vector<std::uint32_t> order(whole.nodes.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, std::greater{}, speed);
  std::vector<std::uint32_t> first_of(whole.nodes.size(), 0);
  for (std::size_t node = 1; node < first_of.size(); ++node)
    first_of[node] = first_of[node - 1] + whole.nodes[node - 1].devices;
  std::vector<std::vector<std::uint32_t>> all;
  std::vector<std::uint32_t> used;
  for (std::size_t count = 1; count <= order.size(); ++count) {
    const std::uint32_t node = order[count - 1];
    for (std::uint32_t device = 0; device < whole.nodes[node].devices; ++device) {
      if (whole.ranks() <= few && !used.empty()) all.push_back(used);
      used.push_back(first_of[node] + device);
    }
    const bool is_last = count == order.size();
    if (is_last || (whole.ranks() > few && (std::has_single_bit(count) || speed(order[count]) < speed(node))))
      all.push_back(used);
  }
  std::ranges::reverse(all);
  for (std::vector<std::uint32_t>& it : all) std::ranges::sort(it);
  return all;
}

/// Every way to divide a batch and a model over a number of devices: degrees whose product is their number, each
/// micro-batch that divides the rows of a replica, each schedule with up to `most_parts` parts, recompute, states on
/// the host, and ZeRO 1 to 3, or 0 to 3. Ranks that share layers divide the heads. Stages have equal numbers of layers:
/// find_plans adds other cuts.
///
/// A recomputed part has no schedule that divides backward runs: their second half reads activations that are not kept.
///
///     for (const plan_family& family : families_of({.rows = 64}, model, whole.ranks()))
///       for (const parallel_plan& plan : family.plans) std::cout << text_of(plan) << '\n';
///
/// @param devices   number of devices, with a rank each
/// @throws config_error   no rows, or nothing divides the devices
/// Cost: O(plans), of which there are some ten thousand for 1,024 devices
[[nodiscard]] inline std::vector<plan_family> families_of(const plan_space& space, const trained_model& model,
                                                          std::uint32_t devices)
{
  if (space.rows == 0) throw config_error{"a batch of 0 rows (give one or more)"};
  std::vector<plan_family> all;
  for (const std::uint64_t tensor : detail::divisors_of(devices)) {
    if ((tensor > 1 && !space.with_tensor) || !model.has_degree(static_cast<std::uint32_t>(tensor))) continue;
    for (const std::uint64_t stages : detail::divisors_of(devices / tensor)) {
      const std::uint64_t replicas = devices / tensor / stages;
      if (stages > model.units() || space.rows % replicas != 0) continue;
      for (const std::uint64_t rows : detail::divisors_of(space.rows / replicas)) {
        parallel_plan start;
        start.tensor = static_cast<std::uint32_t>(tensor);
        start.stages = static_cast<std::uint32_t>(stages);
        start.replicas = static_cast<std::uint32_t>(replicas);
        start.micro_batch = rows;
        start.micro_batches = static_cast<std::uint32_t>(space.rows / replicas / rows);
        plan_family family;
        for (const parallel_plan& plan : detail::scheduled(start, space, model))
          detail::append_variants(family.plans, plan, space);
        if (!family.plans.empty()) all.push_back(std::move(family));
      }
    }
  }
  if (all.empty())
    throw config_error{error_text{} << "chunkmem: no plan divides " << space.rows << " rows, " << model.units()
                                    << " layers and " << model.shape.heads << " heads over " << devices
                                    << " devices (give rows, layers or heads that can be divided so)"};
  return all;
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
