// SPDX-License-Identifier: Apache-2.0
#include "matrix.hpp"

#include <cstdint>
#include <iostream>
#include <string>

namespace mutants_test {

using namespace equality;
using cm::agent;

/// Each kind of edge between two agents is removed once, everywhere, and the run must notice: other bits, or a fault.

namespace {

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

/// Another order of evictions with every other seed.
constexpr std::string_view eviction_for(std::uint64_t seed)
{
  return support::every_eviction::names[seed % support::every_eviction::names.size()];
}

template <class Manager>
verdict run_without(const edge& removed, const support::adversarial_options& options)
{
  any_backend memory{options};
  verdict result;
  const mixed::crew workers{agent::compute, memory.adopt()};
  memory.skip_wait([&](agent stream, cm::event point, std::uint64_t) {
    return stream == removed.follower && point.source == removed.source;
  });
  {
    Manager m = make<Manager>(memory, evicting(eviction_for(options.seed)));
    trainer_of<Manager, any_backend> trainer{m, memory, usual, workers};
    const mixed::outcome left = trainer.train();
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
  const cm::memory_requirement need = need_of<ahead_manager, any_backend>(
      support::any_options{support::adversarial_options{}}, plenty, evicting("lru"));
  for (const size capacity : {size::smallest, size::half_more, size::unlimited})
    for (const auto when : {support::schedule::latest, support::schedule::earliest, support::schedule::random})
      for (std::uint64_t seed = 1; seed <= (when == support::schedule::random ? 6U : 1U); ++seed)
        for (const bool ahead : {true, false}) {
          const support::adversarial_options options{.device_capacity = device_for(capacity, need),
                                                     .host_capacity = plenty,
                                                     .when = when,
                                                     .seed = seed,
                                                     .async_compute = true};
          const verdict one =
              ahead ? run_without<ahead_manager>(removed, options) : run_without<demand_manager>(removed, options);
          sum.skipped += one.skipped;
          if (!one.caught) continue;
          sum.caught = true;
          return sum;
        }
  return sum;
}

}  // namespace

TEST_CASE("every happens-before edge that is removed is noticed", "[equality]")
{
  const edge edges[] = {
      {agent::to_device, agent::to_host, "a load waits for the victim's write-back, or for its own chunk's"},
      {agent::to_device, agent::compute, "a load waits for kernels that still use the frame"},
      {agent::to_host, agent::compute, "a write-back waits for the kernels that made the bytes"},
      {agent::to_host, side, "a write-back waits for kernels of an adopted agent"},
      {agent::compute, agent::to_device, "a kernel waits for the load of what it reads"},
      {agent::compute, agent::to_host, "a kernel waits for a write-back before it overwrites"},
      {agent::compute, side, "a kernel waits for what an adopted agent wrote or still reads"},
      {side, agent::compute, "an adopted agent waits for what compute wrote"},
      {agent::host, agent::to_host, "the host waits for a write-back before it reads"},
  };
  for (const edge& removed : edges) {
    INFO("without: " << removed.meaning);
    const verdict found = hunt(removed);
    std::cout << (found.caught ? "caught    " : "SURVIVED  ") << found.skipped << " waits skipped: " << removed.meaning
              << '\n';
    CHECK(found.skipped > 0);
    CHECK(found.caught);
  }
}

// Some edges are implied by others in a training step, where whatever is read is also written back, and where compute
// has used what an adopted agent uses. These are the programs in which nothing else orders the two.
namespace {

/// Four chunks of one value each; all but the last are on the host alone.
struct four_chunks {
  explicit four_chunks(const support::adversarial_options& options) : memory{options}
  {
    other = memory.adopt();
    weights = m.add_stacked<float>(4, {1024}, cm::role::parameter);
  }
  void put(std::uint32_t index, cm::memory_location place)
  {
    const auto pin = m.acquire(weights.slice(index), cm::access::write, place);
    for (float& value : pin.span()) value = static_cast<float>(index);
  }
  /// A kernel that copies the first number of a chunk, whenever it runs.
  void look(std::uint32_t index, agent stream)
  {
    const auto pin = m.acquire(weights.slice(index), cm::access::read, stream);
    memory.launch(stream, [to = &seen, from = pin.data()] { *to = *from; });
  }

  any_backend memory;
  demand_manager m = make<demand_manager>(memory, {});
  agent other{};
  cm::stacked<float> weights;
  float seen = -1;
};

/// A clean chunk leaves without a write-back while a kernel of an adopted agent still reads its frame.
bool clean_victim(four_chunks& it)
{
  it.put(0, cm::memory_location::host);
  it.put(1, cm::memory_location::host);
  it.look(0, it.other);
  const float next = it.m.acquire(it.weights.slice(1), cm::access::read).span()[0];
  it.memory.drain();
  return it.seen == 0.0F && next == 1.0F;
}

/// The same with a kernel of compute.
bool clean_victim_of_compute(four_chunks& it)
{
  it.put(0, cm::memory_location::host);
  it.put(1, cm::memory_location::host);
  it.look(0, agent::compute);
  const float next = it.m.acquire(it.weights.slice(1), cm::access::read).span()[0];
  it.memory.drain();
  return it.seen == 0.0F && next == 1.0F;
}

/// The host's copy of a chunk is given up for room while the chunk's load still reads it.
bool host_room_reused(four_chunks& it)
{
  it.put(0, cm::memory_location::host);
  it.put(1, cm::memory_location::host);
  it.look(0, agent::compute);
  it.put(2, cm::memory_location::device);
  const float saved = it.m.acquire(it.weights.slice(2), cm::access::read, cm::memory_location::host).span()[0];
  it.memory.drain();
  return it.seen == 0.0F && saved == 2.0F;
}

/// The host overwrites a chunk that is still being loaded for a kernel.
bool written_while_loaded(four_chunks& it)
{
  it.put(0, cm::memory_location::host);
  it.look(0, agent::compute);
  for (float& value : it.m.acquire(it.weights.slice(0), cm::access::read_write, cm::memory_location::host).span())
    value = 9;
  it.memory.drain();
  return it.seen == 0.0F && it.m.acquire(it.weights.slice(0), cm::access::read).span()[0] == 9.0F;
}

/// The host writes in the device tier, into a frame from which a write-back still reads.
bool frame_overwritten_by_the_host(four_chunks& it)
{
  it.put(0, cm::memory_location::device);
  it.put(1, cm::memory_location::device);  // one frame: chunk 0 leaves
  const float back = it.m.acquire(it.weights.slice(0), cm::access::read).span()[0];
  it.memory.drain();
  return back == 0.0F;
}

/// The host reads in the device tier what a kernel writes.
bool read_while_computed(four_chunks& it)
{
  it.put(0, cm::memory_location::device);
  {
    const auto pin = it.m.acquire(it.weights.slice(0), cm::access::read_write, agent::compute);
    it.memory.launch(agent::compute, [to = pin.data()] { *to = 5; });
  }
  const bool right = it.m.acquire(it.weights.slice(0), cm::access::read).span()[0] == 5.0F;
  it.memory.drain();
  return right;
}

/// The host overwrites in the device tier what a kernel of an adopted agent still reads.
bool overwritten_while_read(four_chunks& it)
{
  it.put(0, cm::memory_location::device);
  it.look(0, it.other);
  for (float& value : it.m.acquire(it.weights.slice(0), cm::access::write).span()) value = 7;
  it.memory.drain();
  return it.seen == 0.0F;
}

/// A kernel of an adopted agent is the first to use what is loaded, and the host waits for a later one of that agent.
bool loaded_for_another(four_chunks& it)
{
  it.put(0, cm::memory_location::host);
  it.put(1, cm::memory_location::device);
  it.look(0, it.other);
  float ignored = 0;
  {
    const auto pin = it.m.acquire(it.weights.slice(1), cm::access::read, it.other);
    it.memory.launch(it.other, [to = &ignored, from = pin.data()] { *to = *from; });
  }
  for (float& value : it.m.acquire(it.weights.slice(1), cm::access::write).span()) value = 7;
  it.memory.drain();
  return it.seen == 0.0F && ignored == 1.0F;
}

struct directed {
  edge removed;
  bool (*runs_right)(four_chunks&);
  std::uint64_t device_frames;
  std::uint64_t host_frames;
};

}  // namespace

TEST_CASE("edges that a training step implies are noticed where nothing else orders the two", "[equality]")
{
  const directed programs[] = {
      {{agent::to_device, side, "a load waits for kernels of an adopted agent on the frame"}, clean_victim, 1, 8},
      {{side, agent::to_device, "an adopted agent waits for loads"}, loaded_for_another, 2, 8},
      {{agent::to_device, agent::compute, "a load waits for kernels on the frame of a clean victim"},
       clean_victim_of_compute,
       1,
       8},
      {{agent::to_host, agent::to_device, "a write-back waits for the load out of its host frame"},
       host_room_reused,
       2,
       2},
      {{agent::host, agent::to_device, "the host waits for loads out of its bytes before it writes them"},
       written_while_loaded,
       2,
       8},
      {{agent::host, agent::to_host, "the host waits for a write-back out of the frame that it writes"},
       frame_overwritten_by_the_host,
       1,
       8},
      {{agent::host, agent::compute, "the host waits for the kernel that writes what it reads"},
       read_while_computed,
       2,
       8},
      {{agent::host, side, "the host waits for kernels that read what it overwrites"}, overwritten_while_read, 2, 8},
  };
  for (const directed& program : programs) {
    const edge& removed = program.removed;
    INFO("without: " << removed.meaning);
    int caught = 0;
    for (const auto when : {support::schedule::latest, support::schedule::earliest, support::schedule::random}) {
      const support::adversarial_options options{.device_capacity = program.device_frames * frame,
                                                 .host_capacity = program.host_frames * frame,
                                                 .when = when,
                                                 .async_compute = true};
      four_chunks whole{options};
      CHECK(program.runs_right(whole));
      CHECK(whole.memory.faults().empty());
      four_chunks broken{options};
      broken.memory.skip_wait([&](agent stream, cm::event point, std::uint64_t) {
        return stream == removed.follower && point.source == removed.source;
      });
      const bool right = program.runs_right(broken) && broken.memory.faults().empty();
      if (when == support::schedule::latest) CHECK(broken.memory.counters().skipped > 0);
      caught += right ? 0 : 1;
    }
    std::cout << (caught > 0 ? "caught    " : "SURVIVED  ") << "directed: " << removed.meaning << '\n';
    CHECK(caught > 0);
  }
}

}  // namespace mutants_test
