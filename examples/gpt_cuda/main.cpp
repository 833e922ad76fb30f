// Trains a GPT on real text on a GPU that has a quarter of the memory it needs, and can prove that nothing changed.

#include "cuda_math.hpp"
#include "program.hpp"
#include "training_on_device.hpp"

#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/cuda_runtime.hpp>

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

namespace {

using namespace gpt;

/// What the first GPU has free, less what libraries and the driver may still want; what this machine has.
struct gpu_machine {
  static constexpr std::uint64_t headroom = std::uint64_t{512} << 20;

  [[nodiscard]] static memory_limits limits()
  {
    std::size_t free = 0;
    std::size_t total = 0;
    if (const cudaError_t failed = cudaMemGetInfo(&free, &total); failed != cudaSuccess)
      throw problem{std::string{"the GPU does not say what memory it has: "} + cudaGetErrorName(failed)};
    return {.host = machine_memory(), .device = chunkmem::bytes{free > headroom ? free - headroom : 0}};
  }
};

using backend = chunkmem::backend::cuda_device<chunkmem::backend::cuda_runtime>;
using manager = chunkmem::manager<backend, any_eviction, any_layout, any_transfer, file_trace, either_gradient>;
using training = cuda::training_on_device<backend, manager, cuda::cuda_math, gpu_machine>;

/// Why nothing can run here; empty where it can.
std::string why_not()
{
  int devices = 0;
  const cudaError_t answer = cudaGetDeviceCount(&devices);
  if (answer == cudaSuccess && devices > 0) return {};
  return std::string{"no GPU: "} + (answer == cudaSuccess ? "no device" : cudaGetErrorName(answer));
}

}  // namespace

int main(int count, char** arguments)
try {
  const options chosen = parse_options(count - 1, arguments + 1, program::gpt_cuda);
  if (chosen.help) {
    std::fputs(help_text(program::gpt_cuda).c_str(), stdout);
    return EXIT_SUCCESS;
  }
  if (const std::string why = why_not(); !why.empty()) {
    std::printf("SKIPPED: %s\n", why.c_str());
    return 4;
  }
  return run<training>(chosen);
} catch (const std::exception& failure) {
  std::fflush(stdout);
  std::fprintf(stderr, "gpt_cuda: %s\n", failure.what());
  return 2;
}
