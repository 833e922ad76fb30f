// SPDX-License-Identifier: Apache-2.0
// How many loads does belady make with chunks of one, two and three frames, over the fewest that are possible?
//
// Random reads, not repeated, by the engine's own replay. The fewest come from an integer program that keeps or drops
// each gap between two reads and lets chunks occupy any frames. Placement is free there, so the figure also contains
// the price of adjacent frames.
#include "../transfer/planning_figures.hpp"
#include "gpt_trace.hpp"

#include <chunkmem/eviction/evictions.hpp>

#include <glpk.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

using namespace eviction_bench;

namespace {

constexpr std::uint32_t chunks = 40;
constexpr std::uint32_t reads = 160;
constexpr std::uint32_t traces = 60;

struct gap {
  std::uint32_t begin;
  std::uint32_t end;
  std::uint32_t chunk;
};

/// The fewest loads, or frames loaded; negative where the solver gives up.
double fewest(const trace& what, std::uint32_t frames, bool in_frames)
{
  const auto price = [&](std::uint32_t chunk) { return in_frames ? what.frames_of_chunk[chunk] : 1U; };
  double first_loads = 0;
  std::vector<gap> gaps;
  std::vector<std::uint32_t> last(what.chunks(), UINT32_MAX);
  for (std::uint32_t now = 0; now < reads; ++now) {
    const std::uint32_t chunk = what.record.entries()[now].slot;
    if (last[chunk] == UINT32_MAX)
      first_loads += price(chunk);
    else if (last[chunk] + 1 < now)
      gaps.push_back({last[chunk] + 1, now, chunk});
    last[chunk] = now;
  }
  glp_term_out(GLP_OFF);
  glp_prob* const program = glp_create_prob();
  glp_set_obj_dir(program, GLP_MIN);
  glp_add_cols(program, static_cast<int>(gaps.size()));
  for (std::size_t index = 0; index < gaps.size(); ++index) {  // one where the gap is dropped
    glp_set_col_kind(program, static_cast<int>(index) + 1, GLP_BV);
    glp_set_obj_coef(program, static_cast<int>(index) + 1, price(gaps[index].chunk));
  }
  for (std::uint32_t now = 0; now < reads; ++now) {
    std::vector<int> columns{0};
    std::vector<double> sizes{0};
    double all = 0;
    for (std::size_t index = 0; index < gaps.size(); ++index)
      if (gaps[index].begin <= now && now < gaps[index].end) {
        columns.push_back(static_cast<int>(index) + 1);
        sizes.push_back(what.frames_of_chunk[gaps[index].chunk]);
        all += sizes.back();
      }
    const double room = static_cast<double>(frames) - what.frames_of_chunk[what.record.entries()[now].slot];
    if (all <= room) continue;
    const int row = glp_add_rows(program, 1);
    glp_set_row_bnds(program, row, GLP_LO, all - room, 0);
    glp_set_mat_row(program, row, static_cast<int>(columns.size()) - 1, columns.data(), sizes.data());
  }
  glp_iocp search;
  glp_init_iocp(&search);
  search.presolve = search.gmi_cuts = search.mir_cuts = search.cov_cuts = GLP_ON;
  search.tm_lim = 30'000;
  const bool solved = glp_intopt(program, &search) == 0 && glp_mip_status(program) == GLP_OPT;
  const double loads = solved ? glp_mip_obj_val(program) + first_loads : -1;
  glp_delete_prob(program);
  return loads;
}

struct sums {
  double ratios = 0;
  double worst = 0;
  void add(double ratio)
  {
    ratios += ratio;
    worst = std::max(worst, ratio);
  }
};

}  // namespace

int main()
{
  sums loads;
  sums frames_loaded;
  for (std::uint32_t seed = 1; seed <= traces; ++seed) {
    std::mt19937_64 random{seed};
    std::vector<std::uint32_t> frames(chunks);
    std::uint32_t all = 0;
    for (std::uint32_t& it : frames) all += it = 1 + static_cast<std::uint32_t>(random() % 3);
    trace_writer log;
    for (std::uint32_t now = 0; now < reads; ++now)
      log.brief(static_cast<std::uint32_t>(random() % chunks), cm::entry_kind::read);
    trace what = log.finish(frames);
    const std::uint32_t device = 3 + static_cast<std::uint32_t>(random() % (all - 3));
    const auto entries = what.record.entries();
    for (std::uint32_t now = 0; now < reads; ++now)  // not repeated
      if (entries[now].next_of_chunk <= now) entries[now].next_of_chunk = cm::access_record::never;
    const double best[] = {fewest(what, device, false), fewest(what, device, true)};
    if (best[0] < 0 || best[1] < 0) {
      std::printf("trace %u: the solver gave up\n", seed);
      return 1;
    }
    repeated_run<cm::eviction::belady> run{what, device};
    frames_loaded.add(run.run(true).loads / best[1]);
    loads.add(run.count_loads() / best[0]);
  }
  std::printf("%u traces of %u reads of %u chunks with 1 to 3 frames, over the optimum without places\n", traces, reads,
              chunks);
  std::printf("loads:         mean %.4f, worst %.3f\n", loads.ratios / traces, loads.worst);
  std::printf("frames loaded: mean %.4f, worst %.3f\n", frames_loaded.ratios / traces, frames_loaded.worst);
  return transfer_bench::write_figures(
      "windows_bench", {{"eviction.belady_windows_over_optimum", std::max(loads.ratios, frames_loaded.ratios) / traces,
                         "", "<=", 1.05}});
}
