// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunkmem.hpp>
#include <gpu/dense_runs.hpp>
#include <gpu/dense_trainer.hpp>
#include <support/chosen_gradient.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace gpu {

inline constexpr chunkmem::bytes dense_frame{16'384};  // a float32 weight
inline constexpr chunkmem::bytes dense_plenty{4 << 20};

/// One training: rehearsed for its capacity, then run. @tparam Updates   of a manager
template <class Backend, class Launcher, template <class> class Updates, class Element, class Options, class Run>
[[nodiscard]] std::vector<std::byte> train_dense(Options options, const dense_setting& setting, Run run)
{
  using manager = chunkmem::manager<Backend, support::chosen_gradient>;
  using trainer = dense_trainer<manager, Launcher, Updates<manager>, Element>;
  const support::chosen_gradient gradient{setting.in_place};
  const chunkmem::manager_options chunks{.chunk_bytes = dense_frame};
  options.device_capacity = options.host_capacity = dense_plenty;
  {
    Backend memory{options};
    manager m{memory, chunks, gradient};
    const chunkmem::memory_requirement need = trainer{m}.rehearse();
    options.device_capacity = need.everything;
    if (setting.device == room::half_more)
      options.device_capacity = align_up(chunkmem::bytes{need.smallest_device.count() * 3 / 2}, dense_frame);
    if (setting.device == room::smallest) options.device_capacity = need.smallest_device;
  }
  Backend memory{options};
  manager m{memory, chunks, gradient};
  trainer it{m};
  (void)it.rehearse();  // this manager learns, too, which gradients lie in place
  it.initialise();
  run(m, it);
  return it.collect();
}

/// `chosen.template with<Element>()` for the kind of parameters that the setting names.
template <class Chosen>
[[nodiscard]] std::vector<std::byte> with_parameters_of(const dense_setting& setting, Chosen chosen)
{
  return setting.half ? chosen.template with<chunkmem::bf16>() : chosen.template with<float>();
}

/// Steps, one after another.
struct plain_steps {
  const dense_setting& setting;
  template <class Manager, class Trainer>
  void operator()(Manager&, Trainer& it) const
  {
    for (std::uint32_t now = 0; now < setting.steps; ++now) it.step(setting.same_batch ? 0 : now);
  }
};

/// Steps, then one that is captured, then three replays of it.
struct replayed_steps {
  const dense_setting& setting;
  template <class Manager, class Trainer>
  void operator()(Manager& m, Trainer& it) const
  {
    for (std::uint32_t now = 0; now + 4 < setting.steps; ++now) it.step(0);
    auto captured = m.capture([&] { it.step(0); });
    for (int again = 0; again < 3; ++again)
      if (!captured.replay()) throw std::logic_error{"a captured step could not be replayed"};
  }
};

}  // namespace gpu
