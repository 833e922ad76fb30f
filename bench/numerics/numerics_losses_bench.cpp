// SPDX-License-Identifier: Apache-2.0
// Does a version of the numerics change the losses of a training, and how much of a step is its update?
//
// The GPT of the example learns one text from the same start by each version, with its states on the host: float32,
// bf16 and fp16 with masters, and bf16 without masters whose states are bf16. A line has losses of training and of text
// that it never saw [nats a token], the milliseconds of a median update, and their share of a median step.
#include "../median.hpp"
#include "model.hpp"
#include "text.hpp"
#include "trainer.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/optimizer/version_1.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using bench::median;
namespace cm = chunkmem;
using namespace cm::literals;
using cm::dtype;
using cm::optimizer::numerics;
using manager_type = cm::manager<cm::backend::host_arena>;

constexpr gpt::extents model_size{.layers = 4, .width = 128, .heads = 4, .context = 64, .batch = 8};
constexpr std::size_t steps = 400;

struct storage {
  const char* name;
  dtype weights;
  cm::optimizer::adam_storage states;
};
const storage storages[] = {{"float32", dtype::float32, {}},
                            {"bf16, masters", dtype::bfloat16, {}},
                            {"fp16, masters", dtype::float16, {}},
                            {"bf16 alone", dtype::bfloat16, {.moments = dtype::bfloat16, .masters = false}}};

/// Adam by the version that the running training has.
class adam_by_version : public cm::optimizer::adam {
 public:
  inline static numerics version = numerics::version_3;
  inline static cm::optimizer::adam_storage states{};

  explicit adam_by_version(const cm::optimizer::adam_options& options) : basic_adam{options, states} {}

  template <class Visit>
  void with_lane_work(const cm::optimizer::step_settings& settings, Visit&& visit) const
  {
    switch (version) {
      case numerics::version_1: return work_by<numerics::version_1>(settings, visit);
      case numerics::version_2: return work_by<numerics::version_2>(settings, visit);
      case numerics::version_3: return work_by<numerics::version_3>(settings, visit);
    }
  }

 private:
  template <numerics Rule, class Visit>
  void work_by(const cm::optimizer::step_settings& settings, Visit& visit) const
  {
    cm::optimizer::basic_adam<Rule>{options(settings.group), states}.with_lane_work(settings, visit);
  }
};

}  // namespace

template <>
struct gpt::adam_for<manager_type> {
  using type = adam_by_version;
};

namespace {

void train(const storage& how, numerics version, const gpt::training_text& text)
{
  adam_by_version::version = version;
  adam_by_version::states = how.states;
  cm::backend::host_arena memory{{.device_capacity = 64_MiB, .host_capacity = 64_MiB}};
  manager_type manager{memory, {.chunk_bytes = 1_MiB}};
  const gpt::model net = gpt::declare(manager, model_size, how.weights);
  cm::optimizer::thread_pool workers{1};
  gpt::trainer<manager_type> trainer{
      manager, net, text, {.schedule = {3e-3F, steps}, .precision = how.weights, .clip = 1.0F}, workers};
  gpt::fill(manager, net, 1);
  std::vector<double> all, updates;
  std::printf("%-14s version %u ", how.name, static_cast<unsigned>(version));
  for (std::size_t step = 0; step < steps; ++step) {
    gpt::step_account before = trainer.meter().account(), each;
    const float loss = trainer.step(step);
    gpt::add_between(each, before, trainer.meter().account(), 1);
    all.push_back(each.seconds);
    updates.push_back(each.parts[gpt::index_of(gpt::step_part::update)]);
    if ((step + 1) % (steps / 4) == 0) std::printf(" %.6f", static_cast<double>(loss));
    std::fflush(stdout);
  }
  std::printf("  held out %.6f  update %.3f ms, %.2f %% of a step\n", static_cast<double>(trainer.evaluate()),
              1e3 * median(updates), 100 * median(updates) / median(all));
}

}  // namespace

int main()
{
  const gpt::training_text text = gpt::default_text();
  std::printf("%zu parameters, losses of steps %zu, %zu, %zu and %zu\n",
              static_cast<std::size_t>(model_size.parameters()), steps / 4, steps / 2, 3 * steps / 4, steps);
  for (const storage& how : storages)
    for (const numerics version : {numerics::version_1, numerics::version_2, numerics::version_3})
      train(how, version, text);
}
