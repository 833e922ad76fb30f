// SPDX-License-Identifier: Apache-2.0
// How many instructions do acquire and release of a resident tensor take, with all of their parts?
//
// Counts with cachegrind, without caches (the numbers of callgrind in a third of its time): one run with few and one
// with more iterations that follow their record, and the difference between them, so that set-up and recording cancel.
// The loop, the pin's life and the ends of iterations stay in. All runs of a size are children of one process, which
// cachegrind starts once and counts one by one. Ten numbers at two sizes; the worst is the figure. Another figure is
// the most that following a plan adds to demand paging. Arguments name this program compiled by other compilers: each
// is counted at the smaller size, and the worst of all is the figure.
#include "../../tests/support/figures.hpp"

#include <chunkmem/chunkmem.hpp>

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/transfer/transfers.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace cm = chunkmem;

namespace {

constexpr double bound = 150.0;
constexpr double extra_bound = 20.0;
constexpr std::uint32_t passes = 10;  // over all tensors, in each iteration
constexpr std::uint32_t few = 4;      // iterations: the first is recorded, the second may plan again
constexpr std::uint32_t more = 6;
constexpr std::string_view all_policies[] = {"lru+no_prefetch", "lru+lookahead", "belady+no_prefetch",
                                             "belady+lookahead", "belady+planned"};
constexpr cm::access accesses[] = {cm::access::read, cm::access::read_write};

using memory = cm::backend::simulated;
using lru_demand = cm::manager<memory, cm::eviction::lru, cm::transfer::no_prefetch>;
using lru_ahead = cm::manager<memory, cm::eviction::lru, cm::transfer::lookahead>;
using belady_demand = cm::manager<memory, cm::eviction::belady, cm::transfer::no_prefetch>;
using belady_ahead = cm::manager<memory, cm::eviction::belady, cm::transfer::lookahead>;
using belady_planned = cm::manager<memory, cm::eviction::belady, cm::transfer::planned>;

template <class Manager>
void walk(std::uint32_t chunks, cm::access how, std::uint32_t iterations)
{
  constexpr cm::bytes frame{256};
  memory mem{{.device_capacity = frame * chunks, .host_capacity = frame * chunks}};
  Manager m{mem, {.chunk_bytes = frame}};
  std::vector<cm::tensor<float>> tensors;
  for (std::uint32_t index = 0; index < chunks; ++index)
    tensors.push_back(m.template add<float>({64}, cm::role::parameter));
  for (const auto it : tensors) m.acquire(it, cm::access::write).release();
  for (std::uint32_t step = 0; step < iterations; ++step) {
    const auto scope = m.iteration();
    for (std::uint32_t pass = 0; pass < passes; ++pass)
      for (const auto it : tensors) {
        const auto pin = m.acquire(it, how);
        asm volatile("" : : "r"(pin.data()) : "memory");
      }
  }
}

void walk(std::string_view policies, std::uint32_t chunks, cm::access how, std::uint32_t iterations)
{
  if (policies == "lru+no_prefetch") return walk<lru_demand>(chunks, how, iterations);
  if (policies == "lru+lookahead") return walk<lru_ahead>(chunks, how, iterations);
  if (policies == "belady+no_prefetch") return walk<belady_demand>(chunks, how, iterations);
  if (policies == "belady+lookahead") return walk<belady_ahead>(chunks, how, iterations);
  return walk<belady_planned>(chunks, how, iterations);
}

/// Each walk in a child process of its own, with few and then with more iterations.
void walk_all(std::uint32_t chunks)
{
  for (const std::string_view policies : all_policies)
    for (const cm::access how : accesses)
      for (const std::uint32_t iterations : {few, more}) {
        const pid_t child = fork();
        if (child == 0) {
          walk(policies, chunks, how, iterations);
          _exit(0);
        }
        int status = -1;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) std::exit(1);
      }
}

/// Instructions of all walks, by cachegrind; none without cachegrind.
std::vector<double> count(const std::string& self, std::uint32_t chunks)
{
  const std::string command = "valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null '" + self +
                              "' --walks " + std::to_string(chunks) + " 2>&1";
  std::FILE* const out = popen(command.c_str(), "r");
  if (out == nullptr) return {};
  std::vector<double> counts;
  char line[512];
  while (std::fgets(line, sizeof line, out) != nullptr)
    if (const char* found = std::strstr(line, "refs:"); found != nullptr) {
      std::string digits;
      for (const char* at = found; *at != '\0'; ++at)
        if (*at >= '0' && *at <= '9') digits += *at;  // digits have commas between them
      counts.push_back(std::atof(digits.c_str()));
    }
  constexpr std::size_t told = 2 * std::size(all_policies) * std::size(accesses) + 1;  // the children and their parent
  return pclose(out) == 0 && counts.size() == told ? counts : std::vector<double>{};
}

void write_figures(double worst, double extra)
{
  support::write_figures("acquire_bench", "ctest --preset bench -R engine.instructions",
                         {{"engine.acquire_release_instructions", worst, "instructions", "<=", bound},
                          {"transfer.replay_extra_instructions", extra, "instructions", "<=", extra_bound}});
}

struct findings {
  double worst = 0;
  double extra = 0;  // over demand paging, the first of the policies
};

/// Measures one program. @return   false without cachegrind
bool measure(const std::string& self, const std::vector<std::uint32_t>& sizes, findings& found)
{
  for (const std::uint32_t chunks : sizes) {
    const std::vector<double> counts = count(self, chunks);
    if (counts.empty()) return false;
    auto told = counts.begin();
    std::vector<double> by_demand;
    for (const std::string_view policies : all_policies)
      for (std::size_t which = 0; which < std::size(accesses); ++which, told += 2) {
        const double instructions = (told[1] - told[0]) / (double{more - few} * passes * chunks);
        std::printf("%-20s %-10s %6u chunks  %6.1f instructions\n", policies.data(),
                    accesses[which] == cm::access::read ? "read" : "read_write", chunks, instructions);
        found.worst = std::max(found.worst, instructions);
        if (policies == all_policies[0])
          by_demand.push_back(instructions);
        else
          found.extra = std::max(found.extra, instructions - by_demand[which]);
      }
  }
  return true;
}

int measure_all(const std::string& self, const std::vector<std::string>& others)
{
  findings found;
  bool is_counted = measure(self, {100U, 10000U}, found);
  for (const std::string& other : others) {
    std::printf("%s\n", other.c_str());
    is_counted = is_counted && measure(other, {100U}, found);
  }
  if (!is_counted) {
    std::cout << "SKIPPED: cachegrind (valgrind) is not here\n";
    return 4;
  }
  std::printf("worst %.1f, bound %.0f; over demand paging %.1f, bound %.0f\n", found.worst, bound, found.extra,
              extra_bound);
  if (!others.empty()) write_figures(found.worst, found.extra);  // figures are those of the worst compilation
  return found.worst <= bound && found.extra <= extra_bound ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv)
{
  if (argc != 3 || std::string_view{argv[1]} != "--walks") return measure_all(argv[0], {argv + 1, argv + argc});
  walk_all(static_cast<std::uint32_t>(std::atoi(argv[2])));
  return 0;
}
