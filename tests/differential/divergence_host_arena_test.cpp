// SPDX-License-Identifier: Apache-2.0
#include "divergence_run.hpp"

#include <chunkmem/backend/host_arena.hpp>

namespace divergence {

std::string run_on_host_arena(const setting& it, tally& sum)
{
  return run_on<cm::backend::host_arena>(it, cm::backend::host_arena_options{.async_compute = it.launched()}, sum);
}

}  // namespace divergence
