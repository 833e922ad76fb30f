// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/rehearsal_log.hpp>

#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>

#include <support/catch.hpp>
#include <support/refusal.hpp>

#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

namespace rehearsal_scratch_test {

using namespace chunkmem;

TEST_CASE("scratch bytes are zeros to read, aligned, and apart from those to write", "[manager]")
{
  rehearsal_scratch scratch;
  CHECK(scratch.to_read() == nullptr);
  CHECK(scratch.to_write(1'000) == nullptr);
  scratch.begin(1'000);
  CHECK(scratch.is_on());
  std::byte* const read = scratch.to_read();
  std::byte* const written = scratch.to_write(1'000);
  for (const std::byte* it : {read, written})
    CHECK(reinterpret_cast<std::uintptr_t>(it) % tensor_alignment.count() == 0);
  std::fill(written, written + 1'000, std::byte{1});
  CHECK(std::count(read, read + 1'000, std::byte{0}) == 1'000);
  scratch.end(false);
  CHECK_FALSE(scratch.is_on());
  CHECK(scratch.to_read() == nullptr);
}

TEST_CASE("a larger block leaves the smaller one where it is", "[manager]")
{
  rehearsal_scratch scratch;
  scratch.begin(100);
  std::byte* const small = scratch.to_write(100);
  std::byte* const large = scratch.to_write(5'000);
  std::fill(large, large + 5'000, std::byte{2});
  std::fill(small, small + 100, std::byte{1});
  CHECK(small != large);
  CHECK(scratch.to_write(10) == large);
  CHECK(std::count(large, large + 5'000, std::byte{2}) == 5'000);
  CHECK_THROWS_AS(scratch.to_write(UINT64_MAX), std::bad_alloc);
  CHECK(scratch.to_write(5'000) == large);
  scratch.begin(200);  // anew
  CHECK(std::count(scratch.to_write(200), scratch.to_write(200) + 200, std::byte{0}) == 200);
}

}  // namespace rehearsal_scratch_test

namespace rehearsal_log_test {

using namespace chunkmem;

namespace {

/// Two parameters with a momentum each: slots 0 and 1 are values, 2 and 3 gradients, 4 and 5 momenta.
struct set_up {
  set_up()
  {
    tensors.add({4}, dtype::float32, role::parameter, group_id{0});
    tensors.add({4}, dtype::float32, role::parameter, group_id{0});
    tensors.add_list({.name = "sgd/momentum"});
    tensors.seal(append_layout{}, bytes{1'024});
  }
  void use(slot_id slot, entry_kind kind) { log.release(slot, log.acquire(slot, kind), log.serial()); }
  std::vector<entry_kind> kinds()
  {
    std::vector<entry_kind> result;
    for (const access_entry& it : log.record().entries()) result.push_back(it.kind);
    return result;
  }

  registry tensors;
  rehearsal_log<training_rules> log;
};

}  // namespace

TEST_CASE("a rehearsal writes down what was done and puts the states back", "[manager]")
{
  set_up it;
  it.tensors[slot_id{0}].state = tensor_state::hold;
  it.log.begin(it.tensors);
  CHECK(it.log.is_running());
  it.use(slot_id{0}, entry_kind::read);
  it.use(slot_id{2}, entry_kind::write);
  const std::uint32_t lease = it.log.lease(entry_kind::lease_device, 512);
  it.log.drop(slot_id{2});
  it.log.end_lease(lease, it.log.serial());
  it.log.end();
  CHECK_FALSE(it.log.is_running());
  CHECK(it.kinds() ==
        std::vector<entry_kind>{entry_kind::read, entry_kind::write, entry_kind::lease_device, entry_kind::drop});
  CHECK(it.log.record().details()[2].bytes == 512);
  CHECK(it.log.record().details()[2].until == 4);
  CHECK(it.log.record().details()[0].until == 1);
  CHECK(it.tensors[slot_id{0}].state == tensor_state::hold);
  CHECK((it.tensors[slot_id{2}].state == tensor_state::free && it.tensors[slot_id{2}].pins == 0));
}

TEST_CASE("each iteration of a step has a record, which begins with what is held and filled by then", "[manager]")
{
  set_up it;
  it.log.begin(it.tensors);
  it.log.begin_iteration();
  const std::uint32_t lease = it.log.lease(entry_kind::lease_device, 512);
  const std::uint32_t pin = it.log.acquire(slot_id{0}, entry_kind::write);
  it.use(slot_id{2}, entry_kind::write);
  it.log.begin_iteration();
  it.log.release(slot_id{0}, pin, it.log.serial());
  it.log.drop(slot_id{2});
  it.log.end_lease(lease, it.log.serial());
  it.log.begin_iteration();
  it.use(slot_id{1}, entry_kind::read);
  it.log.end();
  it.log.finish(it.tensors);
  const auto& found = it.log.turns()[0].iterations;
  REQUIRE(found.size() == 3);
  CHECK(found[0].record.size() == 3);
  CHECK(found[0].record.releases().size() == 1);
  REQUIRE(found[1].record.size() == 3);
  CHECK(found[1].record.entries()[0].kind == entry_kind::lease_device);
  CHECK(found[1].record.details()[0].bytes == 512);
  CHECK(found[1].record.details()[0].until == 3);
  CHECK(found[1].record.entries()[1].kind == entry_kind::read_write);  // what it held is written already
  CHECK(found[1].record.details()[1].until == 2);
  CHECK(found[1].record.is_drop(2));
  CHECK(found[2].record.size() == 1);
  CHECK(found[1].filled == sequence<std::uint8_t>{1, 1, 1, 0, 0, 0});
  CHECK(found[2].filled == sequence<std::uint8_t>{1, 1, 0, 0, 0, 0});
}

TEST_CASE("what is read before it was written, and weights that the step leaves alone, were filled before it",
          "[manager]")
{
  set_up it;
  it.log.begin(it.tensors);
  it.use(slot_id{0}, entry_kind::read);
  it.use(slot_id{1}, entry_kind::write);
  it.use(slot_id{1}, entry_kind::read);
  it.use(slot_id{4}, entry_kind::read_write_on_host);  // starts at zero: needs no filling
  it.use(slot_id{5}, entry_kind::read);                // and its first read fills it
  it.log.end();
  CHECK(it.log.turns()[0].filled == sequence<std::uint8_t>{1, 0, 0, 0, 0, 0});
  CHECK(it.kinds().back() == entry_kind::read_write);
  it.log.begin(it.tensors);
  it.use(slot_id{1}, entry_kind::write);
  it.log.end();
  CHECK(it.log.turns()[0].filled == sequence<std::uint8_t>{1, 0, 0, 0, 0, 0});
}

TEST_CASE("mistakes that the rules know are found in a rehearsal", "[manager]")
{
  using Catch::Matchers::ContainsSubstring;
  set_up it;
  it.log.begin(it.tensors);
  const std::uint32_t held = it.log.acquire(slot_id{0}, entry_kind::write);
  CHECK_THAT(support::refusal<usage_error>([&] { it.log.drop(slot_id{0}); }),
             ContainsSubstring("tensor 0 (value) is compute and cannot drop"));
  CHECK(it.log.record().size() == 1);
  it.log.drop(slot_id{3});  // has no bytes: written down, since a step does so each time
  CHECK(it.log.record().size() == 2);
  CHECK(it.log.record().is_drop(1));
  it.log.release(slot_id{0}, held, it.log.serial());
  CHECK_NOTHROW(it.log.drop(slot_id{0}));
  it.log.end();
}

TEST_CASE("a step of several ways is written down once for each, and those with waiting updates apart", "[manager]")
{
  set_up it;
  it.log.begin(it.tensors);
  CHECK_FALSE(it.log.wants_next(false));
  CHECK(it.log.wants_next(true));
  it.use(slot_id{0}, entry_kind::read);
  it.use(slot_id{4}, entry_kind::write_on_host);
  it.log.want_turns(3);
  REQUIRE(it.log.wants_next(false));
  it.log.begin_next(false);
  CHECK(it.log.turn() == 1);
  it.use(slot_id{4}, entry_kind::read_on_host);
  it.log.begin_next(true);
  CHECK_FALSE(it.log.wants_next(true));
  it.use(slot_id{1}, entry_kind::read);
  it.log.end();
  REQUIRE(it.log.turns().size() == 3);
  CHECK(it.log.turns()[0].filled == sequence<std::uint8_t>{1, 1, 0, 0, 0, 0});
  CHECK(it.log.turns()[1].filled == sequence<std::uint8_t>{1, 1, 0, 0, 1, 0});
  CHECK(it.log.turns()[2].filled == sequence<std::uint8_t>{1, 1, 0, 0, 1, 0});
  CHECK(it.log.turns(false).size() == 2);
  REQUIRE(it.log.turns(true).size() == 1);
  CHECK(slot_id{it.log.turns(true)[0].record.entries()[0].slot} == slot_id{1});
  CHECK(it.log.last_record().size() == 1);
  it.log.begin(it.tensors);
  it.log.end();
  CHECK(it.log.turns().size() == 1);
  CHECK(it.log.turns(true).size() == 1);  // nothing else is known
}

TEST_CASE("a pin that outlives its rehearsal changes nothing", "[manager]")
{
  set_up it;
  it.log.begin(it.tensors);
  const std::uint32_t old = it.log.serial();
  const std::uint32_t held = it.log.acquire(slot_id{0}, entry_kind::write);
  const std::uint32_t lease = it.log.lease(entry_kind::lease_host, 256);
  it.log.end();
  it.log.release(slot_id{0}, held, old);
  it.log.end_lease(lease, old);
  it.log.begin(it.tensors);
  CHECK(it.log.record().empty());
  const std::uint32_t fresh = it.log.acquire(slot_id{0}, entry_kind::write);
  it.log.release(slot_id{0}, held, old);
  it.log.end_lease(lease, old);
  CHECK(it.tensors[slot_id{0}].pins == 1);
  CHECK(it.log.record().details()[fresh].until == entry_detail::never);
  it.log.end();
}

TEST_CASE("a rehearsal while a pin is held is refused", "[manager]")
{
  set_up it;
  it.tensors[slot_id{1}].pins = 1;
  CHECK_THROWS_AS(it.log.begin(it.tensors), usage_error);
  CHECK_FALSE(it.log.is_running());
}

}  // namespace rehearsal_log_test
