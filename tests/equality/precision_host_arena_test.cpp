// SPDX-License-Identifier: Apache-2.0
#include "precision_run.hpp"

#include <support/catch.hpp>

namespace precision {

std::string run_on_host_arena(const setting& it)
{
  return run_on<cm::backend::host_arena>(it, cm::backend::host_arena_options{.async_compute = it.launched()});
}

}  // namespace precision
