// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/text_reader.hpp>
#include <chunkmem/pipeline/find_fault.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <ostream>
#include <string>
#include <string_view>

namespace chunkmem::inline v0 {

namespace pipeline {

/// Writes and reads a schedule as text: for readers, for comparisons, and for hand-written schedules.
///
///     schedule_text::write(file, plan);
///     const schedule mine = schedule_text::read(file, "mine.txt");
///
/// The first line is `chunkmem schedule 1`. Each number has a line with its key. Each part has a line, such as
/// `part 3 stage 1`. A stage has a line with the count of its steps, and a line for each step: letters, part,
/// micro-batch, version, as in `SA 3 0 0`. The last line is `end`.
class schedule_text : private text_reader {
 public:
  /// @pre   find_fault(plan) finds nothing
  /// @throws config_error   the name does not fit a line
  static void write(std::ostream& out, const schedule& plan)
  {
    expect_writable(plan);
    out << first_line << "\nname " << plan.name << "\nmicro_batches " << plan.micro_batches << "\nbatches "
        << plan.batches << "\nversions " << plan.versions << "\ngradient_sets " << plan.gradient_sets
        << "\nsends_in_flight " << plan.sends_in_flight << "\nparts " << plan.part_count() << "\nstages "
        << plan.stage_count() << '\n';
    for (std::uint32_t part = 0; part < plan.part_count(); ++part)
      out << "part " << part << " stage " << plan.owners[part] << '\n';
    for (std::uint32_t stage = 0; stage < plan.stage_count(); ++stage) {
      out << "stage " << stage << " steps " << plan.stages[stage].size() << '\n';
      for (const operation& step : plan.stages[stage])
        out << letters_of(step.kind) << ' ' << step.part << ' ' << step.micro_batch << ' ' << step.version << '\n';
    }
    out << "end\n";
  }

  /// Reads a text of `write`, or a hand-written one. @param name   of the file, for messages
  /// @throws format_error   names the file, the line, the key, and what is wrong with its value
  /// @throws config_error   the schedule has a fault: names the file; see find_fault
  /// @complexity            O(characters)
  [[nodiscard]] static schedule read(std::istream& in, std::string_view name = "a schedule")
  {
    schedule_text text{in, name};
    schedule plan = text.read_all();
    if (const auto found = find_fault(plan)) throw config_error{found->text(name)};
    return plan;
  }

 private:
  static constexpr std::string_view first_line = "chunkmem schedule 1";
  static constexpr std::uint64_t most_parts = 1U << 12;
  static constexpr std::size_t longest_name = 150;
  static constexpr std::uint64_t most_micro_batches = 1U << 24;
  static constexpr std::uint64_t most_steps = std::uint64_t{1} << 28;

  schedule_text(std::istream& in, std::string_view name) : text_reader{in, name, 200} {}

  static void expect_writable(const schedule& plan)
  {
    const auto ends_line = [](char letter) { return letter == '\n'; };
    if (plan.name.size() > longest_name || std::ranges::any_of(plan.name, ends_line))
      throw config_error{"the name of a schedule does not fit a line of its file (give at most 150 characters)"};
  }

  schedule read_all()
  {
    if (next_line() != first_line) refuse("it does not begin like a schedule of version 1");
    schedule plan;
    const std::string_view named = next_line();
    key("name");
    plan.name = named.substr(std::min<std::size_t>(named.size(), 5));
    plan.micro_batches = line("micro_batches", most_micro_batches);
    plan.batches = line("batches", most_micro_batches);
    if (std::uint64_t{plan.micro_batches} * plan.batches > most_micro_batches)
      refuse_key("batches", "makes more than 2^24 micro-batches");
    plan.versions = line("versions", UINT32_MAX);
    plan.gradient_sets = line("gradient_sets", UINT32_MAX);
    plan.sends_in_flight = line("sends_in_flight", UINT32_MAX);
    const std::uint32_t parts = line("parts", most_parts);
    const std::uint32_t stages = line("stages", most_parts);
    if (stages > parts) refuse_key("stages", "is above parts, so a stage has no part");
    for (std::uint32_t part = 0; part < parts; ++part) {
      read_index("part", part);
      plan.owners.push_back(static_cast<std::uint32_t>(value("stage", UINT32_MAX)));
      expect_end();
    }
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
      read_index("stage", stage);
      const std::uint64_t steps = value("steps", most_steps);
      expect_end();
      plan.stages.emplace_back();
      for (std::uint64_t step = 0; step < steps; ++step) plan.stages.back().push_back(read_step());
    }
    next_line();
    key("end");
    expect_end();
    return plan;
  }

  std::uint32_t line(std::string_view name, std::uint64_t most)
  {
    next_line();
    const std::uint64_t found = value(name, most);
    expect_end();
    return static_cast<std::uint32_t>(found);
  }
  void read_index(std::string_view name, std::uint32_t index)
  {
    next_line();
    if (value(name, UINT32_MAX) != index) refuse_key(name, "is not the next one");
  }
  operation read_step()
  {
    next_line();
    const auto* const found = std::ranges::find(operation_letters, word());
    if (found == operation_letters.end()) refuse("a step begins with F, BW, B, W, R, SA, RA, SG, RG, O, L or U");
    operation step;
    step.kind = static_cast<operation_kind>(found - operation_letters.begin());
    step.part = static_cast<std::uint32_t>(number_of("part", UINT32_MAX));
    step.micro_batch = static_cast<std::uint32_t>(number_of("micro_batch", UINT32_MAX));
    step.version = static_cast<std::uint32_t>(number_of("version", UINT32_MAX));
    expect_end();
    return step;
  }
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
