// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/profile/recorder.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <string>
#include <vector>

namespace recorder_test {

using namespace chunkmem;

namespace {

struct step {
  std::uint32_t slot;
  entry_kind kind;
};
using walk = std::vector<step>;

constexpr std::uint32_t slots = 5;

/// Drives a recorder as an engine does: one pin at a time, released before the next entry.
struct walker {
  recorder log;
  std::vector<std::uint32_t> chunk_of_slot{0, 0, 1, 1, 2};
  std::vector<std::uint32_t> next = std::vector<std::uint32_t>(slots, recorder::never);
  std::uint32_t diverged_at = recorder::never;

  void begin(std::string_view name)
  {
    diverged_at = recorder::never;
    if (!log.begin(name)) return;
    const auto first = log.record().first_of_slot();
    next.assign(first.begin(), first.end());
  }
  void take(step it)
  {
    log.make_room();
    const bool expected = log.expects_entry(it.slot, it.kind, 0);
    const bool hot = next[it.slot] == log.cursor() && log.entry(log.cursor()).kind == it.kind;
    if (hot != expected) FAIL("a slot's next moment and the record disagree");
    if (expected) {
      next[it.slot] = log.entry(log.cursor()).next_of_slot;
      log.advance();
      return;
    }
    if (log.is_following()) {
      diverged_at = log.cursor();
      log.diverge([](std::uint32_t, memory_location) { return 0U; });
      log.make_room();
    }
    if (log.has_diverged()) log.resync(next[it.slot]);
    log.log_release(log.log({it.slot, 0, 0, it.kind, false, 0}, {}));
  }
  iteration_outcome end(bool complete = true)
  {
    return log.end(complete, chunk_of_slot, 3, [](std::uint32_t, memory_location) { return 0U; });
  }
  iteration_outcome run(std::string_view name, const walk& steps)
  {
    begin(name);
    for (const step& it : steps) take(it);
    return end();
  }
};

walk random_walk(support::dice& dice, std::uint32_t size)
{
  walk steps;
  for (std::uint32_t index = 0; index < size; ++index)
    steps.push_back({dice.below(slots), static_cast<entry_kind>(dice.below(3))});
  return steps;
}

bool same(const access_record& left, const access_record& right)
{
  if (left.size() != right.size() || left.releases().size() != right.releases().size()) return false;
  for (std::uint32_t index = 0; index < left.size(); ++index) {
    const access_entry& a = left.entries()[index];
    const access_entry& b = right.entries()[index];
    if (a.slot != b.slot || a.kind != b.kind || a.next_of_slot != b.next_of_slot || a.next_of_chunk != b.next_of_chunk)
      return false;
    if (left.details()[index].until != right.details()[index].until) return false;
  }
  return true;
}

access_record recorded(const walk& steps)
{
  walker fresh;
  CHECK(fresh.run("train", steps) == iteration_outcome::recorded);
  return fresh.log.record();
}

}  // namespace

TEST_CASE("a difference at any place makes the record the new iteration", "[profile]")
{
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    support::dice dice{seed};
    const walk original = random_walk(dice, 12);
    for (std::uint32_t index = 0; index <= original.size(); ++index)
      for (int change = 0; change < 5; ++change) {
        walk other = original;
        const step extra{dice.below(slots), static_cast<entry_kind>(dice.below(3))};
        if (index == original.size() && change != 1) continue;
        if (change == 0) other[index].slot = (other[index].slot + 1) % slots;
        if (change == 1) other.insert(other.begin() + index, extra);
        if (change == 2) other.erase(other.begin() + index);
        if (change == 3) other.resize(index);
        if (change == 4)
          other[index].kind = other[index].kind == entry_kind::read ? entry_kind::write : entry_kind::read;
        const bool equal = original.size() == other.size() &&
                           std::equal(original.begin(), original.end(), other.begin(),
                                      [](step a, step b) { return a.slot == b.slot && a.kind == b.kind; });
        walker it;
        it.run("train", original);
        const iteration_outcome outcome = it.run("train", other);
        INFO("seed " << seed << ", at " << index << ", change " << change);
        if (outcome != (equal ? iteration_outcome::repeated : iteration_outcome::changed)) FAIL("the outcome is wrong");
        if (other.empty()) continue;  // nothing was recorded: the next iteration is
        if (!same(it.log.record(), recorded(other))) FAIL("the record is not the new iteration");
        if (it.run("train", other) != iteration_outcome::repeated) FAIL("the new record is not followed");
        if (it.run("train", original) != outcome) FAIL("the old iteration is not new again");
      }
  }
}

TEST_CASE("an abandoned iteration leaves its record as it was", "[profile]")
{
  support::dice dice{3};
  const walk steps = random_walk(dice, 10);
  const access_record before = recorded(steps);
  for (std::uint32_t reached = 0; reached <= 10; ++reached)
    for (const bool diverging : {false, true}) {
      walker it;
      it.run("train", steps);
      it.begin("train");
      for (std::uint32_t index = 0; index < reached; ++index) it.take(steps[index]);
      if (diverging) it.take({(steps[reached % 10].slot + 1) % slots, entry_kind::write});
      CHECK(it.end(false) == iteration_outcome::abandoned);
      CHECK(same(it.log.record(), before));
      CHECK(it.run("train", steps) == iteration_outcome::repeated);
    }
  walker fresh;
  fresh.begin("train");
  fresh.take(steps[0]);
  CHECK(fresh.end(false) == iteration_outcome::abandoned);
  CHECK(fresh.run("train", steps) == iteration_outcome::recorded);
  CHECK(same(fresh.log.record(), before));
}

TEST_CASE("each name has a record of its own", "[profile]")
{
  support::dice dice{4};
  const walk train = random_walk(dice, 14);
  const walk test = random_walk(dice, 9);
  walker it;
  CHECK(it.run("train", train) == iteration_outcome::recorded);
  CHECK(it.log.index() == 0);
  CHECK(it.run("test", test) == iteration_outcome::recorded);
  CHECK(it.log.index() == 1);
  for (int round = 0; round < 2; ++round) {
    CHECK(it.run("train", train) == iteration_outcome::repeated);
    CHECK(it.run("train", train) == iteration_outcome::repeated);
    CHECK(it.run("test", test) == iteration_outcome::repeated);
    CHECK(it.log.record().size() == test.size());
  }
}

TEST_CASE("an iteration inside another one is refused", "[profile]")
{
  walker it;
  it.begin("train");
  CHECK_THROWS_AS(it.log.begin("train"), usage_error);
  CHECK_THROWS_AS(it.log.begin("other"), usage_error);
  it.take({0, entry_kind::read});
  CHECK(it.end() == iteration_outcome::recorded);
}

TEST_CASE("after a divergence a slot is found again in the record", "[profile]")
{
  const entry_kind read = entry_kind::read;
  walker it;  // accesses: 0 of slot 0, 1 of 2, 2 of 0, 3 of 4, 4 of 2
  it.run("train", {{0, read}, {2, read}, {0, read}, {4, read}, {2, read}});
  it.begin("train");
  it.log.diverge([](std::uint32_t, memory_location) { return 0U; });
  CHECK(it.log.now() == 0);
  const auto find = [&](std::uint32_t slot) {
    const std::uint32_t next = it.log.found_again(it.next[slot]).next_of_chunk;
    const std::uint32_t before = it.log.now();
    CHECK(it.log.found_again(it.next[slot]).next_of_chunk == next);  // looking changes nothing
    CHECK(it.log.now() == before);
    it.log.resync(it.next[slot]);
    return next;
  };
  CHECK(find(2) == 4);  // found at 1: its chunk is used again at 4
  CHECK(it.log.now() == 2);
  CHECK(it.next[2] == 4);
  CHECK(find(0) == 0);  // found at 2, not at 0, which is behind: used again next time
  CHECK(it.log.now() == 3);
  CHECK(find(0) == recorder::never);  // an extra access
  CHECK(it.log.now() == 3);
  CHECK(find(1) == recorder::never);  // a slot that the record never names
  CHECK(find(2) == 1);
  CHECK(it.log.now() == 5);
  CHECK(it.end(false) == iteration_outcome::abandoned);
}

TEST_CASE("accesses that come again count once, in each kind of iteration", "[profile]")
{
  const entry_kind read = entry_kind::read;
  const walk steps{{0, read}, {2, read}, {0, read}, {4, read}, {2, read}};
  const access_record right = recorded(steps);
  for (std::size_t begun = 0; begun <= steps.size(); ++begun)
    for (std::size_t reached = begun; reached <= steps.size(); ++reached) {
      CAPTURE(begun, reached);
      walker it;
      const auto go_back = [&](recorder::position to) {
        it.log.go_back(to, [&](std::uint32_t slot, std::uint32_t next) { it.next[slot] = next; });
      };
      const auto run = [&] {
        it.begin("train");
        for (std::size_t index = 0; index < begun; ++index) it.take(steps[index]);
        const recorder::position place = it.log.here();
        for (std::size_t index = begun; index < reached; ++index) it.take(steps[index]);
        go_back(place);
        CHECK(it.log.progress() == begun);
        for (std::size_t index = begun; index < steps.size(); ++index) it.take(steps[index]);
      };
      run();
      CHECK(it.end() == iteration_outcome::recorded);
      CHECK(same(it.log.record(), right));
      run();
      CHECK(it.end() == iteration_outcome::repeated);
      it.begin("train");
      it.take({3, read});  // diverges
      const recorder::position place = it.log.here();
      for (std::size_t index = 0; index < reached; ++index) it.take(steps[index]);
      go_back(place);
      CHECK(it.log.now() == place.now);
      for (const step& each : steps) it.take(each);
      CHECK(it.end() == iteration_outcome::changed);
      walk longer{{3, read}};
      longer.insert(longer.end(), steps.begin(), steps.end());
      CHECK(same(it.log.record(), recorded(longer)));
    }
}

TEST_CASE("what was released by a divergence is closed in the new record, and what is held stays open", "[profile]")
{
  const auto lease = [](recorder& log) {
    return log.log({recorder::never, 0, 0, entry_kind::lease_device, false, 0}, {512, entry_detail::never, pass::none});
  };
  const auto pin = [](recorder& log, std::uint32_t slot) {
    return log.log({slot, 0, 0, entry_kind::read, false, 0}, {});
  };
  walker it;
  it.begin("train");
  for (int room = 0; room < 8; ++room) it.log.make_room();
  (void)lease(it.log);
  (void)lease(it.log);
  for (const std::uint32_t slot : {0U, 1U, 1U, 2U}) (void)pin(it.log, slot);
  it.log.log({3, 0, 0, entry_kind::drop, false, 0}, {});
  (void)pin(it.log, 4);
  for (std::uint32_t access_index = 0; access_index < 8; ++access_index)
    if (access_index != 6) it.log.log_release(access_index);  // all of them at the end
  it.end();
  it.begin("train");
  for (int access_index = 0; access_index < 7; ++access_index) it.log.advance();
  it.log.lease_ended(1);
  // slot 0 and one pin of slot 1 are gone
  it.log.diverge([](std::uint32_t slot, memory_location) { return slot == 1 || slot == 2 ? 1U : 0U; });
  it.log.make_room();
  const std::uint32_t extra = pin(it.log, 0);
  CHECK(extra == 7);
  it.log.lease_ended(0);
  for (const std::uint32_t access_index : {4U, 5U, 7U}) it.log.log_release(access_index);
  CHECK(it.end() == iteration_outcome::changed);
  const access_record& now = it.log.record();
  const std::vector<std::uint32_t> expected{8, 7, 7, 7, 8, 8, entry_detail::never, 8};
  REQUIRE(now.size() == 8);
  for (std::uint32_t access_index = 0; access_index < 8; ++access_index) {
    CAPTURE(access_index);
    CHECK(now.details()[access_index].until == expected[access_index]);
  }
  CHECK(now.releases().size() == 7);
}

TEST_CASE("a lease or a drop is the recorded one where kind, slot and size agree", "[profile]")
{
  walker it;
  it.begin("train");
  it.log.make_room();
  it.log.log({recorder::never, 0, 0, entry_kind::lease_device, false, 0}, {512, entry_detail::never, pass::none});
  it.log.make_room();
  it.log.log({3, 0, 0, entry_kind::drop, false, 0}, {});
  it.end();
  CHECK_FALSE(it.log.expects_entry(recorder::never, entry_kind::lease_device, 512));  // outside
  it.begin("train");
  CHECK(it.log.expects_entry(recorder::never, entry_kind::lease_device, 512));
  CHECK_FALSE(it.log.expects_entry(recorder::never, entry_kind::lease_device, 256));
  CHECK_FALSE(it.log.expects_entry(recorder::never, entry_kind::lease_host, 512));
  CHECK_FALSE(it.log.expects_entry(3, entry_kind::drop, 0));
  it.log.advance();
  CHECK(it.log.expects_entry(3, entry_kind::drop, 0));
  it.log.advance();
  CHECK_FALSE(it.log.expects_entry(3, entry_kind::drop, 0));  // beyond the end
  CHECK(it.end() == iteration_outcome::repeated);
}

TEST_CASE("a layout that changes links all records again", "[profile]")
{
  const walk steps{{0, entry_kind::read}, {1, entry_kind::read}, {0, entry_kind::read}};
  walker it;
  it.run("a", steps);
  it.run("b", steps);
  const std::vector<std::uint32_t> apart{0, 1, 2, 3, 4};
  it.log.relink(apart, 5);
  CHECK(it.log.record().entries()[0].next_of_chunk == 2);
  it.begin("a");
  CHECK(it.log.record().entries()[0].next_of_chunk == 2);
  it.end(false);
}

TEST_CASE("the log reads as a record only after its iteration", "[profile]")
{
  walker it;
  CHECK(it.log.record().empty());
  it.begin("train");
  it.take({0, entry_kind::read});
  CHECK(it.log.is_logging());
  CHECK(it.log.record().empty());
  it.end();
  CHECK(it.log.record().size() == 1);
}

TEST_CASE("what is stopped is neither followed nor logged, and its record stays", "[profile]")
{
  walker it;
  const walk steps{{0, entry_kind::read}, {2, entry_kind::read_write}};
  REQUIRE(it.run("train", steps) == iteration_outcome::recorded);
  it.begin("train");
  it.take(steps[0]);
  it.log.stop();
  CHECK(it.log.is_inside());
  CHECK_FALSE(it.log.is_following());
  CHECK_FALSE(it.log.is_logging());
  CHECK(it.log.cursor() != it.next[2]);
  CHECK(it.end(true) == iteration_outcome::abandoned);
  CHECK(it.run("train", steps) == iteration_outcome::repeated);
  it.log.stop();  // outside of iterations there is nothing to stop
  CHECK_FALSE(it.log.is_inside());
}

TEST_CASE("a record from elsewhere is followed from the first iteration on, and can be one of many", "[profile]")
{
  support::dice dice{11};
  const walk steps = random_walk(dice, 12);
  walker it;
  CHECK(it.log.find("train") == nullptr);
  it.log.adopt("train", false, recorded(steps), it.chunk_of_slot, 3);
  REQUIRE(it.log.find("train") != nullptr);
  CHECK(it.log.find("train")->start() == record_start::without_updates);
  CHECK(it.run("eval", {{1, entry_kind::read}}) == iteration_outcome::recorded);
  CHECK(it.log.find("eval")->start() == record_start::without_updates);
  it.log.adopt("late", true, recorded(steps), it.chunk_of_slot, 3);
  CHECK(it.log.find("late")->start() == record_start::with_updates);
  CHECK(it.run("train", steps) == iteration_outcome::repeated);
  CHECK(it.run("eval", {{1, entry_kind::read}}) == iteration_outcome::repeated);
  CHECK(it.run("train", random_walk(dice, 12)) == iteration_outcome::changed);
  CHECK_THROWS_AS(it.log.adopt("train", false, recorded(steps), it.chunk_of_slot, 3), usage_error);
  it.begin("train");
  CHECK_THROWS_AS(it.log.adopt("third", false, recorded(steps), it.chunk_of_slot, 3), usage_error);
}

TEST_CASE("a recorder says how far its iteration is", "[profile]")
{
  walker it;
  CHECK(it.log.progress() == 0);
  it.begin("train");
  for (std::uint32_t index = 0; index < 3; ++index) {
    CHECK(it.log.progress() == index);
    it.take({index, entry_kind::read});
  }
  it.end();
  CHECK(it.log.progress() == 0);
  it.begin("train");
  it.take({0, entry_kind::read});
  CHECK(it.log.is_following());
  CHECK(it.log.progress() == 1);
  it.take({3, entry_kind::read});
  CHECK(it.log.has_diverged());
  CHECK(it.log.progress() == 2);
  it.log.stop();
  CHECK(it.log.progress() == 0);
  it.end();
}

TEST_CASE("of two pins in two tiers the one that was released is closed by a divergence", "[profile]")
{
  for (const bool optimizer_on_host : {false, true})
    for (const bool host_retained : {false, true}) {
      walker it;
      it.begin("train");
      const entry_kind kinds[] = {optimizer_on_host ? entry_kind::read_on_host : entry_kind::read,
                                  optimizer_on_host ? entry_kind::read : entry_kind::read_on_host};
      for (const entry_kind kind : kinds) {
        it.log.make_room();
        it.log.log({1, 0, 0, kind, false, 0}, {});
      }
      for (const std::uint32_t access_index : {0U, 1U}) it.log.log_release(access_index);
      it.end();
      it.begin("train");
      it.log.advance();
      it.log.advance();
      it.log.diverge([&](std::uint32_t slot, memory_location place) {
        return slot == 1 && (place == memory_location::host) == host_retained ? 1U : 0U;
      });
      it.take({2, entry_kind::read});
      const std::uint32_t retained = host_retained == optimizer_on_host ? 0 : 1;
      it.log.log_release(retained);
      it.take({2, entry_kind::read});
      CHECK(it.end() == iteration_outcome::changed);
      CHECK(it.log.record().details()[retained].until == 3);
      CHECK(it.log.record().details()[1 - retained].until == 2);
      CHECK(it.log.record().releases().size() == 4);
    }
}

namespace {

/// Pins that overlap, of few slots, in both tiers. Two recorders hear of them: one from the beginning, the other
/// follows another iteration first, so that it learns late what is released.
struct overlapping {
  explicit overlapping(std::uint64_t seed) : dice{seed} {}

  void pin_or_release(std::uint32_t call, std::uint32_t diverges_at)
  {
    if (!held.empty() && dice.below(2) == 0) {
      const std::uint32_t which = dice.below(static_cast<std::uint32_t>(held.size()));
      const grant gone = held[which];
      held.erase(held.begin() + which);
      --pins[gone.slot][gone.place];
      truth.log_release(gone.access_index);
      late.log_release(gone.access_index);
      return;
    }
    const grant fresh{dice.below(2), dice.below(2), truth.progress()};
    const access_entry entry{fresh.slot, 0, 0, kind_of(access::read, static_cast<memory_location>(fresh.place)),
                             false,      0};
    truth.make_room();
    truth.log(entry, {});
    if (late.is_following() && call >= diverges_at)
      late.diverge(
          [this](std::uint32_t slot, memory_location place) { return pins[slot][static_cast<unsigned>(place)]; });
    late.make_room();
    late.is_following() ? late.advance() : static_cast<void>(late.log(entry, {}));
    ++pins[fresh.slot][fresh.place];
    held.push_back(fresh);
  }

  struct grant {
    std::uint32_t slot;
    std::uint32_t place;
    std::uint32_t access_index;
  };
  support::dice dice;
  recorder truth;
  recorder late;
  std::vector<grant> held;
  std::uint32_t pins[2][2] = {};
};

/// What `late` follows: the same accesses, released in another order.
void record_accesses(recorder& log, const access_record& like, std::uint64_t seed)
{
  support::dice dice{seed};
  std::vector<std::uint32_t> open;
  (void)log.begin("train");
  for (std::uint32_t access_index = 0; access_index < like.size(); ++access_index) {
    while (!open.empty() && dice.below(3) == 0) {
      const std::uint32_t which = dice.below(static_cast<std::uint32_t>(open.size()));
      log.log_release(open[which]);
      open.erase(open.begin() + which);
    }
    log.make_room();
    open.push_back(log.log(like.entries()[access_index], {}));
  }
  for (const std::uint32_t access_index : open) log.log_release(access_index);
}

}  // namespace

TEST_CASE("a record that began as another one names every release that came after it diverged", "[profile]")
{
  const std::vector<std::uint32_t> chunk_of_slot{0, 1};
  const auto none = [](std::uint32_t, memory_location) { return 0U; };
  std::uint32_t corrected = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    constexpr std::uint32_t calls = 40;
    overlapping dry{seed};  // what will be pinned, to have something to follow
    (void)dry.truth.begin("train");
    (void)dry.late.begin("train");
    for (std::uint32_t call = 0; call < calls; ++call) dry.pin_or_release(call, calls);
    for (const auto& it : dry.held) dry.truth.log_release(it.access_index);
    dry.truth.end(true, chunk_of_slot, 2, none);

    overlapping it{seed};
    record_accesses(it.late, dry.truth.record(), seed + 1'000);
    it.late.end(true, chunk_of_slot, 2, none);
    (void)it.truth.begin("train");
    (void)it.late.begin("train");
    const std::uint32_t diverges_at = 5 + static_cast<std::uint32_t>(seed % 30);
    std::uint32_t followed = 0;
    for (std::uint32_t call = 0; call < calls; ++call) {
      if (it.late.is_following()) followed = it.late.cursor();
      it.pin_or_release(call, diverges_at);
    }
    while (!it.held.empty()) {
      it.truth.log_release(it.held.back().access_index);
      it.late.log_release(it.held.back().access_index);
      --it.pins[it.held.back().slot][it.held.back().place];
      it.held.pop_back();
    }
    if (it.late.is_following()) continue;  // nothing was pinned after its time had come
    it.truth.end(true, chunk_of_slot, 2, none);
    REQUIRE(it.late.end(true, chunk_of_slot, 2, none) == iteration_outcome::changed);
    const access_record& real = it.truth.record();
    const access_record& told = it.late.record();
    CAPTURE(seed, followed);
    REQUIRE(told.size() == real.size());
    if (told.releases().size() != real.releases().size()) FAIL("not every release was written down once");
    for (std::size_t index = 1; index < told.releases().size(); ++index)
      if (told.releases()[index - 1].until > told.releases()[index].until) FAIL("releases are not in their order");
    for (std::uint32_t access_index = 0; access_index < real.size(); ++access_index) {
      const std::uint32_t wanted = real.details()[access_index].until;
      const std::uint32_t got = told.details()[access_index].until;
      CAPTURE(access_index, wanted, got);
      if (got <= access_index) FAIL("a release is told before its access");
      if (wanted > followed && got != wanted) FAIL("a release after the divergence is told of another moment");
      if (wanted <= followed && got > followed) FAIL("a release before the divergence is told later");
      if (access_index < followed && wanted > followed) ++corrected;
    }
  }
  CHECK(corrected > 100);
}

}  // namespace recorder_test
