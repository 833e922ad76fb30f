// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "precision_setting.hpp"

#include <support/any_manager.hpp>
#include <support/mixed_trainer.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

/// Trains under one setting and compares everything that is left with the run on plain vectors.
namespace precision {

namespace cm = chunkmem;
using namespace cm::literals;

inline constexpr cm::bytes frame = 4_KiB;
inline constexpr cm::bytes plenty = 2_MiB;
inline constexpr cm::manager_options chunks{.chunk_bytes = frame};

/// The reference's outcome for a recipe of the matrix, made once.
[[nodiscard]] inline const mixed::outcome& expected(const setting& it)
{
  static std::map<std::tuple<int, int, int>, mixed::outcome> known;
  const std::tuple<int, int, int> key{it.at[setting::kind], it.at[setting::optimizer], it.at[setting::accumulation]};
  const auto found = known.find(key);
  return found != known.end() ? found->second : known.emplace(key, mixed::reference{it.recipe()}.train()).first->second;
}

/// Where the calling thread cannot read the device, it updates on the host whatever the setting says.
[[nodiscard]] inline support::policies policies_of(const setting& it)
{
  using namespace support;
  return {.eviction = every_eviction{every_eviction::names[it.at[setting::eviction]]},
          .transfer = every_transfer{every_transfer::names[it.at[setting::transfer]]},
          .layout = every_layout{every_layout::names[it.at[setting::layout]]},
          .placement = every_placement{every_placement::names[it.at[setting::placement]]},
          .gradient = chosen_gradient{it.in_place()}};
}
template <class Backend>
[[nodiscard]] mixed::crew crew_of(const setting& it, Backend& memory)
{
  return it.launched() ? mixed::crew{cm::agent::compute, memory.adopt()} : mixed::crew{};
}
[[nodiscard]] inline cm::bytes device_for(std::uint8_t size, const cm::memory_requirement& need)
{
  if (size == 3) return need.everything;
  const std::uint64_t half = need.smallest_device.count() / 2;
  constexpr std::uint64_t halves[] = {2, 3, 6};
  return cm::align_up(cm::bytes{half * halves[size]}, frame);
}

/// Names the first broken promise of a report, or nothing.
[[nodiscard]] inline std::string broken_promise(const cm::report& seen)
{
  for (const cm::tier where : {cm::tier::device, cm::tier::host})
    if (seen.peak[where] > seen.capacity[where] || seen.in_use[where] > seen.peak[where])
      return "more bytes than the capacity";
  return {};
}

/// Windows of several frames may lie so that more room than the smallest is not enough: a rehearsal says so.
template <class Trainer, class Manager, class Backend, class Options>
[[nodiscard]] bool fits(const setting& it, const Options& options)
{
  Backend memory{options};
  const mixed::crew workers = crew_of(it, memory);
  Manager m = support::make_manager<Manager>(memory, chunks, policies_of(it));
  try {
    (void)Trainer{m, memory, it.recipe(), workers}.rehearse();
    return true;
  } catch (const cm::config_error&) {
    return false;
  }
}

/// Trains on `Backend` with parameters of `Element`. Half of the runs rehearse on the manager that trains, too:
/// gradients lie in place from the first step on, else from the second.
template <class Element, class Backend, class Options>
[[nodiscard]] std::string train(const setting& it, Options options)
{
  using manager = support::any_manager<Backend>;
  using trainer = mixed::trainer<manager, Backend, Element>;
  const mixed::recipe how = it.recipe();
  options.device_capacity = options.host_capacity = plenty;
  {
    Backend memory{options};
    const mixed::crew workers = crew_of(it, memory);
    manager m = support::make_manager<manager>(memory, chunks, policies_of(it));
    options.device_capacity = device_for(it.at[setting::size], trainer{m, memory, how, workers}.rehearse());
  }
  if (it.at[setting::size] == 0 && !fits<trainer, manager, Backend>(it, options))
    return "the smallest capacity does not fit";
  while (!fits<trainer, manager, Backend>(it, options)) options.device_capacity = options.device_capacity + frame;
  Backend memory{options};
  const mixed::crew workers = crew_of(it, memory);
  std::string difference;
  {
    manager m = support::make_manager<manager>(memory, chunks, policies_of(it));
    trainer run{m, memory, how, workers};
    if (it.at[setting::eviction] == it.at[setting::optimizer]) run.rehearse();
    difference = expected(it).difference(run.train());
    if (difference.empty()) difference = broken_promise(m.report());
  }
  if constexpr (requires { memory.faults(); }) {
    memory.drain();
    if (difference.empty() && !memory.faults().empty()) difference = memory.faults().front();
  }
  return difference;
}

template <class Backend, class Options>
[[nodiscard]] std::string run_on(const setting& it, const Options& options)
{
  switch (it.precision()) {
    case mixed::precision::bf16: return train<cm::bf16, Backend>(it, options);
    case mixed::precision::fp16: return train<cm::fp16, Backend>(it, options);
    default: return train<float, Backend>(it, options);
  }
}

}  // namespace precision
