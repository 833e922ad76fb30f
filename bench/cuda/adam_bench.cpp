// SPDX-License-Identifier: Apache-2.0
// How much of the device memory's bandwidth does the fused Adam step use?
//
// The reference is a cudaMemcpyAsync from device to device that reads and writes as many bytes: for each 16-bit
// parameter with its gradient in place, 14 B are read and 14 B written. Rounds of all contestants are interleaved, and
// timed by events of the device; the best of each counts. Other ways to store a parameter are printed too.
#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/cuda_runtime.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_optimizer.hpp>
#include <gpu/machine.hpp>
#include <gpu/start.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace cm = chunkmem;
using namespace cm::optimizer;
using cm::agent;
using gpu_memory = cm::backend::cuda_device<cm::backend::cuda_runtime>;

namespace {

constexpr int rounds = 30;
constexpr std::uint64_t elements = std::uint64_t{256} << 20;

void require(cudaError_t answer)
{
  if (answer == cudaSuccess) return;
  std::printf("%s\n", cudaGetErrorString(answer));
  std::exit(1);
}

/// Milliseconds of the best run on a stream.
class contestant {
 public:
  contestant(const char* name, double bytes) : name_{name}, bytes_{bytes} {}

  template <class Work>
  void run(cudaStream_t stream, Work work)
  {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    require(cudaEventCreate(&begin));
    require(cudaEventCreate(&end));
    require(cudaEventRecord(begin, stream));
    work();
    require(cudaEventRecord(end, stream));
    require(cudaEventSynchronize(end));
    float passed = 0;
    require(cudaEventElapsedTime(&passed, begin, end));
    require(cudaEventDestroy(begin));
    require(cudaEventDestroy(end));
    best_ = std::min(best_, static_cast<double>(passed));
  }
  [[nodiscard]] double share_of(const contestant& yardstick) const
  {
    return bytes_ / best_ / (yardstick.bytes_ / yardstick.best_);
  }
  void print(const contestant& yardstick) const
  {
    std::printf("%-34s %5.0f B %8.3f ms %8.1f GB/s   %5.3f\n", name_, bytes_, best_, bytes_ * elements / best_ / 1e6,
                share_of(yardstick));
  }

 private:
  const char* name_;
  double bytes_;  // of traffic for each parameter
  double best_ = 1e9;
};

/// A device step that updates one parameter in every call.
template <class Kernel>
class updater {
 public:
  updater(gpu_memory& memory, Kernel kernel)
      : memory_{memory},
        kernel_{kernel},
        run_{kernel_,  device_step_memory<Kernel>{place(), sizes}, {.may_skip = false}, memory, agent::compute,
             launcher_}
  {
    const device_step_memory<Kernel> parts{start_, sizes};
    device_step_state state;
    const float rate = 1e-6F;
    memory.copy(reinterpret_cast<std::byte*>(parts.state()), reinterpret_cast<const std::byte*>(&state),
                cm::bytes{sizeof state});
    memory.copy(reinterpret_cast<std::byte*>(parts.rates()), reinterpret_cast<const std::byte*>(&rate),
                cm::bytes{sizeof rate});
    run_.begin();
    run_.decide();
  }
  void operator()(const parameter_bytes& all, bool is_overwritten)
  {
    run_.update(all, cm::group_id{0}, is_overwritten);
  }

 private:
  static constexpr device_step_sizes sizes{.groups = 1, .parameters = 1, .blocks = 1};

  [[nodiscard]] std::byte* place()
  {
    return start_ = memory_.allocate(cm::tier::device, device_step_memory<Kernel>::size(sizes));
  }

  gpu_memory& memory_;
  Kernel kernel_;
  gpu::kernel_starter launcher_;
  std::byte* start_ = nullptr;
  device_step<Kernel, gpu_memory, gpu::kernel_starter> run_;
};

/// The arrays of one parameter in every form.
struct arrays {
  std::byte* momentum;
  std::byte* variance;
  std::byte* master;
  std::byte* value;
  std::byte* gradient;
  std::byte* wide;

  explicit arrays(gpu_memory& memory)
  {
    for (std::byte** each : {&momentum, &variance, &master, &wide}) *each = zeros(memory, 4 * elements);
    for (std::byte** each : {&value, &gradient}) *each = zeros(memory, 2 * elements);
  }
  [[nodiscard]] parameter_bytes bf16(bool in_place) const
  {
    parameter_bytes all;
    all.value = value;
    all.gradient = in_place ? value : gradient;
    all.value_type = all.gradient_type = cm::dtype::bfloat16;
    all.lists[0] = {momentum};
    all.lists[1] = {variance};
    all.lists[2] = {master, cm::dtype::float32, cm::list_use::master};
    all.list_count = 3;
    all.elements = elements;
    return all;
  }
  [[nodiscard]] parameter_bytes fp32() const
  {
    parameter_bytes all = bf16(false);
    all.value = master;
    all.gradient = wide;
    all.value_type = all.gradient_type = cm::dtype::float32;
    all.list_count = 2;
    return all;
  }
  /// Only 16 bits: value, gradient, moments.
  [[nodiscard]] parameter_bytes all_bf16() const
  {
    parameter_bytes all = bf16(false);
    all.lists[0].type = all.lists[1].type = cm::dtype::bfloat16;
    all.list_count = 2;
    return all;
  }

 private:
  [[nodiscard]] static std::byte* zeros(gpu_memory& memory, std::uint64_t size)
  {
    std::byte* const place = memory.allocate(cm::tier::device, cm::bytes{size});
    memory.fill(place, std::byte{0}, cm::bytes{size}, agent::compute);
    return place;
  }
};

}  // namespace

int main()
{
  if (const std::string why = gpu::why_not(); !why.empty()) {
    std::printf("SKIPPED: %s\n", why.c_str());
    return 4;
  }
  gpu_memory memory{{.device_capacity = cm::bytes{elements * 48 + (1U << 20U)}, .host_capacity = cm::bytes{4096}}};
  arrays all{memory};
  std::byte* const copied = memory.allocate(cm::tier::device, cm::bytes{28 * elements});
  updater<adam> whole{memory, adam{}};
  updater<adam> small{memory, adam{{}, {.moments = cm::dtype::bfloat16, .masters = false}}};
  cudaStream_t const stream = memory.stream(agent::compute);

  contestant yardstick{"copied from device to device", 28};
  contestant in_place{"bf16, gradient in place", 28};
  contestant separate{"bf16, gradient separate", 28};
  contestant fp32{"fp32", 28};
  contestant halves{"bf16 everywhere, no master", 14};
  for (int round = 0; round < rounds; ++round) {
    yardstick.run(stream, [&] {
      require(cudaMemcpyAsync(copied + 14 * elements, copied, 14 * elements, cudaMemcpyDeviceToDevice, stream));
    });
    in_place.run(stream, [&] { whole(all.bf16(true), true); });
    separate.run(stream, [&] { whole(all.bf16(false), false); });
    fp32.run(stream, [&] { whole(all.fp32(), false); });
    halves.run(stream, [&] { small(all.all_bf16(), false); });
  }
  std::printf("%s, driver %s, %zu parameters\n", gpu::device_name().c_str(), gpu::driver_version().c_str(),
              std::size_t{elements});
  std::printf("%-34s %7s %11s %13s %7s\n", "", "traffic", "best", "", "share");
  for (const contestant* each : {&yardstick, &in_place, &separate, &fp32, &halves}) each->print(yardstick);
  gpu::figures figures{"adam_bench"};
  figures.add("cuda.adam_over_device_copy", in_place.share_of(yardstick), "ratio", ">=", 0.9);
  return figures.write() ? 0 : 1;
}
