// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/text_reader.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/transfer/iteration_plan.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <ostream>
#include <string>
#include <string_view>

namespace chunkmem::inline v0 {

/// Writes and reads a plan as text, for readers, for comparisons, and for the next run, which then need not solve it.
///
///     plan_text::write(file, m.plan());
///     m.use_plan(plan_text::read(file));
///
/// Each number has a line with its key. Each moment and each chunk has a line: `moment 12 until 40 below 31`, `chunk 3
/// until never home host`. Where the plan has frames for chunks, the line of a moment ends with the first one: `in 7`.
/// Chunks and frames are numbers. A plan therefore holds for one model, one layout and one pair of capacities.
class plan_text : private text_reader {
 public:
  static void write(std::ostream& out, const transfer::iteration_plan& plan)
  {
    out << first_line << "\nrecord " << hexadecimal(plan.record) << "\nframe_bytes " << plan.frame_bytes
        << "\ndevice_bytes " << plan.device_bytes << "\nhost_bytes " << plan.host_bytes << "\nmoved_bytes "
        << plan.moved_bytes << "\nbound_bytes " << plan.bound_bytes << "\nvariant " << plan.variant << "\nmoments "
        << plan.retained_until.size() << "\nchunks " << plan.first_use.size() << '\n';
    for (std::size_t index = 0; index < plan.retained_until.size(); ++index)
      out << "moment " << index << " until " << number_or(plan.retained_until[index], never) << " below "
          << number_or(plan.lease_limits[index], any)
          << (place_in(plan, index) == UINT32_MAX ? "" : " in " + std::to_string(place_in(plan, index))) << '\n';
    for (std::size_t index = 0; index < plan.first_use.size(); ++index)
      out << "chunk " << index << " until " << number_or(plan.first_use[index], never) << " home "
          << host_copy_of(plan, index) << '\n';
    out << "end\n";
  }

  /// Reads what `write` wrote. @param name   of the file, for messages
  /// @throws format_error   names the file, the line, the key, and what is wrong with its value
  /// @complexity            O(characters); memory in proportion to the lines that were read
  [[nodiscard]] static transfer::iteration_plan read(std::istream& in, std::string_view name = "a plan")
  {
    plan_text text{in, name};
    if (text.next_line() != first_line) text.refuse("it does not begin like a plan of version 1");
    transfer::iteration_plan plan;
    plan.record = text.line("record", UINT64_MAX, 16);
    plan.frame_bytes = text.line("frame_bytes", UINT64_MAX);
    plan.device_bytes = text.line("device_bytes", UINT64_MAX);
    plan.host_bytes = text.line("host_bytes", UINT64_MAX);
    plan.moved_bytes = text.line("moved_bytes", UINT64_MAX);
    plan.bound_bytes = text.line("bound_bytes", UINT64_MAX);
    if (plan.bound_bytes > plan.moved_bytes)
      text.refuse_key("bound_bytes", "is above moved_bytes, and should be a lower bound of it");
    plan.variant = static_cast<std::uint32_t>(text.line("variant", UINT32_MAX));
    const std::uint64_t access_count = text.line("moments", most_lines);
    const std::uint64_t chunks = text.line("chunks", most_lines);
    for (std::uint64_t index = 0; index < access_count; ++index) text.read_access(plan, index, access_count);
    for (std::uint64_t index = 0; index < chunks; ++index) text.read_chunk(plan, index, access_count);
    if (std::ranges::all_of(plan.device_only, [](std::uint8_t it) { return it == 0; })) plan.device_only.clear();
    if (std::ranges::all_of(plan.places, [](std::uint32_t it) { return it == UINT32_MAX; })) plan.places.clear();
    text.next_line();
    text.key("end");
    text.expect_end();
    return plan;
  }

  /// The differences between two plans, one in a line: numbers, retained chunks, host copies. Empty where the plans are
  /// equal. Cost: O(accesses + chunks).
  [[nodiscard]] static std::string compare(const transfer::iteration_plan& left, const transfer::iteration_plan& right)
  {
    std::string text;
    const auto add = [&](const std::string& what, const std::string& before, const std::string& after) {
      if (before != after) text += what + ": " + before + " -> " + after + '\n';
    };
    const auto numbers = [&](const char* what, std::uint64_t before, std::uint64_t after) {
      add(what, std::to_string(before), std::to_string(after));
    };
    add("record", hexadecimal(left.record), hexadecimal(right.record));
    numbers("frame_bytes", left.frame_bytes, right.frame_bytes);
    numbers("device_bytes", left.device_bytes, right.device_bytes);
    numbers("host_bytes", left.host_bytes, right.host_bytes);
    numbers("moved_bytes", left.moved_bytes, right.moved_bytes);
    numbers("bound_bytes", left.bound_bytes, right.bound_bytes);
    numbers("variant", left.variant, right.variant);
    numbers("moments", left.retained_until.size(), right.retained_until.size());
    numbers("chunks", left.first_use.size(), right.first_use.size());
    for (std::size_t index = 0; index < std::min(left.retained_until.size(), right.retained_until.size()); ++index) {
      add("moment " + std::to_string(index) + " until", number_or(left.retained_until[index], never),
          number_or(right.retained_until[index], never));
      add("moment " + std::to_string(index) + " below", number_or(left.lease_limits[index], any),
          number_or(right.lease_limits[index], any));
      add("moment " + std::to_string(index) + " in", number_or(place_in(left, index), any),
          number_or(place_in(right, index), any));
    }
    for (std::size_t index = 0; index < std::min(left.first_use.size(), right.first_use.size()); ++index) {
      add("chunk " + std::to_string(index) + " until", number_or(left.first_use[index], never),
          number_or(right.first_use[index], never));
      add("chunk " + std::to_string(index) + " home", std::string{host_copy_of(left, index)},
          std::string{host_copy_of(right, index)});
    }
    return text;
  }

 private:
  static constexpr std::string_view first_line = "chunkmem plan 1";
  static constexpr std::string_view never = "never";
  static constexpr std::string_view any = "any";
  static constexpr std::string_view on_host = "host";
  static constexpr std::string_view device_only = "none";
  static constexpr std::uint64_t most_lines = std::uint64_t{1} << 28;

  plan_text(std::istream& in, std::string_view name) : text_reader{in, name, 100} {}

  static std::string_view host_copy_of(const transfer::iteration_plan& plan, std::size_t index)
  {
    return !plan.device_only.empty() && plan.device_only[index] != 0 ? device_only : on_host;
  }
  static std::uint32_t place_in(const transfer::iteration_plan& plan, std::size_t index)
  {
    return plan.places.empty() ? UINT32_MAX : plan.places[index];
  }
  static std::string hexadecimal(std::uint64_t value)
  {
    char digits[16];
    return {digits, std::to_chars(digits, digits + sizeof digits, value, 16).ptr};
  }
  static std::string number_or(std::uint32_t value, std::string_view none)
  {
    return value == UINT32_MAX ? std::string{none} : std::to_string(value);
  }

  std::uint64_t line(std::string_view name, std::uint64_t most, int base = 10)
  {
    next_line();
    const std::uint64_t found = value(name, most, {}, base);
    expect_end();
    return found;
  }

  void read_index(std::string_view name, std::uint64_t index)
  {
    next_line();
    if (value(name, most_lines) != index) refuse_key(name, "is not the next one");
  }

  void read_access(transfer::iteration_plan& plan, std::uint64_t index, std::uint64_t access_count)
  {
    read_index("moment", index);
    plan.retained_until.push_back(static_cast<std::uint32_t>(value("until", access_count - 1, never)));
    plan.lease_limits.push_back(static_cast<std::uint32_t>(value("below", UINT32_MAX - 1, any)));
    plan.places.push_back(has_word() ? static_cast<std::uint32_t>(value("in", UINT32_MAX - 1)) : UINT32_MAX);
    expect_end();
  }

  void read_chunk(transfer::iteration_plan& plan, std::uint64_t index, std::uint64_t access_count)
  {
    read_index("chunk", index);
    plan.first_use.push_back(
        static_cast<std::uint32_t>(value("until", access_count == 0 ? 0 : access_count - 1, never)));
    key("home");
    const std::string_view host_copy = has_word() ? word() : std::string_view{};
    if (host_copy != on_host && host_copy != device_only) refuse_key("home", "is neither \"host\" nor \"none\"");
    plan.device_only.push_back(host_copy == device_only ? 1 : 0);
    expect_end();
  }
};

}  // namespace chunkmem::inline v0
