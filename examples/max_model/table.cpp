// SPDX-License-Identifier: Apache-2.0
#include "table.hpp"

#include "../json_text.hpp"

#include <cinttypes>
#include <ostream>
#include <string>

namespace max_model {
namespace {

constexpr double giga = 1e9;
constexpr double mebi = 1'048'576;

double in_giga(bytes size)
{
  return static_cast<double>(size.count()) / giga;
}

/// One tier of one row; 0 is printed as a dash.
void print_tier(std::FILE* out, const tier_use& tier)
{
  for (std::size_t who = 0; who < taker_count; ++who) {
    const double size = in_giga(tier.of(static_cast<taker>(who)));
    size == 0 ? std::fprintf(out, "%*s", 12, "-") : std::fprintf(out, "%12.2f", size);
  }
  std::fprintf(out, "%12.2f%12.2f\n", in_giga(tier.room()), in_giga(tier.capacity()));
}

void print_tiers(std::FILE* out, std::span<const comparison_row> rows, const char* title, tier_use memory_use::*tier)
{
  std::fprintf(out, "%-14s %7s", title, "width");
  for (std::size_t who = 0; who < taker_count; ++who)
    std::fprintf(out, "%12s", std::string{name_of(static_cast<taker>(who))}.c_str());
  std::fprintf(out, "%12s%12s\n", "unused", "capacity");
  for (const comparison_row& row : rows) {
    std::fprintf(out, "%-14s %7" PRIu64, std::string{row.strategy}.c_str(), row.found.job.shape.hidden);
    if (row.found.layers() == 0) {
      std::fprintf(out, "%12s\n", "none fits");
      continue;
    }
    print_tier(out, row.found.use.*tier);
  }
}

void write_tier(std::ostream& out, const tier_use& tier)
{
  for (std::size_t who = 0; who < taker_count; ++who) out << "," << tier.of(static_cast<taker>(who)).count();
  out << "," << tier.capacity().count();
}

void write_tier_names(std::ostream& out, std::string_view tier)
{
  for (std::size_t who = 0; who < taker_count; ++who) {
    std::string name{name_of(static_cast<taker>(who))};
    for (char& it : name)
      if (it == ' ') it = '_';
    out << "," << tier << "_" << name << "_bytes";
  }
  out << "," << tier << "_capacity_bytes";
}

/// Columns of the strategy's step, empty where it has none.
void write_step(std::ostream& out, std::string_view strategy, std::span<const step_row> steps)
{
  for (const step_row& step : steps) {
    if (step.strategy != strategy || !step.forecast.fits) continue;
    out << "," << step.layers << "," << step.forecast.step.nanoseconds << ","
        << step.forecast.step.loaded_bytes + step.forecast.step.written_back_bytes << "\n";
    return;
  }
  out << ",,,\n";
}

}  // namespace

void print_question(std::FILE* out, const training_job& job, std::string_view model)
{
  const workload::rank_share rank = job.rank();
  std::fprintf(out, "machine  %s: %" PRIu64 " ranks of %.1f GB, %.1f GB of the host each\n", job.machine.name.c_str(),
               rank.ranks, in_giga(rank.device_bytes), in_giga(rank.host_bytes));
  std::fprintf(out, "model    as %.*s, with as many layers as fit\n", static_cast<int>(model.size()), model.data());
  std::fprintf(out, "training Adam, 16 bits with masters; micro-batch %" PRIu64 " of %" PRIu64 " tokens, %s%s%s\n",
               job.setup.micro_batch, job.shape.sequence, job.setup.recomputes_layers ? "recompute" : "no recompute",
               job.setup.fuses_attention ? ", fused attention" : "", job.setup.has_logits ? "" : ", no logits");
  std::fprintf(
      out,
      "assumed  %.1f GB of a device for its context, %.1f GB of the host for a process, %.0f %% of it in reserve\n",
      in_giga(job.beside.context), in_giga(job.beside.process), 100 * job.beside.host_reserve);
}

void print_models(std::FILE* out, std::span<const comparison_row> rows)
{
  std::fprintf(out, "\n%-14s %7s %7s %12s %22s %12s\n", "strategy", "width", "layers", "parameters",
               "machine's bytes used", "chunk");
  for (const comparison_row& row : rows) {
    std::fprintf(out, "%-14s %7" PRIu64 " %7" PRIu64, std::string{row.strategy}.c_str(), row.found.job.shape.hidden,
                 row.found.layers());
    std::fprintf(out, " %10.2f B %20.1f %%", static_cast<double>(row.found.parameters()) / giga,
                 100 * row.found.part_of_machine());
    if (row.found.use.chunk == 0)
      std::fprintf(out, " %12s", "-");
    else
      std::fprintf(out, " %9.1f Mi", static_cast<double>(row.found.use.chunk) / mebi);
    if (row.found.layers() == 0 && !row.found.use.refusal.empty())
      std::fprintf(out, "  %s", std::string{row.found.use.refusal}.c_str());
    std::fprintf(out, "\n");
  }
}

void print_bytes(std::FILE* out, std::span<const comparison_row> rows)
{
  std::fprintf(out, "\nwhat takes the bytes of one rank, each tier at its fullest [GB]\n");
  print_tiers(out, rows, "device", &memory_use::device);
  std::fprintf(out, "\n");
  print_tiers(out, rows, "host", &memory_use::host);
}

void print_steps(std::FILE* out, const training_job& job, std::span<const step_row> rows)
{
  std::fprintf(
      out, "\none step of %" PRIu64 " layers (%.2f B parameters), simulated: all of it, and what is busy in it [s]\n",
      job.shape.layers, static_cast<double>(job.parameters()) / giga);
  std::fprintf(out, "%-14s %9s %10s %10s %10s %10s %10s %10s %10s\n", "strategy", "step", "tokens/s", "device",
               "to device", "to host", "host", "ranks", "moved GB");
  const double tokens = static_cast<double>(job.rank().ranks * job.setup.micro_batch * job.shape.sequence);
  for (const step_row& row : rows) {
    std::fprintf(out, "%-14s", std::string{row.strategy}.c_str());
    if (!row.forecast.fits) {
      std::fprintf(out, " %9s  %s\n", "-", row.has_room ? row.forecast.why_not.c_str() : "it does not fit");
      continue;
    }
    const planner::step_forecast& step = row.forecast.step;
    std::fprintf(out, " %9.3f %10.0f", in_giga(bytes{step.nanoseconds}), tokens / in_giga(bytes{step.nanoseconds}));
    for (const std::uint64_t busy : {step.computing, step.to_device, step.to_host, step.updating, step.collecting})
      std::fprintf(out, " %10.3f", in_giga(bytes{busy}));
    std::fprintf(out, " %10.2f\n", in_giga(bytes{step.loaded_bytes + step.written_back_bytes}));
  }
}

void write_csv(std::ostream& out, std::span<const comparison_row> rows, std::span<const step_row> steps)
{
  out << "strategy,machine,micro_batch,width,layers,parameters,part_of_machine,chunk_elements";
  write_tier_names(out, "device");
  write_tier_names(out, "host");
  out << ",step_layers,step_nanoseconds,moved_bytes\n";
  for (const comparison_row& row : rows) {
    out << row.strategy << ",\"" << row.found.job.machine.name << "\"," << row.found.job.setup.micro_batch << ","
        << row.found.job.shape.hidden << "," << row.found.layers() << "," << row.found.parameters() << ","
        << row.found.part_of_machine() << "," << row.found.use.chunk;
    write_tier(out, row.found.use.device);
    write_tier(out, row.found.use.host);
    write_step(out, row.strategy, steps);
  }
}

void print_json(std::FILE* out, const training_job& job, std::string_view model, std::span<const comparison_row> rows,
                std::span<const step_row> steps, const std::string& left_out)
{
  using namespace command_line;
  const auto tier_of = [](const tier_use& tier) {
    json_object it;
    for (std::size_t who = 0; who < taker_count; ++who)
      it.add(name_of(static_cast<taker>(who)), tier.of(static_cast<taker>(who)).count());
    return it.add("capacity", tier.capacity().count()).text();
  };
  const auto model_of = [&](const comparison_row& row) {
    return json_object{}
        .add("strategy", row.strategy)
        .add("width", row.found.job.shape.hidden)
        .add("layers", row.found.layers())
        .add("parameters", row.found.parameters())
        .add("part_of_machine", row.found.part_of_machine())
        .add("chunk_elements", row.found.use.chunk)
        .add_json("device", tier_of(row.found.use.device))
        .add_json("host", tier_of(row.found.use.host))
        .text();
  };
  const auto step_of = [](const step_row& row) {
    json_object it;
    it.add("strategy", row.strategy).add("layers", row.layers).add("fits", row.forecast.fits);
    if (!row.forecast.fits)
      return it.add("why_not", row.has_room ? std::string_view{row.forecast.why_not} : "it does not fit").text();
    return it.add("nanoseconds", row.forecast.step.nanoseconds)
        .add("loaded", row.forecast.step.loaded_bytes)
        .add("written_back", row.forecast.step.written_back_bytes)
        .text();
  };
  json_object all;
  all.add("program", "max_model")
      .add("machine", job.machine.name)
      .add("model", model)
      .add("micro_batch", job.setup.micro_batch)
      .add_json("left_out", left_out.empty() ? "null" : json_quoted(left_out))
      .add_json("models", json_list(rows, model_of))
      .add_json("steps", json_list(steps, step_of));
  std::fprintf(out, "%s\n", all.text().c_str());
}

}  // namespace max_model
