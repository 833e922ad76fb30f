// SPDX-License-Identifier: Apache-2.0
// Does a plan need as many bytes as its proof predicts?
//
// Two hundred random plans of up to eight ranks, or the number in the argument, run with threads and real memory. First
// each device has the bytes of the proof, then one stage has a chunk less. The measured need is the smallest capacity,
// in chunks, with which all ranks run. Then every device has a random capacity around the need, and the verdict of the
// proof is compared with the run.
#include "../transfer/planning_figures.hpp"

#include <chunkmem/configurator/memory_proof.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/tier.hpp>
#include <configurator/executed_plan.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using namespace chunkmem;
using namespace chunkmem::configurator;

constexpr bytes plenty{std::uint64_t{1} << 30};

/// The difference between the need of a stage and its proof [B].
std::uint64_t error_of(const planned_work& work, const memory_proof& proof, std::uint32_t stage)
{
  std::vector<per_tier<bytes>> room;
  for (const stage_memory& it : proof.stages) room.push_back({{it.smallest_device, plenty}});
  const bytes said = room[stage][tier::device];
  const bytes chunk = proof.stages[stage].chunk;
  constexpr int most_chunks = 8;
  for (int more = 0; more < most_chunks; ++more, room[stage][tier::device] += chunk) {
    const executed_plan::outcome found = executed_plan::run(work, room);
    if (!found.ran) continue;
    if (more > 0) return (room[stage][tier::device] - said).count();
    room[stage][tier::device] = said - chunk;
    return executed_plan::run(work, room).ran ? chunk.count() : 0;
  }
  return (most_chunks * chunk).count();
}

struct verdicts {
  int accepted = 0;
  int accepted_that_fail = 0;
  int rejected = 0;
  int rejected_that_run = 0;
};

/// Compares the verdict for devices of a random size with the run.
void judge(const parallel_plan& plan, const planned_work& work, const memory_proof& proof, support::dice& dice,
           verdicts& all)
{
  bytes largest{};
  for (const stage_memory& it : proof.stages) largest = std::max(largest, it.smallest_device);
  const bytes device{largest.count() * dice.between(60, 140) / 100};
  const bool fits = prove_memory(executed_plan::cluster_for(plan, device, plenty), work).fits;
  const bool runs = executed_plan::run(work, std::vector<per_tier<bytes>>(plan.stages, {{device, plenty}})).ran;
  (fits ? all.accepted : all.rejected) += 1;
  all.accepted_that_fail += fits && !runs ? 1 : 0;
  all.rejected_that_run += !fits && runs ? 1 : 0;
}

}  // namespace

int main(int count, char** arguments)
{
  const std::uint64_t plans = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 200;
  std::uint64_t worst = 0;
  std::uint64_t wrong = 0;
  verdicts all;
  for (std::uint64_t seed = 1; seed <= plans; ++seed) {
    support::dice dice{seed};
    const parallel_plan plan = executed_plan::roll_plan(dice);
    const planned_work work = executed_plan::work_for(plan);
    const memory_proof proof = prove_memory(executed_plan::cluster_for(plan, plenty, plenty), work);
    const std::uint64_t error = error_of(work, proof, dice.below(plan.stages));
    if (error != 0)
      std::printf("seed %llu, %s: %llu B\n", static_cast<unsigned long long>(seed), text_of(plan).c_str(),
                  static_cast<unsigned long long>(error));
    worst = std::max(worst, error);
    wrong += error == 0 ? 0 : 1;
    judge(plan, work, proof, dice, all);
  }
  std::printf("%llu plans, %llu with another need; %d accepted, %d of them fail; %d rejected, %d of them run\n",
              static_cast<unsigned long long>(plans), static_cast<unsigned long long>(wrong), all.accepted,
              all.accepted_that_fail, all.rejected, all.rejected_that_run);
  const double rejected = std::max(1, all.rejected);
  return transfer_bench::write_figures(
      "memory_of_plans_bench",
      {{"configurator.memory_error_bytes", static_cast<double>(worst), "B", "==", 0},
       {"configurator.accepted_that_fail", static_cast<double>(all.accepted_that_fail), "plans", "==", 0},
       {"configurator.rejected_that_fail_percent", 100 * (rejected - all.rejected_that_run) / rejected, "%",
        ">=", 95}});
}
