// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checks/full_checks.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/toy_trainer.hpp>

#include <string>

namespace training_test {

namespace cm = chunkmem;
namespace toy = support::toy;
using namespace cm::literals;

namespace {

constexpr std::uint32_t steps = 4;

/// The toy trainer with an eviction in every iteration, under checks::full. @return   the difference from a run on
/// vectors
template <class Manager, class Backend, class Options>
std::string train_checked(Options options, bool launched)
{
  options.host_capacity = 512_KiB;
  options.device_capacity = 512_KiB;
  {
    Backend memory{options};
    Manager m{memory, {.chunk_bytes = 4_KiB}};
    options.device_capacity = toy::toy_trainer<Manager, Backend>{m, memory}.rehearse().smallest_device;
  }
  Backend memory{options};
  const toy::crew workers = launched ? toy::crew{cm::agent::compute, memory.adopt()} : toy::crew{};
  Manager m{memory, {.chunk_bytes = 4_KiB}};
  toy::toy_trainer<Manager, Backend> trainer{m, memory, workers};
  m.without_gradient(trainer.parameters().back());  // no step uses it
  const toy::outcome found = trainer.train(steps);
  m.verify();
  return toy::plain_model{}.train(steps, true).difference(found);
}

}  // namespace

TEST_CASE("a training without mistakes has no complaint and the same bits", "[checks]")
{
  using arena = cm::backend::host_arena;
  CHECK(train_checked<cm::manager<arena, cm::checks::full>, arena>(cm::backend::host_arena_options{}, false) == "");
  CHECK(train_checked<cm::manager<arena, cm::checks::full, cm::transfer::no_prefetch, cm::eviction::lru>, arena>(
            cm::backend::host_arena_options{.async_compute = true}, true) == "");
}

TEST_CASE("so it has where agents work as late as they may", "[checks]")
{
  using adversarial = support::adversarial;
  const support::adversarial_options options{.when = support::schedule::latest, .async_compute = true};
  CHECK(train_checked<cm::manager<adversarial, cm::checks::full>, adversarial>(options, true) == "");
}

}  // namespace training_test
