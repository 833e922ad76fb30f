// SPDX-License-Identifier: Apache-2.0
#include "rows.hpp"

#include "number_text.hpp"

#include "../json_text.hpp"

#include <chunkmem/pipeline/schedules.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <ostream>
#include <vector>

namespace schedule_example {

namespace pipeline = chunkmem::pipeline;
using pipeline::operation_kind;

namespace {

constexpr std::size_t margin = 9;  // "stage 0  "

std::string padded(std::string text, std::size_t width)
{
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}
std::string stage_label(std::uint32_t stage)
{
  std::string label = "stage " + std::to_string(stage);
  label.resize(std::max(margin, label.size() + 1), ' ');
  return label;
}

/// Both kinds of backward runs are a B here: a longer one contains the gradients of the weights.
std::string label_of(const bar& it)
{
  char letter = pipeline::letters_of(it.step.kind).front();
  if (it.part_of_stage > 0) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return letter + std::to_string(it.number());
}

/// A row of characters in time.
class cell_rows {
 public:
  cell_rows(const simulation& it, std::size_t columns)
      : bars_{bars_of(it)}, seconds_{cell_seconds(bars_)}, rows_(it.plan.stage_count())
  {
    for (const bar& each : bars_) width_ = std::max(width_, label_of(each).size() + 1);
    all_ = cell_at(it.times.seconds);
    shown_ = std::min(all_, (std::max(columns, margin + width_) - margin) / width_);
    for (const bar& each : bars_)
      if (!each.is_aside) draw(each);
  }

  [[nodiscard]] const std::vector<bar>& bars() const noexcept { return bars_; }
  [[nodiscard]] const std::vector<std::string>& rows() const noexcept { return rows_; }
  [[nodiscard]] double seconds() const noexcept { return seconds_; }
  [[nodiscard]] std::size_t all() const noexcept { return all_; }
  [[nodiscard]] std::size_t shown() const noexcept { return shown_; }

 private:
  [[nodiscard]] std::size_t cell_at(double time) const
  {
    return static_cast<std::size_t>(std::floor(time / seconds_ + 0.5));
  }
  /// A label, dashes until the run ends, a space.
  void draw(const bar& it)
  {
    const std::size_t begin = cell_at(it.begin);
    const std::size_t end = std::min(cell_at(it.end), shown_);
    if (begin >= end) return;
    std::string text = label_of(it);
    text.resize((end - begin) * width_ - 1, '-');
    rows_[it.stage].resize(begin * width_, ' ');
    rows_[it.stage] += text + " ";
  }

  std::vector<bar> bars_;
  double seconds_;
  std::size_t width_ = 0;  // characters of a cell
  std::size_t all_ = 0;    // cells until the schedule ends
  std::size_t shown_ = 0;
  std::vector<std::string> rows_;
};

void print_legend(std::ostream& out, const cell_rows& rows)
{
  const auto has = [&](operation_kind kind) {
    return std::ranges::any_of(rows.bars(), [=](const bar& it) { return it.step.kind == kind && !it.is_aside; });
  };
  out << "a cell is " << short_text(rows.seconds()) << " s; F: forward";
  if (has(operation_kind::backward)) out << ", B: backward";
  if (has(operation_kind::backward_input)) out << ", B: gradient of the input";
  if (has(operation_kind::backward_weight)) out << ", W: gradients of the weights";
  if (has(operation_kind::recompute)) out << ", R: forward again";
  if (has(operation_kind::update)) out << ", U: update";
  if (std::ranges::any_of(rows.bars(), [](const bar& it) { return it.part_of_stage > 0; }))
    out << "; small letters: not the stage's first part";
  out << "\n";
}

/// Whether update_slack is defined for this schedule.
bool has_slack(const pipeline::schedule& plan)
{
  return plan.name == pipeline::pipedream_2bw::name && plan.part_count() == plan.stage_count() &&
         plan.versions >= pipeline::fewest_versions(plan.stage_count(), plan.micro_batches);
}

std::string percent_text(double part)
{
  return fixed_text(std::max(0.0, 100 * part), 1);  // never -0.0
}

}  // namespace

std::string title_of(const simulation& it)
{
  return it.plan.name + ": " + counted(it.plan.stage_count(), "stage", "stages") + ", " +
         counted(it.plan.micro_batches, "micro-batch", "micro-batches") +
         (it.plan.batches == 1 ? "" : " in each of " + std::to_string(it.plan.batches) + " batches");
}

void print_rows(std::ostream& out, const simulation& it, std::size_t columns)
{
  const cell_rows rows{it, columns};
  out << title_of(it) << "\n";
  print_legend(out, rows);
  out << "\n";
  for (std::uint32_t stage = 0; stage < it.plan.stage_count(); ++stage) {
    std::string line = stage_label(stage) + rows.rows()[stage];
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << "\n";
  }
  if (rows.shown() < rows.all())
    out << "(the first " << rows.shown() << " of " << rows.all() << " cells; --svg draws all of them)\n";
}

void print_table(std::ostream& out, const simulation& it)
{
  const bool shows_slack = has_slack(it.plan);
  out << "\nstage     runs   idle %     peak versions" << (shows_slack ? "    slack" : "") << "\n";
  for (std::uint32_t stage = 0; stage < it.plan.stage_count(); ++stage) {
    const auto runs =
        std::ranges::count_if(it.plan.stages[stage], [](const auto& step) { return pipeline::computes(step.kind); });
    const double idle = 1 - it.times.stages[stage].computing / it.times.seconds;
    out << padded(std::to_string(stage), 5) << padded(std::to_string(runs), 9) << padded(percent_text(idle), 9)
        << padded(fixed_text(it.peaks[stage], 1), 9) << padded(std::to_string(it.plan.versions), 9);
    if (shows_slack) {
      const std::uint32_t slack =
          pipeline::update_slack(it.plan.stage_count(), it.plan.micro_batches, it.plan.versions, stage);
      out << padded(std::to_string(slack), 9);
    }
    out << "\n";
  }
  out << "idle: of the total time; peak: micro-batches whose activations are saved at once; versions: of the weights\n";
  if (shows_slack) out << "slack: pairs of runs that an update aside may take at no cost, with two sets of gradients\n";
  if (it.plan.versions > 1)
    out << "gradients: " << it.plan.versions - 1 << (it.plan.versions == 2 ? " update" : " updates")
        << " late: made with weights that are as many updates old\n";
  out << "total " << short_text(it.times.seconds) << " s, bubble rate " << percent_text(it.times.bubble_rate())
      << " %\n";
}

void print_steps(std::ostream& out, const simulation& it)
{
  const bool has_several_parts = it.plan.part_count() > it.plan.stage_count();
  for (std::uint32_t stage = 0; stage < it.plan.stage_count(); ++stage) {
    out << "\nsteps of stage " << stage << "\n";
    std::string line;
    for (const pipeline::operation& step : it.plan.stages[stage]) {
      std::string word{pipeline::letters_of(step.kind)};
      word += std::to_string(step.kind == operation_kind::update ? step.version : step.micro_batch);
      if (has_several_parts) word += "/" + std::to_string(step.part);
      if (line.size() + word.size() > 118) {
        out << line << "\n";
        line.clear();
      }
      line += (line.empty() ? "  " : " ") + word;
    }
    out << line << "\n";
  }
}

void print_json(std::ostream& out, const simulation& it)
{
  using namespace command_line;
  json_object all;
  all.add("program", "schedule")
      .add("schedule", it.plan.name)
      .add("stages", it.plan.stage_count())
      .add("parts", it.plan.part_count())
      .add("micro_batches", it.plan.micro_batches)
      .add("batches", it.plan.batches)
      .add("versions", it.plan.versions)
      .add("seconds", it.times.seconds)
      .add("bubble_rate", it.times.bubble_rate());
  std::vector<std::uint32_t> stages(it.plan.stage_count());
  std::iota(stages.begin(), stages.end(), 0U);
  all.add_json("by_stage", json_list(stages, [&](std::uint32_t stage) {
                 return json_object{}
                     .add("computing_seconds", it.times.stages[stage].computing)
                     .add("peak_micro_batches", it.peaks[stage])
                     .text();
               }));
  all.add_json("steps", json_list(bars_of(it), [](const bar& step) {
                 return json_object{}
                     .add("stage", step.stage)
                     .add("kind", name_of(step.step.kind))
                     .add("part", step.step.part)
                     .add("number", step.number())
                     .add("begin_seconds", step.begin)
                     .add("end_seconds", step.end)
                     .text();
               }));
  out << all.text() << "\n";
}

}  // namespace schedule_example
