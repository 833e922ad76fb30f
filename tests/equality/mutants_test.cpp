#include "matrix.hpp"

#include <chunkmem/transfer/no_prefetch.hpp>

#include <iostream>
#include <string>

using namespace equality;
using support::adversarial;
using cm::agent;

/// Each kind of edge between two agents is removed once, everywhere, and the run must notice: other bits, or a fault.

namespace {

using demand_manager = cm::manager<adversarial, support::chosen_eviction, cm::transfer::no_prefetch>;
using ahead_manager = cm::manager<adversarial, support::chosen_eviction, cm::transfer::lookahead>;

constexpr auto side = static_cast<agent>(cm::built_in_agents);

struct edge {
  agent follower;
  agent source;
  const char* meaning;
};

struct verdict {
  std::uint64_t skipped = 0;
  bool caught = false;
};

template <class Manager>
verdict run_without(const edge& removed, const support::adversarial_options& options)
{
  adversarial memory{options};
  verdict result;
  const toy::crew workers{agent::compute, memory.adopt()};
  memory.skip_wait([&](agent who, cm::event point, std::uint64_t) { return who == removed.follower && point.source == removed.source; });
  {
    Manager m{memory, {.chunk_bytes = frame}, support::chosen_eviction{rule::belady}};
    toy::toy_trainer<Manager, adversarial> trainer{m, memory, workers};
    const toy::outcome left = trainer.train(steps);
    result.caught = !reference().difference(left).empty();
    result.skipped = memory.counters().skipped;
  }
  memory.drain();
  result.caught = result.caught || !memory.faults().empty();
  return result;
}

/// Over all schedules, capacities and both transfers, until one notices. @return   skipped waits, and whether caught
verdict hunt(const edge& removed)
{
  verdict sum;
  const cm::memory_requirement need =
      need_of<ahead_manager, adversarial>(support::adversarial_options{}, plenty, support::chosen_eviction{rule::belady});
  for (const size capacity : {size::smallest, size::half_more, size::unlimited})
    for (const auto when : {support::schedule::latest, support::schedule::earliest, support::schedule::random})
      for (std::uint64_t seed = 1; seed <= (when == support::schedule::random ? 3U : 1U); ++seed)
        for (const bool ahead : {true, false}) {
          const support::adversarial_options options{.device_capacity = device_for(capacity, need),
                                                     .host_capacity = plenty,
                                                     .when = when,
                                                     .seed = seed,
                                                     .async_compute = true};
          const verdict one = ahead ? run_without<ahead_manager>(removed, options) : run_without<demand_manager>(removed, options);
          sum.skipped += one.skipped;
          if (!one.caught) continue;
          sum.caught = true;
          return sum;
        }
  return sum;
}

}  // namespace

TEST_CASE("every happens-before edge that is removed is noticed", "[mutants]")
{
  const edge edges[] = {
      {agent::to_device, agent::to_host, "a load waits for the victim's write-back, or for its own chunk's"},
      {agent::to_device, agent::compute, "a load waits for kernels that still use the frame"},
      {agent::to_device, side, "a load waits for kernels of an adopted agent on the frame"},
      {agent::to_host, agent::compute, "a write-back waits for the kernels that made the bytes"},
      {agent::to_host, side, "a write-back waits for kernels of an adopted agent"},
      {agent::to_host, agent::to_device, "a write-back waits for the load of the rest of its chunk"},
      {agent::compute, agent::to_device, "a kernel waits for the load of what it reads"},
      {agent::compute, agent::to_host, "a kernel waits for a write-back before it overwrites"},
      {agent::compute, side, "a kernel waits for what an adopted agent wrote or still reads"},
      {side, agent::compute, "an adopted agent waits for what compute wrote"},
      {side, agent::to_device, "an adopted agent waits for loads"},
      {agent::host, agent::to_host, "the host waits for a write-back before it reads"},
      {agent::host, agent::to_device, "the host waits for loads out of its bytes before it writes them"},
  };
  for (const edge& removed : edges) {
    INFO("without: " << removed.meaning);
    const verdict found = hunt(removed);
    std::cout << (found.caught ? "caught    " : "SURVIVED  ") << found.skipped << " waits skipped: " << removed.meaning << '\n';
    CHECK(found.skipped > 0);
    CHECK(found.caught);
  }
}
