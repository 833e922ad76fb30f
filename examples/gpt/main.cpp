// SPDX-License-Identifier: Apache-2.0
// Trains a small GPT on real text in a quarter of the device memory it needs, and can prove that the result is the
// same.

#include "../interruption.hpp"
#include "../run_program.hpp"
#include "forecast.hpp"
#include "planned_grid.hpp"
#include "profile.hpp"
#include "program.hpp"
#include "ranks.hpp"
#include "report.hpp"
#include "stages.hpp"
#include "training_on_host.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>

#include <cstdlib>

namespace {

using namespace gpt;

using manager = chunkmem::manager<chunkmem::backend::host_arena, any_eviction, any_layout, any_placement, any_transfer,
                                  file_trace, either_gradient>;

int run_over_ranks(const options& chosen)
{
  const training_text text = chosen.text ? read_text(*chosen.text) : default_text();
  text.expects_windows_of(chosen.size.context);
  const display show{stream_of_text(chosen)};
  if (chosen.forecast) return run_forecast(chosen, text, show);
  command_line::interruption::listen();
  if (over_stages(chosen)) return run_stages(chosen, text, show);
  return chosen.ranks > 0 ? run_on_threads(chosen, text, show) : run_on_processes(chosen, text, show);
}

int profile(const options& chosen)
{
  const training_text text = chosen.text ? read_text(*chosen.text) : default_text();
  text.expects_windows_of(chosen.size.context);
  chunkmem::optimizer::thread_pool workers{chosen.threads.value_or(default_threads())};
  write_profile(chosen, [&] { return measured_profile<training_on_host<manager>>(chosen, text, workers); });
  return EXIT_SUCCESS;
}

}  // namespace

int main(int count, char** arguments)
{
  return command_line::run_program("gpt", [&] {
    const options chosen = parse_options(count - 1, arguments + 1);
    if (chosen.common.asks_only()) return command_line::answer("gpt", chosen.common, help_text());
    if (chosen.write_model) {
      write_model(chosen);
      return EXIT_SUCCESS;
    }
    if (chosen.write_profile) return profile(chosen);
    if (over_ranks(chosen) || over_stages(chosen)) return run_over_ranks(chosen);
    return run<training_on_host<manager>>(chosen);
  });
}
