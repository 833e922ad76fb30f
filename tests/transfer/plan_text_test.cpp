// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/plan_text.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/record_builder.hpp>
#include <support/refusal.hpp>

#include <cstdint>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace plan_text_test {

using namespace chunkmem;
using transfer::expect_plan_fits;
using transfer::fingerprint_of;
using transfer::iteration_plan;

namespace {

const std::vector<std::uint32_t> own{0, 1, 2};
const std::vector<std::uint32_t> frames{1, 1, 2};
constexpr std::uint32_t never = access_record::never;

access_record three_uses(entry_kind last = entry_kind::read, std::uint64_t leased = 512, bool late = false)
{
  support::record_builder build;
  build.brief(0);
  const auto lease = build.lease(entry_kind::lease_device, leased);
  if (!late) build.release(lease);
  build.brief(1, last);
  if (late) build.release(lease);
  build.brief(0);
  return build.finish(own, 3);
}

}  // namespace

TEST_CASE("whatever a plan depends on changes the fingerprint of its record", "[transfer]")
{
  const access_record record = three_uses();
  const std::uint64_t known = fingerprint_of(record, own, frames);
  CHECK(fingerprint_of(three_uses(), own, frames) == known);
  std::set<std::uint64_t> all{known};
  all.insert(fingerprint_of(three_uses(entry_kind::read_write), own, frames));
  all.insert(fingerprint_of(three_uses(entry_kind::read_on_host), own, frames));
  all.insert(fingerprint_of(three_uses(entry_kind::read, 513), own, frames));
  all.insert(fingerprint_of(three_uses(entry_kind::read, 512, true), own, frames));
  all.insert(fingerprint_of(record, std::vector<std::uint32_t>{0, 2, 1}, frames));
  all.insert(fingerprint_of(record, own, std::vector<std::uint32_t>{1, 2, 2}));
  all.insert(fingerprint_of(record, own, std::vector<std::uint32_t>{1, 1}));
  all.insert(fingerprint_of(access_record{}, own, frames));
  CHECK(all.size() == 9);
}

TEST_CASE("a stay has to end with a use of its chunk on the device", "[transfer]")
{
  const access_record record = three_uses(entry_kind::read_on_host);  // chunk 0, a lease, chunk 1 on the host, chunk 0
  iteration_plan good;
  good.retained_until = {3, never, never, 0};
  good.lease_limits = {2, never, never, 2};
  good.first_use = {0, never, never};
  const auto refusal = [&](auto change) -> std::string {
    iteration_plan plan = good;
    change(plan);
    return support::refusal<config_error>([&] { expect_plan_fits(plan, record, own, 3); });
  };
  using Catch::Matchers::ContainsSubstring;
  CHECK(refusal([](iteration_plan&) {}).empty());
  CHECK(refusal([](iteration_plan& it) { it = {}; }).empty());
  CHECK(refusal([](iteration_plan& it) { it.device_only = {1, 0, 0}; }).empty());
  CHECK_THAT(refusal([](iteration_plan& it) { it.retained_until[0] = 1; }), ContainsSubstring("access 0"));
  CHECK_THAT(refusal([](iteration_plan& it) { it.retained_until[1] = 3; }), ContainsSubstring("access 1"));
  CHECK_THAT(refusal([](iteration_plan& it) { it.retained_until[2] = 2; }), ContainsSubstring("access 2"));
  CHECK_THAT(refusal([](iteration_plan& it) { it.retained_until[3] = 4; }), ContainsSubstring("access 3"));
  CHECK_THAT(refusal([](iteration_plan& it) { it.first_use[1] = 0; }), ContainsSubstring("chunk 1"));
  CHECK_THAT(refusal([](iteration_plan& it) { it.lease_limits.pop_back(); }), ContainsSubstring("4 accesses"));
  CHECK_THAT(refusal([](iteration_plan& it) { it.first_use.push_back(0); }), ContainsSubstring("4 chunks"));
  CHECK_THAT(refusal([](iteration_plan& it) { it.device_only = {1}; }), ContainsSubstring("chunks"));
  CHECK(refusal([](iteration_plan& it) { it.places = {0, never, never, 0}; }).empty());
  CHECK_THAT(refusal([](iteration_plan& it) { it.places = {0}; }), ContainsSubstring("accesses"));
  CHECK_THAT(refusal([](iteration_plan& it) { it = {}, it.places = {0}; }), ContainsSubstring("accesses"));
}

namespace {

std::string text_of(const iteration_plan& plan)
{
  std::ostringstream out;
  plan_text::write(out, plan);
  return out.str();
}
iteration_plan plan_of(const std::string& text)
{
  std::istringstream in{text};
  return plan_text::read(in, "step.plan");
}

iteration_plan roll_plan(std::uint64_t seed)
{
  support::dice dice{seed};
  const auto large = [&] { return std::uint64_t{dice.below(1U << 31)} << dice.below(33); };
  iteration_plan plan{large(), large(), large(), large(), large(), large(), dice.below(20), {}, {}, {}, {}, {}, {}};
  if (plan.bound_bytes > plan.moved_bytes) std::swap(plan.bound_bytes, plan.moved_bytes);
  const std::uint32_t access_count = dice.below(30);
  if (access_count == 0) return plan;
  const auto access_index_or_never = [&] { return dice.one_in(3) ? UINT32_MAX : dice.below(access_count); };
  for (std::uint32_t index = 0; index < access_count; ++index) {
    plan.retained_until.push_back(access_index_or_never());
    plan.lease_limits.push_back(dice.one_in(2) ? UINT32_MAX : dice.below(1'000));
  }
  if (dice.one_in(2))
    for (std::uint32_t index = 0; index < access_count; ++index)
      plan.places.push_back(index > 0 && dice.one_in(2) ? UINT32_MAX : dice.below(1'000));
  const bool alone = dice.one_in(2);
  for (std::uint32_t chunks = dice.between(1, 9); chunks > 0; --chunks) {
    plan.first_use.push_back(access_index_or_never());
    if (alone) plan.device_only.push_back(chunks == 1 || dice.one_in(2) ? 1 : 0);
  }
  return plan;
}

const std::vector<std::string> good{"chunkmem plan 1",
                                    "record ff07",
                                    "frame_bytes 512",
                                    "device_bytes 4096",
                                    "host_bytes 8192",
                                    "moved_bytes 3072",
                                    "bound_bytes 3000",
                                    "variant 2",
                                    "moments 2",
                                    "chunks 1",
                                    "moment 0 until 1 below any",
                                    "moment 1 until never below 7 in 5",
                                    "chunk 0 until 0 home none",
                                    "end"};

std::string join(const std::vector<std::string>& lines)
{
  std::string text;
  for (const std::string& it : lines) text += it + '\n';
  return text;
}

/// The error for the good text with one line changed; nothing where it is accepted.
std::string complaint(std::size_t line, const std::string& becomes)
{
  std::vector<std::string> lines = good;
  lines[line] = becomes;
  return support::refusal<format_error>([&] { (void)plan_of(join(lines)); });
}

}  // namespace

TEST_CASE("a plan reads as it was written", "[transfer]")
{
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const iteration_plan plan = roll_plan(seed);
    const std::string text = text_of(plan);
    CAPTURE(text);
    REQUIRE(plan_of(text) == plan);
    REQUIRE(text_of(plan_of(text)) == text);
  }
}

TEST_CASE("a plan can be read by people", "[transfer]")
{
  CHECK(
      text_of(
          {0xff07, 512, 4096, 8192, 3072, 3000, 2, {1, UINT32_MAX}, {0}, {UINT32_MAX, 7}, {1}, {UINT32_MAX, 5}, {}}) ==
      join(good));
}

TEST_CASE("every mistake in a plan is one sentence with file, line and key", "[transfer]")
{
  using Catch::Matchers::ContainsSubstring;
  int tried = 0;
  const auto says = [&](std::size_t line, const std::string& becomes, const std::string& key, const std::string& why) {
    const std::string said = complaint(line, becomes);
    CAPTURE(becomes);
    CHECK_THAT(said, ContainsSubstring("chunkmem: line " + std::to_string(line + 1) +
                                       " of step.plan cannot be used: key \"" + key + "\" " + why));
    CHECK(said.find('\n') == said.npos);
    ++tried;
  };
  for (std::size_t line = 1; line <= 9; ++line) {
    const std::string key = good[line].substr(0, good[line].find(' '));
    says(line, key + " -1", key, "is negative");
    says(line, key + " nan", key, "is no whole number");
    says(line, key + " 99999999999999999999", key, "is too large");
    says(line, key, key, "has no value");
    says(line, key + "s 1", key, "is wanted here");
    says(line, good[line + 1], key, "is wanted here");  // it is missing
  }
  says(6, "bound_bytes 3073", "bound_bytes", "is above moved_bytes");
  says(7, "variant 4294967296", "variant", "is too large");
  says(8, "moments 268435457", "moments", "is too large");
  says(9, "chunks 1e3", "chunks", "is no whole number");
  says(1, "record xyz", "record", "is no whole number");
  says(10, "moment 1 until 1 below any", "moment", "is not the next one");
  says(10, "moment 0 until 2 below any", "until", "is too large");
  says(10, "moment 0 until any below any", "until", "is no whole number");
  says(10, "moment 0 until 1 below never", "below", "is no whole number");
  says(10, "moment 0 until 1 below -7", "below", "is negative");
  says(10, "moment 0 until 1", "below", "is wanted here");
  says(10, "moment 0 from 1 below any", "until", "is wanted here");
  says(12, "chunk 0 until 2 home host", "until", "is too large");
  says(12, "chunk 0 until 0 home disk", "home", "is neither");
  says(12, "chunk 0 until 0 home", "home", "is neither");
  says(12, "moment 2 until 0 below any", "chunk", "is wanted here");
  says(13, "chunk 1 until 0 home host", "end", "is wanted here");
  CHECK(tried >= 40);
  CHECK_THAT(complaint(0, "chunkmem plan 2"),
             ContainsSubstring("line 1 of step.plan") && ContainsSubstring("version 1"));
  CHECK_THAT(complaint(3, "device_bytes 4096 "),
             ContainsSubstring("line 4 of step.plan") && ContainsSubstring("goes on after its end"));
  CHECK_THAT(complaint(13, "end of it"), ContainsSubstring("goes on after its end"));
  CHECK_THAT(complaint(5, std::string(100'000, '1')), ContainsSubstring("longer than any line"));
}

TEST_CASE("a plan that was cut short or changed is refused or read as another one, and nothing else happens",
          "[transfer]")
{
  const auto survives = [](const std::string& text) {
    try {
      return plan_of(text).lease_limits.size() < 1'000'000;
    } catch (const format_error&) {
      return false;
    }
  };
  const std::string text = text_of(roll_plan(42));
  REQUIRE(text.size() > 200);
  for (std::size_t length = 0; length < text.size(); ++length) REQUIRE_FALSE(survives(text.substr(0, length)));
  support::dice dice{7};
  for (int round = 0; round < 5'000; ++round) {
    std::string changed = text;
    for (std::uint32_t flips = dice.between(1, 4); flips > 0; --flips)
      changed[dice.below(static_cast<std::uint32_t>(changed.size()))] = static_cast<char>(dice.below(256));
    (void)survives(changed);
  }
}

TEST_CASE("what differs between two plans is said line by line", "[transfer]")
{
  const iteration_plan plan = plan_of(join(good));
  CHECK(plan_text::compare(plan, plan).empty());
  iteration_plan other = plan;
  other.record = 0xff08;
  other.moved_bytes = 2048;
  other.retained_until[1] = 0;
  other.lease_limits[0] = 3;
  other.places.clear();
  other.device_only.clear();
  CHECK(plan_text::compare(plan, other) ==
        "record: ff07 -> ff08\n"
        "moved_bytes: 3072 -> 2048\n"
        "moment 0 below: any -> 3\n"
        "moment 1 until: never -> 0\n"
        "moment 1 in: 5 -> any\n"
        "chunk 0 home: none -> host\n");
  other = plan;
  other.retained_until.clear();
  other.lease_limits.clear();
  CHECK(plan_text::compare(plan, other) == "moments: 2 -> 0\n");
}

}  // namespace plan_text_test
