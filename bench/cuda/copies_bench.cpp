// SPDX-License-Identifier: Apache-2.0
// What does a copy through the backend, or through a manager, cost over a direct call of the runtime?
//
// The reference is cudaMemcpyAsync between the same pinned and device memory, on streams of its own. Rounds of all
// contestants are interleaved; the best of each counts. Three cases: one direction, both at once, and a manager that
// walks through more tensors than the device holds, so that its plan loads most of them anew in each iteration. A
// figure is the worst over sizes from 4 MiB on.
#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/cuda_runtime.hpp>
#include <chunkmem/manager/manager.hpp>
#include <gpu/machine.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace cm = chunkmem;
using cm::agent;
using gpu_memory = cm::backend::cuda_device<cm::backend::cuda_runtime>;

namespace {

constexpr int rounds = 15;
constexpr std::uint64_t at_once = std::uint64_t{256} << 20;  // bytes of a round in one direction, in copies of a size
constexpr std::uint64_t sizes[] = {4, 16, 64, 256};          // [MiB]

template <class Work>
double seconds_of(Work work)
{
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void require(cudaError_t answer)
{
  if (answer == cudaSuccess) return;
  std::printf("%s\n", cudaGetErrorString(answer));
  std::exit(1);
}

/// Pinned and device memory for one direction.
struct lane {
  std::byte* host;
  std::byte* device;
  cudaStream_t stream;

  explicit lane(gpu_memory& memory)
      : host{memory.allocate(cm::tier::host, cm::bytes{at_once})},
        device{memory.allocate(cm::tier::device, cm::bytes{at_once})},
        stream{nullptr}
  {
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
};

class comparison {
 public:
  explicit comparison(gpu_memory& memory) : memory_{memory}, up_{memory}, down_{memory} {}

  /// Seconds of the best round: of the runtime and of chunkmem, to the device, to the host, and both at once.
  struct result {
    double raw[3];
    double ours[3];
  };
  result measure(std::uint64_t size)
  {
    result best{{1e9, 1e9, 1e9}, {1e9, 1e9, 1e9}};
    for (int round = 0; round <= rounds; ++round) {
      for (int which = 0; which < 3; ++which) {
        const double raw = seconds_of([&] { copy_raw(size, which != 1, which != 0); });
        const double ours = seconds_of([&] { copy_ours(size, which != 1, which != 0); });
        if (round == 0) continue;  // the first round warms up
        best.raw[which] = std::min(best.raw[which], raw);
        best.ours[which] = std::min(best.ours[which], ours);
      }
    }
    return best;
  }

 private:
  void copy_raw(std::uint64_t size, bool up, bool down)
  {
    for (std::uint64_t index = 0; index < at_once; index += size) {
      if (up) require(cudaMemcpyAsync(up_.device + index, up_.host + index, size, cudaMemcpyHostToDevice, up_.stream));
      if (down)
        require(cudaMemcpyAsync(down_.host + index, down_.device + index, size, cudaMemcpyDeviceToHost, down_.stream));
    }
    require(cudaStreamSynchronize(up_.stream));
    require(cudaStreamSynchronize(down_.stream));
  }
  void copy_ours(std::uint64_t size, bool up, bool down)
  {
    for (std::uint64_t index = 0; index < at_once; index += size) {
      if (up) memory_.copy(up_.device + index, up_.host + index, cm::bytes{size}, agent::to_device);
      if (down) memory_.copy(down_.host + index, down_.device + index, cm::bytes{size}, agent::to_host);
    }
    memory_.wait(agent::host, memory_.record(agent::to_device));
    memory_.wait(agent::host, memory_.record(agent::to_host));
  }

  gpu_memory& memory_;
  lane up_;
  lane down_;
};

/// A manager's bandwidth in bytes per second: it walks through tensors of `size` on a device that holds a quarter of
/// them, reads each on the compute agent, and also writes each if `writes`.
double managed_bandwidth(std::uint64_t size, bool writes)
{
  constexpr std::uint64_t total = std::uint64_t{1} << 30;
  const cm::bytes frame{size};
  const auto count = static_cast<std::uint32_t>(std::max(total / size, std::uint64_t{16}));
  gpu_memory memory{{.device_capacity = frame * (count / 4), .host_capacity = frame * count}};
  cm::manager<gpu_memory> m{memory, {.chunk_bytes = frame}};
  std::vector<cm::tensor<float>> tensors;
  for (std::uint32_t index = 0; index < count; ++index)
    tensors.push_back(m.add<float>({size / sizeof(float)}, cm::role::buffer));
  for (const auto it : tensors) m.acquire(it, cm::access::write, cm::memory_location::host).release();
  const auto walk = [&] {
    const auto scope = m.iteration();
    for (const auto it : tensors)
      m.acquire(it, writes ? cm::access::read_write : cm::access::read, agent::compute).release();
  };
  for (int warm = 0; warm < 4; ++warm) walk();
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const cm::report before = m.report();
    const double seconds = seconds_of([&] {
      walk();
      for (const agent stream : {agent::compute, agent::to_device, agent::to_host})
        memory.wait(agent::host, memory.record(stream));
    });
    const cm::report after = m.report();
    const std::uint64_t moved =
        (after.loaded - before.loaded).count() + (after.written_back - before.written_back).count();
    best = std::max(best, static_cast<double>(moved) / seconds);
  }
  return best;
}

}  // namespace

int main()
{
  if (const std::string why = gpu::why_not(); !why.empty()) {
    std::printf("SKIPPED: %s\n", why.c_str());
    return 4;
  }
  constexpr double bytes = at_once;
  double worst[5] = {1e9, 1e9, 1e9, 1e9, 1e9};
  std::vector<comparison::result> results;
  {
    gpu_memory memory{{.device_capacity = cm::bytes{2 * at_once}, .host_capacity = cm::bytes{2 * at_once}}};
    comparison all{memory};
    for (const std::uint64_t size : sizes) results.push_back(all.measure(size << 20));
  }
  std::printf("%s, driver %s\n%8s %26s %26s %26s %20s\n", gpu::device_name().c_str(), gpu::driver_version().c_str(),
              "copies", "to device raw/ours [GB/s]", "to host raw/ours", "both at once raw/ours", "managed load/both");
  for (std::size_t index = 0; index < std::size(sizes); ++index) {
    const comparison::result& it = results[index];
    const double loads = managed_bandwidth(sizes[index] << 20, false);
    const double both = managed_bandwidth(sizes[index] << 20, true);
    std::printf("%4u MiB", static_cast<unsigned>(sizes[index]));
    for (int which = 0; which < 3; ++which) {
      const double factor = which == 2 ? 2 : 1;
      std::printf("      %9.2f %9.2f", factor * bytes / it.raw[which] / 1e9, factor * bytes / it.ours[which] / 1e9);
      worst[which] = std::min(worst[which], it.raw[which] / it.ours[which]);
    }
    std::printf("      %9.2f %9.2f\n", loads / 1e9, both / 1e9);
    worst[3] = std::min(worst[3], loads / (bytes / it.raw[0]));
    worst[4] = std::min(worst[4], both / (2 * bytes / it.raw[2]));
  }
  gpu::figures figures{"copies_bench"};
  figures.add("cuda.copy_over_raw_to_device", worst[0], "ratio", ">=", 0.95);
  figures.add("cuda.copy_over_raw_to_host", worst[1], "ratio", ">=", 0.95);
  figures.add("cuda.copy_both_over_raw_sum", worst[2], "ratio", ">=", 0.9);
  figures.add("cuda.managed_load_over_raw", worst[3], "ratio", ">=", 0.95);
  figures.add("cuda.managed_both_over_raw_sum", worst[4], "ratio", ">=", 0.9);
  return figures.write() ? 0 : 1;
}
