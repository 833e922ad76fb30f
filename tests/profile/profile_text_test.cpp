// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/profile/profile_text.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/record_builder.hpp>
#include <support/refusal.hpp>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

namespace profile_text_test {

using namespace chunkmem;

namespace {

access_record random_record(std::uint64_t seed, std::uint32_t entries)
{
  support::dice dice{seed};
  support::record_builder build;
  std::vector<std::uint32_t> open;
  while (build.size() < entries) {
    if (!open.empty() && dice.one_in(2)) {
      const std::size_t index = dice.below(static_cast<std::uint32_t>(open.size()));
      build.release(open[index]);
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(index));
      continue;
    }
    constexpr entry_kind kinds[] = {
        entry_kind::read,         entry_kind::read_write,         entry_kind::write,
        entry_kind::read_on_host, entry_kind::read_write_on_host, entry_kind::write_on_host};
    const std::uint32_t which = dice.below(9);
    if (which < 6)
      open.push_back(build.access(dice.below(20), kinds[which]));
    else if (which == 6)
      build.drop(dice.below(20));
    else
      open.push_back(
          build.lease(which == 7 ? entry_kind::lease_device : entry_kind::lease_host, 1 + dice.below(100'000)));
  }
  return build.finish(std::vector<std::uint32_t>(20, 0), 1);
}

std::string text_of(const access_record& record)
{
  std::ostringstream out;
  profile_text::write(out, record);
  return out.str();
}
access_record record_of(const std::string& text)
{
  std::istringstream in{text};
  return profile_text::read(in);
}

bool are_same(const access_record& left, const access_record& right)
{
  const auto same_entry = [](const access_entry& a, const access_entry& b) {
    return a.slot == b.slot && a.kind == b.kind && a.micro_batch == b.micro_batch;
  };
  const auto same_detail = [](const entry_detail& a, const entry_detail& b) {
    return a.bytes == b.bytes && a.until == b.until && a.during == b.during;
  };
  const auto same_release = [](const release_entry& a, const release_entry& b) {
    return a.access_index == b.access_index && a.until == b.until;
  };
  return std::ranges::equal(left.entries(), right.entries(), same_entry) &&
         std::ranges::equal(left.details(), right.details(), same_detail) &&
         std::ranges::equal(left.releases(), right.releases(), same_release);
}

/// Reads what may be anything: a record, or a format_error. @return   it was a record
bool survives(const std::string& text)
{
  try {
    return record_of(text).size() < 1'000'000;
  } catch (const format_error&) {
    return false;
  }
}

}  // namespace

TEST_CASE("a profile reads as it was written", "[profile]")
{
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    const access_record record = random_record(seed, static_cast<std::uint32_t>(seed % 60));
    const std::string text = text_of(record);
    const access_record back = record_of(text);
    REQUIRE(are_same(record, back));
    REQUIRE(text_of(back) == text);
  }
}

TEST_CASE("a profile can be read by people", "[profile]")
{
  support::record_builder build;
  const auto scratch = build.lease(entry_kind::lease_device, 4096);
  build.brief(7, entry_kind::read_write);
  build.release(scratch);
  build.drop(7);
  CHECK(text_of(build.finish(std::vector<std::uint32_t>(8, 0), 1)) ==
        "chunkmem profile 2\n"
        "updates_first unknown\n"
        "0 lease bytes 4096 pass 0 micro_batch 0\n"
        "1 read_write slot 7 pass 0 micro_batch 0\n"
        "end 1\n"
        "end 0\n"
        "2 drop slot 7 pass 0 micro_batch 0\n"
        "entries 3 highest_tide 4096\n");
}

TEST_CASE("a profile says whether updates were waiting, and one of version 1 does not", "[profile]")
{
  for (const record_start start : {record_start::without_updates, record_start::with_updates, record_start::unknown}) {
    access_record record = random_record(3, 20);
    record.began(start);
    CHECK(record_of(text_of(record)).start() == start);
  }
  const std::string older = "chunkmem profile 1\n0 read slot 4 pass 1 micro_batch 0\nend 0\nentries 1 highest_tide 0\n";
  CHECK(record_of(older).size() == 1);
  CHECK(record_of(older).start() == record_start::unknown);
  const std::string rest = "entries 0 highest_tide 0\n";
  const auto refused = [&](const std::string& second, const std::string& why) {
    CHECK_THROWS_WITH(
        record_of("chunkmem profile 2\n" + second + rest),
        Catch::Matchers::ContainsSubstring("line 2 of a profile") && Catch::Matchers::ContainsSubstring(why));
  };
  CHECK(record_of("chunkmem profile 2\nupdates_first 1\n" + rest).start() == record_start::with_updates);
  refused("", "key \"updates_first\" is wanted here");
  refused("updates_first 2\n", "key \"updates_first\" is too large");
  refused("updates_first -1\n", "key \"updates_first\" is negative");
  refused("updates_first yes\n", "key \"updates_first\" is no whole number");
  refused("updates_first 1 1\n", "goes on after its end");
  CHECK_THROWS_WITH(record_of("chunkmem profile 3\nupdates_first 1\n" + rest),
                    Catch::Matchers::ContainsSubstring("version 1 or 2"));
}

TEST_CASE("a profile that was cut short or changed is refused or read as another one, and nothing else happens",
          "[profile]")
{
  const std::string text = text_of(random_record(42, 25));
  for (std::size_t length = 0; length < text.size(); ++length) REQUIRE_FALSE(survives(text.substr(0, length)));
  for (std::size_t index = 0; index < text.size(); ++index)
    for (const char other : {'0', '9', ' ', '\n', '-', 'x', '\0', '\xff'}) {
      std::string changed = text;
      changed[index] = other;
      (void)survives(changed);
    }
  support::dice dice{7};
  for (int round = 0; round < 2'000; ++round) {
    std::string changed = text;
    for (std::uint32_t flips = dice.between(1, 4); flips > 0; --flips)
      changed[dice.below(static_cast<std::uint32_t>(changed.size()))] = static_cast<char>(dice.below(256));
    (void)survives(changed);
  }
}

TEST_CASE("what is wrong with a profile is said with its line", "[profile]")
{
  const auto complaint = [](const std::string& body) -> std::string {
    return support::refusal<format_error>([&] { (void)record_of("chunkmem profile 1\n" + body); });
  };
  const auto says = [&](const std::string& body, const std::string& line, const std::string& what) {
    const std::string said = complaint(body);
    INFO(said);
    return said.find("line " + line + " ") != std::string::npos && said.find(what) != std::string::npos;
  };
  CHECK(says("0 peek slot 1 pass 0 micro_batch 0\n", "2", "no entry is of this kind"));
  CHECK(says("0\n", "2", "no entry is of this kind"));
  CHECK(says("1 read slot 1 pass 0 micro_batch 0\n", "2", "the next access index is wanted"));
  CHECK(says("-0 read slot 1 pass 0 micro_batch 0\n", "2", "the next access index is wanted"));
  CHECK(says("0 read slot 1 pass 3 micro_batch 0\n", "2", "key \"pass\" is too large"));
  CHECK(says("0 read slot 1 pass nan micro_batch 0\n", "2", "key \"pass\" is no whole number"));
  CHECK(says("0 read slot -1 pass 0 micro_batch 0\n", "2", "key \"slot\" is negative"));
  CHECK(says("0 read slot 99999999999 pass 0 micro_batch 0\n", "2", "key \"slot\" is too large"));
  CHECK(says("0 read slot 4294967295 pass 0 micro_batch 0\n", "2", "key \"slot\" is too large"));
  CHECK(says("0 read slot 1e3 pass 0 micro_batch 0\n", "2", "key \"slot\" is no whole number"));
  CHECK(says("0 read slot  pass 0 micro_batch 0\n", "2", "key \"slot\" is no whole number"));
  CHECK(says("0 read bytes 4 pass 0 micro_batch 0\n", "2", "key \"slot\" is wanted here"));
  CHECK(says("0 lease slot 4 pass 0 micro_batch 0\n", "2", "key \"bytes\" is wanted here"));
  CHECK(says("0 lease bytes -4 pass 0 micro_batch 0\n", "2", "key \"bytes\" is negative"));
  CHECK(says("0 lease bytes 18446744073709551616 pass 0 micro_batch 0\n", "2", "key \"bytes\" is too large"));
  CHECK(says("0 lease bytes\n", "2", "key \"bytes\" has no value"));
  CHECK(says("0 read slot 1 phase 0 micro_batch 0\n", "2", "key \"pass\" is wanted here"));
  CHECK(says("0 read slot 1 pass 0 micro_batch 70000\n", "2", "key \"micro_batch\" is too large"));
  CHECK(says("0 read slot 1 pass 0 micro_batch -1\n", "2", "key \"micro_batch\" is negative"));
  CHECK(says("0 read slot 1 pass 0 micro_batch 0 \n", "2", "goes on after its end"));
  CHECK(says("0 read slot 1 pass 0\n", "2", "key \"micro_batch\" is wanted here"));
  CHECK(says("0 read slot 1 pass 0 micro_batch 0\nend 1\n", "3", "key \"end\" names nothing that could end"));
  CHECK(says("0 read slot 1 pass 0 micro_batch 0\nend 0\nend 0\n", "4", "key \"end\" names what has ended before"));
  CHECK(says("0 drop slot 1 pass 0 micro_batch 0\nend 0\n", "3", "nothing that could end"));
  CHECK(says("0 read slot 1 pass 0 micro_batch 0\nend 0\nentries 2 highest_tide 0\n", "4",
             "key \"entries\" is another number"));
  CHECK(says("entries 0 highest_tide 5\n", "2", "key \"highest_tide\" is not what"));
  CHECK(says("entries 0\n", "2", "key \"highest_tide\" is wanted here"));
  CHECK(says("entries -1 highest_tide 0\n", "2", "key \"entries\" is negative"));
  CHECK(says("entries nan highest_tide 0\n", "2", "key \"entries\" is no whole number"));
  CHECK(says("end -1\n", "2", "key \"end\" is negative"));
  CHECK(says("end\n", "2", "key \"end\" has no value"));
  CHECK(says("entries 0 highest_tide 0 and more\n", "2", "goes on after its end"));
  CHECK(says(std::string(100'000, '1'), "2", "longer than any line"));
  CHECK(says("0 read slot 1 pass 0 micro_batch 0\n", "3", "the text ends"));
  CHECK(complaint("entries 0 highest_tide 0\n") == "");
  try {
    std::istringstream named{"chunkmem profile 1\n0 read slot\n"};
    (void)profile_text::read(named, "first.profile");
    FAIL("it was read");
  } catch (const format_error& refused) {
    CHECK(std::string{refused.what()} ==
          "chunkmem: line 2 of first.profile cannot be used: key \"slot\" has no value (write it anew)");
  }
  std::istringstream other{"another file\n"};
  CHECK_THROWS_AS(profile_text::read(other), format_error);
}

}  // namespace profile_text_test
