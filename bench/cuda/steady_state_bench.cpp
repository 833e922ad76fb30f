// SPDX-License-Identifier: Apache-2.0
// Does a step that follows its record ever wait for the GPU, or ask for memory?
//
// Counts, not times: calls of the runtime that may block the caller, and calls that make memory, streams, events or
// graphs, operator new included, in steps that repeat. There must be none between the start of an iteration and the end
// of its backward pass, wherever the updates run; where they run on the GPU, none in the whole step. The device holds
// about half of the bytes that the step uses, so that every step loads and evicts.
#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/cuda_runtime.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>
#include <gpu/dense_trainer.hpp>
#include <gpu/machine.hpp>
#include <gpu/start.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>

/// Calls of operator new so far: count_news.cpp.
std::uint64_t news_so_far() noexcept;

namespace {

namespace cm = chunkmem;
using gpu_memory = cm::backend::cuda_device<cm::backend::cuda_runtime>;
using manager = cm::manager<gpu_memory, cm::gradient::in_place>;

constexpr gpu::dense_shape shape{.layers = 24, .width = 2048, .batch = 64};
constexpr cm::bytes frame{std::uint64_t{8} << 20};  // a weight
constexpr cm::bytes plenty{std::uint64_t{4} << 30};
constexpr std::uint32_t warm_steps = 4;
constexpr std::uint32_t steps = 8;

struct counts {
  std::uint64_t synchronizations = 0;
  std::uint64_t allocations = 0;

  [[nodiscard]] static counts now(const gpu_memory& memory)
  {
    return {memory.synchronizations(), memory.allocations() + news_so_far()};
  }
};

/// The largest counts of one step.
struct worst {
  counts in_passes;
  counts in_step;
  std::uint64_t loads = 0;  // of all steps

  static void raise(counts& most, const counts& before, const counts& after)
  {
    most.synchronizations = std::max(most.synchronizations, after.synchronizations - before.synchronizations);
    most.allocations = std::max(most.allocations, after.allocations - before.allocations);
  }
};

template <class Updates>
worst measure()
{
  using trainer = gpu::dense_trainer<manager, gpu::kernel_starter, Updates, cm::bf16>;
  const cm::manager_options chunks{.chunk_bytes = frame};
  cm::bytes capacity;
  {
    gpu_memory memory{{.device_capacity = plenty, .host_capacity = plenty}};
    manager m{memory, chunks};
    const cm::memory_requirement need = trainer{m, shape}.rehearse();
    capacity = align_up(cm::bytes{(need.smallest_device.count() + need.everything.count()) / 2}, frame);
  }
  gpu_memory memory{{.device_capacity = capacity, .host_capacity = plenty}};
  manager m{memory, chunks};
  trainer it{m, shape};
  (void)it.rehearse();
  it.initialise();
  for (std::uint32_t now = 0; now < warm_steps; ++now) it.step(now);
  worst found;
  const std::uint64_t loads_before = m.report().loads;
  for (std::uint32_t now = warm_steps; now < warm_steps + steps; ++now) {
    const counts begin = counts::now(memory);
    it.step(now, [&] { worst::raise(found.in_passes, begin, counts::now(memory)); });
    worst::raise(found.in_step, begin, counts::now(memory));
  }
  found.loads = m.report().loads - loads_before;
  return found;
}

void print(const char* what, const worst& it)
{
  std::printf("%-24s %10u %10u %10u %10u %10u\n", what, static_cast<unsigned>(it.in_passes.synchronizations),
              static_cast<unsigned>(it.in_passes.allocations), static_cast<unsigned>(it.in_step.synchronizations),
              static_cast<unsigned>(it.in_step.allocations), static_cast<unsigned>(it.loads));
}

}  // namespace

int main()
{
  if (const std::string why = gpu::why_not(); !why.empty()) {
    std::printf("SKIPPED: %s\n", why.c_str());
    return 4;
  }
  const worst on_host = measure<gpu::host_updates<manager>>();
  const worst on_device = measure<gpu::device_updates<manager, gpu::kernel_starter>>();
  std::printf("%-24s %21s %21s %10s\n%-24s %10s %10s %10s %10s\n", "most of one step", "forward and backward",
              "whole step", "loads", "updates", "waits", "memory", "waits", "memory");
  print("on the host", on_host);
  print("on the GPU", on_device);
  if (on_host.loads == 0 || on_device.loads == 0) {
    std::printf("nothing was loaded: this measures nothing\n");
    return 1;
  }
  gpu::figures figures{"steady_state_bench"};
  const auto as_number = [](std::uint64_t count) { return static_cast<double>(count); };
  figures.add("cuda.steady_state_synchronizations",
              as_number(std::max(on_host.in_passes.synchronizations, on_device.in_step.synchronizations)), "calls",
              "==", 0);
  figures.add("cuda.steady_state_allocations",
              as_number(std::max(on_host.in_step.allocations, on_device.in_step.allocations)), "calls", "==", 0);
  return figures.write() ? 0 : 1;
}
