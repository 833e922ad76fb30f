// SPDX-License-Identifier: Apache-2.0
// How many instructions does an eviction decision take, and an access to a resident tensor, as the number of chunks
// grows?
//
// Counts with callgrind: one run with few and one with more rounds, and the difference between them, so that set-up
// cancels. A decision is the sequence of calls of a policy at a demand miss: name the victim, evict it, and add the
// loaded chunk; half of the chunks are candidates. An access is acquire and release of a resident tensor by a manager
// that follows a plan.
#include "../callgrind.hpp"
#include "../transfer/planning_figures.hpp"

#include <chunkmem/chunkmem.hpp>

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/eviction/evictions.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace cm = chunkmem;

namespace {

constexpr double decision_bound = 2.2;
constexpr double access_bound = 1.1;

/// A record that touches each chunk once, in an order without a pattern.
cm::access_record scattered(std::uint32_t chunks)
{
  cm::access_record record;
  record.reserve(chunks);
  std::vector<std::uint32_t> own(chunks);
  for (std::uint32_t index = 0; index < chunks; ++index) {
    own[index] = index;
    record.append(
        {static_cast<std::uint32_t>(std::uint64_t{index} * 7'919 % chunks), 0, 0, cm::entry_kind::read, false, 0}, {});
    record.release(index);
  }
  record.finish(own, chunks);
  return record;
}

template <class Policy>
void decide(std::uint32_t chunks, std::uint32_t rounds)
{
  const cm::access_record record = scattered(chunks);
  Policy policy;
  policy.reset(chunks);
  policy.on_profile(record);
  std::vector<cm::eviction::candidate> known(chunks);
  std::uint64_t clock = 0;
  const auto enter = [&](std::uint32_t chunk) {
    ++clock;
    known[chunk] = {
        cm::chunk_id{chunk}, cm::access_index{record.first_of_chunk()[chunk]}, 1, chunk % 2 == 0, clock, clock};
    policy.enter(known[chunk]);
  };
  // in the order of their use, so that finding the next one costs the same for all
  std::vector<std::uint32_t> outside;
  for (std::uint32_t index = 0; index < chunks; ++index)
    index < chunks / 2 ? enter(record.entries()[index].slot) : outside.push_back(record.entries()[index].slot);
  std::uint32_t now = chunks / 2;
  for (std::uint32_t round = 0; round < rounds; ++round, now = now + 1 == chunks ? 0 : now + 1) {
    const cm::chunk_id victim = policy.victim(cm::access_index{now});
    policy.leave(known[index_of(victim)]);
    enter(std::exchange(outside[round % outside.size()], index_of(victim)));
  }
}

void decide(const std::string& policy, std::uint32_t chunks, std::uint32_t rounds)
{
  if (policy == "lru") return decide<cm::eviction::lru>(chunks, rounds);
  if (policy == "fifo") return decide<cm::eviction::fifo>(chunks, rounds);
  if (policy == "list_order") return decide<cm::eviction::list_order>(chunks, rounds);
  if (policy == "cost_aware") return decide<cm::eviction::cost_aware>(chunks, rounds);
  return decide<cm::eviction::belady>(chunks, rounds);
}

void walk(std::uint32_t chunks, std::uint32_t iterations)
{
  constexpr cm::bytes frame{256};
  cm::backend::simulated memory{{.device_capacity = frame * chunks, .host_capacity = frame * chunks}};
  cm::manager<cm::backend::simulated> m{memory, {.chunk_bytes = frame}};
  const auto tensors = m.add_stacked<float>(chunks, {64}, cm::role::parameter);
  for (std::uint32_t index = 0; index < chunks; ++index) m.acquire(tensors.slice(index), cm::access::write).release();
  for (std::uint32_t step = 0; step < iterations; ++step) {
    const auto scope = m.iteration();
    for (std::uint32_t index = 0; index < chunks; ++index) {
      const auto pin = m.acquire(tensors.slice(index), cm::access::read);
      asm volatile("" : : "r"(pin.data()) : "memory");
    }
  }
}

/// Instructions of one round; negative without callgrind.
double each(const std::string& self, const std::string& what, std::uint32_t chunks, std::uint32_t few,
            std::uint32_t more, double rounds)
{
  const auto run = [&](std::uint32_t times) {
    return bench::count_instructions(self, what + " " + std::to_string(chunks) + " " + std::to_string(times));
  };
  const double base = run(few);
  const double longer = run(more);
  return base < 0 || longer < 0 ? -1 : (longer - base) / rounds;
}

int skipped()
{
  std::cout << "SKIPPED: callgrind (valgrind) is not here\n";
  return 4;
}

int measure(const std::string& self)
{
  double growth = 0;
  for (const char* policy : {"lru", "fifo", "list_order", "belady", "cost_aware"}) {
    double first = 0;
    std::printf("%-10s  decision:", policy);
    for (const std::uint32_t chunks : {1'000U, 10'000U, 100'000U, 1'000'000U}) {
      const double instructions = each(self, policy, chunks, 0, 2'000, 2'000);
      if (instructions < 0) return skipped();
      std::printf("  10^%zu %6.1f", std::to_string(chunks).size() - 1, instructions);
      if (first == 0) first = instructions;
      growth = std::max(growth, instructions / first);
    }
    std::printf("\n");
  }
  double access_growth = 0;
  double smallest = 0;
  std::printf("acquire and release:");
  for (const std::uint32_t chunks : {100U, 10'000U, 1'000'000U}) {
    const std::uint32_t more = chunks < 1'000'000 ? 10 : 5;
    const double instructions = each(self, "walk", chunks, 4, more, static_cast<double>(more - 4) * chunks);
    if (instructions < 0) return skipped();
    std::printf("  10^%zu %6.1f", std::to_string(chunks).size() - 1, instructions);
    if (smallest == 0) smallest = instructions;
    access_growth = std::max(access_growth, instructions / smallest);
  }
  std::printf("\ngrowth of a decision %.2f, of an access %.3f\n", growth, access_growth);
  return transfer_bench::write_figures("eviction_growth_bench",
                                       {{"eviction.decision_growth_1e3_1e6", growth, "", "<=", decision_bound},
                                        {"engine.acquire_growth_1e2_1e6", access_growth, "", "<=", access_bound}});
}

}  // namespace

int main(int argc, char** argv)
{
  if (argc == 1) return measure(argv[0]);
  if (argc != 4) return 2;
  const std::string what = argv[1];
  const auto chunks = static_cast<std::uint32_t>(std::atoi(argv[2]));
  const auto times = static_cast<std::uint32_t>(std::atoi(argv[3]));
  what == "walk" ? walk(chunks, times) : decide(what, chunks, times);
  return 0;
}
