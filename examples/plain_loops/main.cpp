// SPDX-License-Identifier: Apache-2.0
// A GPT-2 in plain loops, trained twice: its memory from malloc, and its memory in chunks on a device that holds a
// quarter of it.
#include "../json_text.hpp"
#include "../run_program.hpp"
#include "chunk_trainer.hpp"
#include "options.hpp"
#include "plain_trainer.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/transfer/transfers.hpp>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace plain_loops {
namespace {

namespace cm = chunkmem;

// The policies of the command line. A trainer with fixed policies names them: cm::manager<Backend,
// cm::eviction::lru>.
using any_eviction = cm::eviction::any_eviction<cm::eviction::belady, cm::eviction::lru, cm::eviction::cost_aware>;
using any_layout = cm::any_layout<cm::best_fit_layout, cm::append_layout>;
using any_transfer =
    cm::transfer::any_transfer<cm::transfer::lookahead, cm::transfer::no_prefetch, cm::transfer::planned>;
using memory = cm::backend::host_arena;
using manager = cm::manager<memory, any_eviction, any_layout, any_transfer, cm::placement::device_margin>;

/// More than any model needs; a rehearsal allocates nothing of it.
constexpr cm::bytes boundless{std::uint64_t{1} << 50};

cm::manager_options settings_of(const options& chosen)
{
  return {.chunk_bytes = cm::bytes{chosen.chunk_bytes},
          .order = chosen.first_use ? cm::tensor_order::first_use : cm::tensor_order::declaration};
}

/// A manager and the trainer on it, with a device and a host of these sizes; rehearsed, not filled.
struct session {
  session(const options& chosen, const token_batch& first, cm::bytes device, cm::bytes host)
      : arena{{.device_capacity = device, .host_capacity = host}},
        m{arena, settings_of(chosen), any_eviction{chosen.eviction}, any_layout{chosen.layout},
          any_transfer{chosen.transfer}},
        trainer{m, chosen.model, chosen.how}
  {
    trainer.declare_activations(first.shape);
    need = trainer.rehearse(first);
  }

  memory arena;
  manager m;
  chunk_trainer<manager> trainer;
  cm::memory_requirement need;
};

/// The bytes of all tensors and the peak of scratch: the memory of the trainer with malloc.
std::uint64_t all_bytes(const cm::memory_requirement& need)
{
  std::uint64_t sum = need.largest_leases.count();
  for (const cm::bytes each : need.by_role.values) sum += each.count();
  return sum;
}

void print_sizes(options chosen, const token_batch& first)
{
  std::printf("%-16s %-12s %11s %15s %20s\n", "layout", "order", "chunk [B]", "all chunks [B]", "smallest device [B]");
  for (const char* const layout : {"best_fit_layout", "append_layout"})
    for (const bool first_use : {false, true})
      for (const unsigned kibibytes : {64U, 128U, 512U, 1024U, 2048U}) {
        chosen.layout = layout;
        chosen.first_use = first_use;
        chosen.chunk_bytes = std::uint64_t{kibibytes} << 10;
        const session one{chosen, first, boundless, boundless};
        std::printf("%-16s %-12s %11llu %15llu %20llu\n", layout, first_use ? "first_use" : "declaration",
                    static_cast<unsigned long long>(chosen.chunk_bytes),
                    static_cast<unsigned long long>(one.need.chunks.count()),
                    static_cast<unsigned long long>(one.need.smallest_device.count()));
      }
}

void print_need(std::FILE* out, const cm::memory_requirement& need)
{
  const auto line = [out](const char* what, std::uint64_t count) {
    std::fprintf(out, "  %-18s %11llu B\n", what, static_cast<unsigned long long>(count));
  };
  line("weights", need.by_role[cm::role::parameter].count());
  line("gradients", need.by_role[cm::role::gradient].count());
  line("optimizer states", need.by_role[cm::role::optimizer_state].count());
  line("activations", need.by_role[cm::role::activation].count());
  line("scratch", need.largest_leases.count());
  line("together", all_bytes(need));
  line("smallest device", need.smallest_device.count());
}

void print_report(std::FILE* out, const cm::report& report)
{
  for (const cm::tier where : {cm::tier::device, cm::tier::host})
    std::fprintf(out, "%-7s peak %llu B of %llu B\n", where == cm::tier::device ? "device:" : "host:",
                 static_cast<unsigned long long>(report.peak[where].count()),
                 static_cast<unsigned long long>(report.capacity[where].count()));
  std::fprintf(
      out,
      "copied: %llu B to the device, %llu B to the host, in %llu iterations; divergences %llu, plans made again %llu\n",
      static_cast<unsigned long long>(report.loaded.count()),
      static_cast<unsigned long long>(report.written_back.count()), static_cast<unsigned long long>(report.iterations),
      static_cast<unsigned long long>(report.divergences), static_cast<unsigned long long>(report.replans));
}

bool same_bits(const std::vector<float>& left, const std::vector<float>& right)
{
  return left.size() == right.size() && std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) == 0;
}

struct losses_of_both {
  std::vector<float> losses;  ///< over chunks
  int different = 0;          ///< of the trainer with malloc
};

losses_of_both train_both(std::FILE* out, const options& chosen, const std::string& text, plain_trainer& plain,
                          chunk_trainer<manager>& chunks)
{
  losses_of_both all;
  for (int step = 0; step < chosen.steps; ++step) {
    const token_batch batch = batch_of(text, chosen.batch, chosen.how.seed, static_cast<std::uint64_t>(step));
    const float before = plain.step(batch);
    const float after = chunks.step(batch);
    const bool same = same_bits({before}, {after});
    all.losses.push_back(after);
    all.different += same ? 0 : 1;
    std::fprintf(out, "step %4d  loss %.9g  over chunks %.9g%s\n", step + 1, static_cast<double>(before),
                 static_cast<double>(after), same ? "" : "  DIFFERENT");
  }
  return all;
}

void print_json(const std::vector<float>& losses, const cm::report& report, bool all_same)
{
  using namespace command_line;
  std::puts(json_object{}
                .add("program", "plain_loops")
                .add_json("losses", json_list(losses, [](float loss) { return json_number(loss); }))
                .add_json("memory", report.json())
                .add("verified", all_same)
                .text()
                .c_str());
}

int run(const options& chosen)
{
  const std::string text = read_text(chosen.text, static_cast<std::size_t>(chosen.batch.context) + 2);
  const token_batch first = batch_of(text, chosen.batch, chosen.how.seed, 0);
  if (chosen.sizes) return print_sizes(chosen, first), 0;

  const cm::memory_requirement need = session{chosen, first, boundless, boundless}.need;
  std::FILE* const out = chosen.common.json ? stderr : stdout;  // text for readers
  print_need(out, need);
  const auto quarter = static_cast<std::uint64_t>(static_cast<double>(all_bytes(need)) * chosen.device_fraction);
  const cm::bytes device = chosen.uncapped ? 2 * need.everything : cm::bytes{quarter};
  session over_chunks{chosen, first, device, need.chunks};
  over_chunks.trainer.fill();
  plain_trainer plain{chosen.model, chosen.how};

  const losses_of_both trained = train_both(out, chosen, text, plain, over_chunks.trainer);
  const bool same_losses = trained.different == 0;
  const bool same_weights = same_bits(plain.weights(), over_chunks.trainer.weights());
  const std::string written = plain.generate(chosen.prompt, chosen.generate);
  const bool same_text = written == over_chunks.trainer.generate(chosen.prompt, chosen.generate);
  const cm::report report = over_chunks.m.report();
  std::fprintf(out, "%s\n", written.c_str());
  print_report(out, report);
  std::fprintf(out, "losses %s, parameters %s, text %s\n", same_losses ? "equal" : "DIFFERENT",
               same_weights ? "equal" : "DIFFERENT", same_text ? "equal" : "DIFFERENT");
  const bool all_same = same_losses && same_weights && same_text;
  if (chosen.common.json) print_json(trained.losses, report, all_same);
  return all_same ? 0 : 1;
}

}  // namespace
}  // namespace plain_loops

int main(int count, char** words)
{
  return command_line::run_program("plain_loops", [&] {
    const plain_loops::options chosen = plain_loops::read_options(count, words);
    if (chosen.common.asks_only()) return command_line::answer("plain_loops", chosen.common, plain_loops::help_text());
    return plain_loops::run(chosen);
  });
}
