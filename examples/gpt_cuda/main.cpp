// SPDX-License-Identifier: Apache-2.0
// Trains a GPT on real text on a GPU that has a quarter of the memory it needs, and can prove that the result is the
// same.

#include "../interruption.hpp"
#include "../run_program.hpp"
#include "cuda_math.hpp"
#include "nccl_ranks.hpp"
#include "program.hpp"
#include "report.hpp"
#include "training_on_device.hpp"
#include "warm_up.hpp"
#include "why_no_gpu.hpp"

#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/cuda_environment.hpp>
#include <chunkmem/backend/cuda_runtime.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using namespace gpt;

using backend = chunkmem::backend::cuda_device<chunkmem::backend::cuda_runtime>;

/// The first GPU, and this machine.
struct gpu_machine {
  [[nodiscard]] static memory_limits limits()
  {
    backend memory{{.device_capacity = chunkmem::bytes{std::uint64_t{64} << 20}}};
    cuda::cuda_math math;  // its handle lives until the free memory is measured
    cuda::warm_products(memory, math);
    memory.resize_to_free(cuda::left_to_warm_libraries);
    return {.host = machine_memory(), .device = memory.capacity(chunkmem::tier::device)};
  }
};

using manager = chunkmem::manager<backend, any_eviction, any_layout, any_transfer, file_trace, either_gradient>;
using training = cuda::training_on_device<backend, manager, cuda::cuda_math, gpu_machine>;

int run_over_ranks(const options& chosen)
{
  const training_text text = chosen.text ? read_text(*chosen.text) : default_text();
  text.expects_windows_of(chosen.size.context);
  command_line::interruption::listen();
  return cuda::run_over_ranks(chosen, text, display{stream_of_text(chosen)});
}

}  // namespace

int main(int count, char** arguments)
{
  return command_line::run_program("gpt_cuda", [&] {
    const options chosen = parse_options(count - 1, arguments + 1, program::gpt_cuda);
    if (chosen.common.asks_only()) return command_line::answer("gpt_cuda", chosen.common, help_text(program::gpt_cuda));
    if (const std::string why = cuda::why_no_gpu(); !why.empty()) {
      std::printf("SKIPPED: %s\n", why.c_str());
      return 4;
    }
    const bool are_ranks = over_ranks(chosen);  // with gathers and sums of their own, and three groups of NCCL
    for (const std::string& each : chunkmem::backend::cuda_environment::of_process().findings(
             are_ranks ? 6 : 4, {.streams = are_ranks ? 6U : 0U, .are_ranks = are_ranks}))
      std::fprintf(stderr, "gpt_cuda: %s\n", each.c_str());
    return are_ranks ? run_over_ranks(chosen) : run<training>(chosen);
  });
}
