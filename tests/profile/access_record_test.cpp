// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/profile/access_record.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/record_builder.hpp>

#include <initializer_list>
#include <utility>
#include <vector>

namespace access_record_test {

using namespace chunkmem;

namespace {

constexpr entry_kind kinds[] = {entry_kind::read,         entry_kind::read_write,         entry_kind::write,
                                entry_kind::read_on_host, entry_kind::read_write_on_host, entry_kind::write_on_host,
                                entry_kind::lease_device, entry_kind::lease_host,         entry_kind::drop};

/// The next entry of the slot of entry `index`, around the end, by looking at each.
std::uint32_t next_of_slot(const access_record& record, std::uint32_t index)
{
  for (std::uint32_t step = 1; step <= record.size(); ++step) {
    const std::uint32_t other = (index + step) % record.size();
    if (record.entries()[other].slot == record.entries()[index].slot) return other;
  }
  return access_record::never;
}

/// The access needs bytes of its chunk: another slot there is live, or its own is and it is not overwritten. Walks to
/// it from the same moment one iteration before.
bool loads(const access_record& record, const std::vector<std::uint32_t>& chunk_of_slot, std::uint32_t index)
{
  std::vector<bool> live(chunk_of_slot.size());
  for (std::uint32_t step = 0; step < record.size(); ++step) {
    const access_entry& entry = record.entries()[(index + step) % record.size()];
    if (entry.slot != access_record::never) live[entry.slot] = entry.kind != entry_kind::drop;
  }
  const access_entry& entry = record.entries()[index];
  if (access_of(entry.kind) != access::write && live[entry.slot]) return true;
  for (std::uint32_t slot = 0; slot < live.size(); ++slot)
    if (slot != entry.slot && live[slot] && chunk_of_slot[slot] == chunk_of_slot[entry.slot]) return true;
  return false;
}

/// Which load the chunk's device copy saves, looking at entries from `from` on, around the end.
std::uint32_t next_of_chunk(const access_record& record, const std::vector<std::uint32_t>& chunk_of_slot,
                            std::uint32_t chunk, std::uint32_t from)
{
  for (std::uint32_t step = 0; step < record.size(); ++step) {
    const std::uint32_t other = (from + step) % record.size();
    const access_entry& entry = record.entries()[other];
    if (!is_access(entry.kind) || chunk_of_slot[entry.slot] != chunk) continue;
    if (entry.kind == entry_kind::read_on_host) continue;  // looking at the host's copy leaves the device's good
    return place_of(entry.kind) == memory_location::device && loads(record, chunk_of_slot, other)
               ? other
               : access_record::never;
  }
  return access_record::never;
}

bool same(const access_record& left, const access_record& right)
{
  if (left.size() != right.size() || left.releases().size() != right.releases().size()) return false;
  for (std::uint32_t index = 0; index < left.size(); ++index)
    if (left.entries()[index].slot != right.entries()[index].slot ||
        left.entries()[index].kind != right.entries()[index].kind ||
        left.details()[index].bytes != right.details()[index].bytes ||
        left.details()[index].until != right.details()[index].until)
      return false;
  for (std::size_t index = 0; index < left.releases().size(); ++index)
    if (left.releases()[index].until != right.releases()[index].until ||
        left.releases()[index].access_index != right.releases()[index].access_index)
      return false;
  return true;
}

}  // namespace

TEST_CASE("the kind of an entry holds access and place", "[profile]")
{
  static_assert(sizeof(access_entry) == 16);
  for (const chunkmem::access how :
       std::initializer_list<chunkmem::access>{access::read, access::read_write, access::write})
    for (const chunkmem::memory_location place : {memory_location::device, memory_location::host}) {
      const entry_kind kind = kind_of(how, place);
      CHECK((is_access(kind) && !is_lease(kind) && access_of(kind) == how && place_of(kind) == place));
    }
  for (const entry_kind kind : {entry_kind::lease_device, entry_kind::lease_host})
    CHECK((is_lease(kind) && !is_access(kind)));
  CHECK_FALSE(is_access(entry_kind::drop));
  CHECK_FALSE(is_lease(entry_kind::drop));
}

TEST_CASE("finish links entries as looking at each of them does", "[profile]")
{
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    support::dice dice{seed};
    const std::uint32_t chunks = dice.between(1, 5);
    std::vector<std::uint32_t> chunk_of_slot(dice.between(1, 9));
    for (std::uint32_t& chunk : chunk_of_slot) chunk = dice.below(chunks);
    support::record_builder build;
    for (std::uint32_t count = dice.below(40); count > 0; --count) {
      const entry_kind kind = kinds[dice.below(9)];
      if (is_lease(kind))
        build.lease(kind, 256);
      else
        build.access(dice.below(static_cast<std::uint32_t>(chunk_of_slot.size())), kind);
    }
    const access_record record = build.finish(chunk_of_slot, chunks);
    for (std::uint32_t index = 0; index < record.size(); ++index) {
      const access_entry& entry = record.entries()[index];
      if (entry.slot == access_record::never) continue;
      if (entry.next_of_slot != next_of_slot(record, index)) FAIL("seed " << seed << ": next of slot at " << index);
      if (entry.next_of_chunk != next_of_chunk(record, chunk_of_slot, chunk_of_slot[entry.slot], index + 1))
        FAIL("seed " << seed << ": next of chunk at " << index);
    }
    for (std::uint32_t slot = 0; slot < chunk_of_slot.size(); ++slot) {
      std::uint32_t first = 0;
      while (first < record.size() && record.entries()[first].slot != slot) ++first;
      if (record.first_of_slot()[slot] != (first < record.size() ? first : access_record::never)) FAIL("seed " << seed);
    }
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk)
      if (record.first_of_chunk()[chunk] != next_of_chunk(record, chunk_of_slot, chunk, 0)) FAIL("seed " << seed);
  }
}

TEST_CASE("a record that is linked again forgets the old layout and its plans", "[profile]")
{
  support::record_builder build;
  build.brief(0);
  build.brief(1);
  build.brief(0);
  access_record record = build.finish({0, 0}, 1);
  CHECK(record.entries()[0].next_of_chunk == 1);
  record.entries()[1].has_actions = true;
  record.finish(std::vector<std::uint32_t>{1, 0}, 2);
  CHECK(record.entries()[0].next_of_chunk == 2);
  CHECK(record.entries()[1].next_of_chunk == 1);  // itself, next time around
  CHECK_FALSE(record.entries()[1].has_actions);
  CHECK((record.first_of_chunk()[0] == 1 && record.first_of_chunk()[1] == 0));
}

TEST_CASE("a copy that is overwritten before it is read saves no load", "[profile]")
{
  using enum entry_kind;
  support::record_builder build;
  // 0 to 2
  for (const auto& [slot, kind] : {std::pair{0U, entry_kind::read},
                                   {0U, entry_kind::write},
                                   {0U, entry_kind::read_write},
                                   // 3 to 5
                                   {1U, entry_kind::write},
                                   {2U, entry_kind::read},
                                   {1U, entry_kind::write},
                                   // 6 to 9
                                   {2U, drop},
                                   {1U, entry_kind::write},
                                   {2U, entry_kind::write},
                                   {1U, drop}})
    build.brief(slot, kind);
  const access_record record = build.finish({0, 1, 1}, 2);
  const auto next = [&](std::uint32_t index) { return record.entries()[index].next_of_chunk; };
  CHECK(next(0) == access_record::never);  // the write at 1
  CHECK(next(1) == 2);
  CHECK(next(2) == 0);  // around the end
  CHECK(next(3) == 4);
  CHECK(next(4) == 5);                     // a write beside slot 2, which is live
  CHECK(next(5) == access_record::never);  // slot 2 is dropped by then
  CHECK(next(7) == 8);                     // slot 2 comes to life beside slot 1
  CHECK(next(8) == 3);                     // slot 2 is still live
  CHECK((record.first_of_chunk()[0] == 0 && record.first_of_chunk()[1] == 3));
}

TEST_CASE("a release is written down once and in order", "[profile]")
{
  access_record record;
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    record.make_room();
    record.append({slot, 0, 0, entry_kind::read, false, 0}, {});
    if (slot == 1) record.release(0);
  }
  record.release(0);  // again: nothing
  record.release(3);  // not in this record
  record.release(access_record::never);
  record.release(2);
  REQUIRE(record.releases().size() == 2);
  CHECK((record.releases()[0].access_index == 0 && record.releases()[0].until == 2));
  CHECK((record.releases()[1].access_index == 2 && record.releases()[1].until == 3));
  CHECK(record.details()[1].until == entry_detail::never);
}

TEST_CASE("a release that was another's is corrected in its order, without an allocation", "[profile]")
{
  access_record it;
  for (std::uint32_t index = 0; index < 4; ++index) {
    it.make_room();
    it.append({index, 0, 0, entry_kind::read, false, 0}, {});
    if (index == 1) it.release(0);  // by access index 2
    if (index == 2) it.release(1);  // by access index 3
  }
  CHECK((it.is_released(0) && it.is_released(1) && !it.is_released(2) && !it.is_released(9)));
  it.release(3);  // by access index 4
  const void* const place = it.releases().data();
  it.correct_release(0, 2, 3);
  CHECK_FALSE(it.is_released(0));
  CHECK(it.details()[2].until == 3);
  REQUIRE(it.releases().size() == 3);
  for (std::size_t index = 0; index < 3; ++index) {
    CHECK(it.releases()[index].access_index == index + 1);
    CHECK(it.releases()[index].until == (index < 2 ? 3U : 4U));
  }
  it.correct_release(1, access_record::never, 3);
  CHECK(it.releases().size() == 2);
  CHECK_FALSE(it.is_released(1));
  it.release(0);
  it.release(1);
  CHECK(it.releases().size() == 4);
  CHECK(it.releases()[3].access_index == 1);
  CHECK(static_cast<const void*>(it.releases().data()) == place);
}

TEST_CASE("a prefix is what the record was at that moment", "[profile]")
{
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    support::dice dice{seed};
    access_record record;
    std::vector<access_record> history;  // as it was before each entry
    std::vector<std::uint32_t> open;
    const std::uint32_t size = dice.between(1, 30);
    for (std::uint32_t index = 0; index < size; ++index) {
      while (!open.empty() && dice.one_in(2)) {
        std::swap(dice.pick(open), open.back());
        record.release(open.back());
        open.pop_back();
      }
      history.push_back(record);
      record.make_room();
      const access_entry entry{dice.below(4), 0, 0, kinds[dice.below(6)], false, 0};
      open.push_back(record.append(entry, {dice.below(9), entry_detail::never, {}}));
    }
    for (std::uint32_t prefix = 0; prefix < size; ++prefix) {
      access_record copy;
      copy.copy_prefix(record, prefix);
      if (!same(copy, history[prefix])) FAIL("seed " << seed << ", prefix " << prefix);
    }
  }
}

TEST_CASE("a record that is cleared is empty", "[profile]")
{
  support::record_builder build;
  build.brief(0);
  access_record record = build.finish({0}, 1);
  CHECK_FALSE(record.empty());
  record.clear();
  CHECK((record.empty() && record.releases().empty() && record.details().empty()));
}

TEST_CASE("the peak of leases is the most that was leased at once in that tier", "[profile]")
{
  support::record_builder build;
  CHECK(most_leased(build.finish({0}, 1), tier::device) == 0_B);
  const auto first = build.lease(entry_kind::lease_device, 300);
  const auto host = build.lease(entry_kind::lease_host, 5'000);
  build.brief(0);
  build.release(first);
  const auto second = build.lease(entry_kind::lease_device, 200);
  const auto third = build.lease(entry_kind::lease_device, 150);
  build.release(second);
  build.release(host);
  (void)build.lease(entry_kind::lease_device, 120);
  build.release(third);
  const access_record record = build.finish({0}, 1);
  CHECK(most_leased(record, tier::device) == 350_B);
  CHECK(most_leased(record, tier::host) == 5'000_B);
}

TEST_CASE("a walk through a record sees each release where it happened", "[profile]")
{
  support::record_builder build;
  const auto outer = build.access(0);
  build.brief(1);
  build.release(outer);
  (void)build.access(2);  // kept beyond the end
  const access_record record = build.finish({0, 1, 2}, 3);
  std::vector<std::pair<std::uint32_t, bool>> seen;
  visit_in_order(record, [&](std::uint32_t index, bool begins) { seen.emplace_back(index, begins); });
  CHECK(seen == std::vector<std::pair<std::uint32_t, bool>>{{0, true}, {1, true}, {1, false}, {0, false}, {2, true}});
}

}  // namespace access_record_test
