// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/text_reader.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

/// A recorded iteration as text, to read and to compare. A run that starts with this text follows a plan in its first
/// iteration.
///
/// The text has one line for each entry and each release, in the order in which they happened:
/// `12 read slot 4 pass 1 micro_batch 0`, later `end 12`. It names slots and bytes, never addresses, so it holds for
/// any capacity and layout. A line before them says whether updates of the step before were waiting: 1, 0 or `unknown`.
/// Texts of version 1 lack this line, and are read as `unknown`.
///
/// Use:
///
///     profile_text::write(file, *m.profile());       // after some iterations
///     m.use_profile(profile_text::read(file));       // in the next run, before its first iteration
class profile_text : private text_reader {
 public:
  /// @pre the record is finished
  static void write(std::ostream& out, const access_record& record)
  {
    out << first_line << "\nupdates_first " << starts[static_cast<std::size_t>(record.start())] << '\n';
    visit_in_order(record, [&](std::uint32_t index, bool begins) {
      begins ? write_entry(out, record, index) : void(out << "end " << index << '\n');
    });
    out << "entries " << record.size() << " highest_tide " << most_leased(record, tier::device).count() << '\n';
  }

  /// Reads a text of `write`. The record has still to be finished: `use_profile` of a manager finishes it.
  /// @param name   of the file, for messages
  /// @throws format_error   names the file, the line, the key, and the fault of its value
  /// @complexity            O(characters); memory in proportion to the lines that were read
  [[nodiscard]] static access_record read(std::istream& in, std::string_view name = "a profile")
  {
    profile_text text{in, name};
    const std::string_view title = text.next_line();
    const bool is_older = title == older_first_line;
    if (!is_older && title != first_line) text.refuse("it does not begin like a profile of version 1 or 2");
    access_record record;
    if (!is_older) text.read_start(record);
    for (;;) {
      text.next_line();
      const std::string_view first = text.word();
      if (first == "entries") break;
      if (first == "end")
        text.read_end(record);
      else
        text.read_entry(first, record);
    }
    if (text.number_of("entries", UINT32_MAX) != record.size())
      text.refuse_key("entries", "is another number than there are");
    if (text.value("highest_tide", UINT64_MAX) != most_leased(record, tier::device).count())
      text.refuse_key("highest_tide", "is not what the entries lease");
    text.expect_end();
    return record;
  }

 private:
  static constexpr std::string_view first_line = "chunkmem profile 2";
  static constexpr std::string_view older_first_line = "chunkmem profile 1";
  static constexpr std::string_view starts[] = {"0", "1", "unknown"};  // as record_start
  static constexpr std::uint32_t most_entries = std::uint32_t{1} << 28;
  static constexpr std::pair<entry_kind, std::string_view> kinds[] = {
      {entry_kind::read, "read"},
      {entry_kind::read_write, "read_write"},
      {entry_kind::write, "write"},
      {entry_kind::read_on_host, "read_on_host"},
      {entry_kind::read_write_on_host, "read_write_on_host"},
      {entry_kind::write_on_host, "write_on_host"},
      {entry_kind::lease_device, "lease"},
      {entry_kind::lease_host, "lease_on_host"},
      {entry_kind::drop, "drop"}};

  profile_text(std::istream& in, std::string_view name) : text_reader{in, name, 200} {}

  static void write_entry(std::ostream& out, const access_record& record, std::uint32_t index)
  {
    const access_entry& entry = record.entries()[index];
    const auto named =
        std::find_if(std::begin(kinds), std::end(kinds), [&](const auto& it) { return it.first == entry.kind; });
    out << index << ' ' << named->second;
    if (is_lease(entry.kind))
      out << " bytes " << record.details()[index].bytes;
    else
      out << " slot " << entry.slot;
    out << " pass " << static_cast<unsigned>(record.details()[index].during) << " micro_batch " << entry.micro_batch
        << '\n';
  }

  void read_start(access_record& record)
  {
    next_line();
    const std::uint64_t how = value("updates_first", 1, starts[2]);
    expect_end();
    record.began(how > 1 ? record_start::unknown : static_cast<record_start>(how));
  }

  void read_entry(std::string_view access_index, access_record& record)
  {
    if (access_index != std::to_string(record.size()))
      refuse("\"entries\", \"end\" or the next access index is wanted here");
    if (record.size() >= most_entries) refuse("more than 2^28 entries");
    access_entry entry;
    entry_detail detail;
    const std::string_view kind = has_word() ? word() : std::string_view{};
    const auto named =
        std::find_if(std::begin(kinds), std::end(kinds), [&](const auto& it) { return it.second == kind; });
    if (named == std::end(kinds)) refuse("no entry is of this kind");
    entry.kind = named->first;
    if (is_lease(entry.kind)) detail.bytes = value("bytes", UINT64_MAX);
    entry.slot = is_lease(entry.kind) ? access_record::never
                                      : static_cast<std::uint32_t>(value("slot", access_record::never - 1));
    detail.during = static_cast<pass>(value("pass", static_cast<unsigned>(pass::backward)));
    entry.micro_batch = static_cast<std::uint16_t>(value("micro_batch", UINT16_MAX));
    expect_end();
    record.make_room();
    record.append(entry, detail);
  }

  void read_end(access_record& record)
  {
    const auto access_index = static_cast<std::uint32_t>(number_of("end", UINT32_MAX));
    if (access_index >= record.size() || record.is_drop(access_index))
      refuse_key("end", "names nothing that could end");
    if (record.details()[access_index].until != entry_detail::never) refuse_key("end", "names what has ended before");
    expect_end();
    record.make_room();
    record.release(access_index);
  }
};

}  // namespace chunkmem::inline v0
