// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/transfers.hpp>
#include <support/any_backend.hpp>
#include <support/any_manager.hpp>
#include <support/catch.hpp>
#include <support/mixed_reference.hpp>
#include <support/mixed_trainer.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>

/// Runs the mixed trainer in single precision under one setting and compares all its results with those on vectors.
namespace equality {

namespace cm = chunkmem;
namespace mixed = support::mixed;
using namespace cm::literals;
using support::any_backend;
using support::policies;
using demand_manager = support::any_manager<any_backend, cm::transfer::no_prefetch>;
using ahead_manager = support::any_manager<any_backend>;

inline constexpr std::uint32_t steps = 5;
inline constexpr std::uint32_t settled = 3;  // steps after which decisions repeat
inline constexpr cm::bytes frame = 6_KiB;
inline constexpr cm::bytes plenty = 1_MiB;

template <class Manager, class Backend>
using trainer_of = mixed::trainer<Manager, Backend, float>;
inline constexpr mixed::recipe usual = mixed::usual_recipe(steps);

[[nodiscard]] inline const mixed::outcome& reference(bool evaluates = true)
{
  static const mixed::outcome results[] = {mixed::reference{mixed::usual_recipe(steps, false)}.train(),
                                           mixed::reference{usual}.train()};
  return results[evaluates ? 1 : 0];
}

enum class size : std::uint8_t { smallest, half_more, unlimited };

[[nodiscard]] inline cm::bytes device_for(size which, const cm::memory_requirement& need)
{
  if (which == size::smallest) return need.smallest_device;
  return which == size::half_more ? cm::align_up(cm::bytes{need.smallest_device.count() * 3 / 2}, frame)
                                  : need.everything;
}

[[nodiscard]] inline policies evicting(std::string_view which)
{
  policies with;
  with.eviction = support::every_eviction{which};
  return with;
}

template <class Manager, class Backend>
[[nodiscard]] Manager make(Backend& memory, const policies& with)
{
  return support::make_manager<Manager>(memory, {.chunk_bytes = frame}, with);
}

/// The moves after the first steps.
struct traffic {
  std::uint64_t loads = 0;
  std::uint64_t bytes = 0;

  [[nodiscard]] static traffic of(const cm::report& now)
  {
    return {now.loads, now.loaded.count() + now.written_back.count()};
  }
};

/// The need of the step, found without any allocation.
template <class Manager, class Backend, class Options>
[[nodiscard]] cm::memory_requirement need_of(Options options, cm::bytes device, const policies& with = {})
{
  options.device_capacity = device;
  options.host_capacity = plenty;
  Backend memory{options};
  Manager manager = make<Manager>(memory, with);
  return trainer_of<Manager, Backend>{manager, memory, usual}.rehearse();
}

/// The same for whole steps: what their evaluations need as well.
template <class Manager, class Backend, class Options>
[[nodiscard]] cm::memory_requirement need_of_whole_step(Options options, cm::bytes device, const policies& with)
{
  cm::memory_requirement need = need_of<Manager, Backend>(options, device, with);
  options.device_capacity = device;
  options.host_capacity = plenty;
  Backend memory{options};
  Manager manager = make<Manager>(memory, with);
  const cm::bytes evaluation =
      trainer_of<Manager, Backend>{manager, memory, usual}.rehearse_evaluation().smallest_device;
  need.smallest_device = std::max(need.smallest_device, evaluation);
  return need;
}

/// The settings of the trainer, apart from its manager.
struct manner {
  bool launched = false;  ///< kernels on compute and on an adopted agent, else by the caller
  bool evaluates = true;
  bool rehearses = false;          ///< so that a placement knows the peak of leases before the first step
  bool may_run_on_demand = false;  ///< evaluations: a rehearsal of the step does not prove that they have a plan
};

/// One run of the trainer. Checks bits, capacity and faults. @return   what moved in the steady steps
template <class Manager, class Backend, class Options>
traffic run_and_compare(const Options& options, const manner& how, const policies& with = {})
{
  Backend memory{options};
  mixed::crew workers;
  if (how.launched) workers = {cm::agent::compute, memory.adopt()};
  traffic early;
  traffic whole;
  {
    Manager manager = make<Manager>(memory, with);
    trainer_of<Manager, Backend> trainer{manager, memory, usual, workers};
    if (how.rehearses) trainer.rehearse();
    trainer.initialise();
    for (std::uint32_t now = 0; now < steps; ++now) {
      if (now == settled) early = traffic::of(manager.report());
      how.evaluates ? trainer.whole_step(now) : trainer.step(now);
    }
    whole = traffic::of(manager.report());
    const std::string difference = reference(how.evaluates).difference(trainer.collect());
    REQUIRE(difference == "");
    const cm::report seen = manager.report();
    for (const cm::tier where : {cm::tier::device, cm::tier::host}) {
      REQUIRE(seen.peak[where] <= seen.capacity[where]);
      REQUIRE(seen.in_use[where] <= seen.peak[where]);
    }
    REQUIRE(seen.divergences == 0);
    if (!how.may_run_on_demand) REQUIRE(seen.abandoned_plans == 0);
    REQUIRE(seen.waits.other == 0);
  }
  if constexpr (requires { memory.faults(); }) {
    memory.drain();
    const std::string fault = memory.faults().empty() ? "" : memory.faults().front();
    REQUIRE(fault == "");
  }
  return {whole.loads - early.loads, whole.bytes - early.bytes};
}

using names = std::span<const std::string_view>;
inline constexpr int runs_of_matrix = 6 * static_cast<int>(support::every_eviction::names.size());

/// Evictions (all, if not said otherwise) x {smallest, 1.5x, unlimited} x {no_prefetch, lookahead}. @return   the
/// number of runs
template <class Backend, class Options>
int run_matrix(Options options, bool launched, names evictions = support::every_eviction::names)
{
  using demand_type = support::any_manager<Backend, cm::transfer::no_prefetch>;
  using ahead_type = support::any_manager<Backend>;
  int runs = 0;
  options.host_capacity = plenty;
  for (const std::string_view which : evictions) {
    const policies with = evicting(which);
    const manner how{.launched = launched, .may_run_on_demand = which == "list_order"};
    static std::map<std::string_view, std::array<cm::memory_requirement, 2>> known;
    const auto& needs = known.contains(which)
                            ? known[which]
                            : known[which] = {need_of_whole_step<demand_type, Backend>(options, plenty, with),
                                              need_of_whole_step<ahead_type, Backend>(options, plenty, with)};
    for (const size capacity : {size::smallest, size::half_more, size::unlimited}) {
      INFO("eviction " << which << ", size " << static_cast<int>(capacity) << ", launched " << launched);
      options.device_capacity = std::max(device_for(capacity, needs[0]), device_for(capacity, needs[1]));
      const traffic demand = run_and_compare<demand_type, Backend>(options, how, with);
      const traffic ahead = run_and_compare<ahead_type, Backend>(options, how, with);
      CHECK(ahead.loads <= demand.loads);
      CHECK(ahead.bytes <= demand.bytes);
      runs += 2;
    }
  }
  return runs;
}

}  // namespace equality
