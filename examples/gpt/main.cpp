// Trains a small GPT on real text in a quarter of the device memory it needs, and can prove that nothing changed.

#include "program.hpp"
#include "training_on_host.hpp"

#include <cstdio>
#include <cstdlib>
#include <exception>

namespace {

using namespace gpt;

using manager = chunkmem::manager<chunkmem::backend::host_arena, any_eviction, any_layout, any_placement, any_transfer,
                                  file_trace, either_gradient>;

}  // namespace

int main(int count, char** arguments)
try {
  const options chosen = parse_options(count - 1, arguments + 1);
  if (chosen.help) {
    std::fputs(help_text().c_str(), stdout);
    return EXIT_SUCCESS;
  }
  return run<training_on_host<manager>>(chosen);
} catch (const std::exception& failure) {
  std::fflush(stdout);
  std::fprintf(stderr, "gpt: %s\n", failure.what());
  return 2;
}
