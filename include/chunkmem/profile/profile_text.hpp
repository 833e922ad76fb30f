#pragma once

#include <chunkmem/core/text_reader.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/profile/tide.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <ostream>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

/// A recorded iteration as text: to look at, to compare, and to start the next run with, whose first iteration then follows
/// a plan.
///
/// One line for each entry and each release, in the order they happened; slots and bytes, never addresses, so that it holds
/// for any capacity and layout. `12 read slot 4 pass 1 micro_batch 0`, later `end 12`.
class profile_text : private text_reader {
 public:
  /// @pre the record is finished
  static void write(std::ostream& out, const access_record& record)
  {
    out << first_line << '\n';
    visit_in_order(record, [&](std::uint32_t at, bool begins) { begins ? write_entry(out, record, at) : void(out << "end " << at << '\n'); });
    out << "entries " << record.size() << " highest_tide " << most_leased(record, tier::device).count() << '\n';
  }

  /// Reads what `write` wrote; the record has still to be finished, which `use_profile` of a manager does.
  /// @throws format_error   names the line and what is wrong with it
  /// @complexity            O(characters); memory in proportion to the lines that were there
  [[nodiscard]] static access_record read(std::istream& in)
  {
    profile_text text{in};
    if (text.next_line() != first_line) text.refuse("it does not begin like a profile of version 1");
    access_record record;
    for (;;) {
      text.next_line();
      const std::string_view first = text.word();
      if (first == "entries") break;
      if (first == "end") text.read_end(record);
      else text.read_entry(first, record);
    }
    if (text.number<std::uint32_t>(text.word()) != record.size()) text.refuse("it says another number of entries");
    text.expect("highest_tide");
    if (text.number<std::uint64_t>(text.word()) != most_leased(record, tier::device).count()) text.refuse("it says another tide");
    text.expect_end();
    return record;
  }

 private:
  static constexpr std::string_view first_line = "chunkmem profile 1";
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

  explicit profile_text(std::istream& in) : text_reader{in, "a profile", 200} {}

  static void write_entry(std::ostream& out, const access_record& record, std::uint32_t at)
  {
    const access_entry& entry = record.entries()[at];
    const auto named = std::find_if(std::begin(kinds), std::end(kinds), [&](const auto& it) { return it.first == entry.kind; });
    out << at << ' ' << named->second;
    if (is_lease(entry.kind)) out << " bytes " << record.details()[at].bytes;
    else out << " slot " << entry.slot;
    out << " pass " << static_cast<unsigned>(record.details()[at].during) << " micro_batch " << entry.micro_batch << '\n';
  }

  void read_entry(std::string_view moment, access_record& record)
  {
    if (number<std::uint32_t>(moment) != record.size()) refuse("moments are not in order");
    if (record.size() >= most_entries) refuse("more than 2^28 entries");
    access_entry entry;
    entry_detail detail;
    const std::string_view kind = word();
    const auto named = std::find_if(std::begin(kinds), std::end(kinds), [&](const auto& it) { return it.second == kind; });
    if (named == std::end(kinds)) refuse("no entry is of this kind");
    entry.kind = named->first;
    expect(is_lease(entry.kind) ? "bytes" : "slot");
    if (is_lease(entry.kind)) detail.bytes = number<std::uint64_t>(word());
    entry.slot = is_lease(entry.kind) ? access_record::never : number<std::uint32_t>(word());
    expect("pass");
    const auto during = number<unsigned>(word());
    if (during > static_cast<unsigned>(pass::backward)) refuse("there is no such pass");
    detail.during = static_cast<pass>(during);
    expect("micro_batch");
    entry.micro_batch = number<std::uint16_t>(word());
    expect_end();
    record.make_room();
    record.append(entry, detail);
  }

  void read_end(access_record& record)
  {
    const auto moment = number<std::uint32_t>(word());
    if (moment >= record.size() || record.is_drop(moment)) refuse("there is nothing that could end");
    if (record.details()[moment].until != entry_detail::never) refuse("it has ended before");
    expect_end();
    record.make_room();
    record.release(moment);
  }
};

}  // namespace chunkmem::inline v0
