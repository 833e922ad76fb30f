// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/plan_text.hpp>

#include <support/catch.hpp>
#include <support/oracles/record_builder.hpp>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace stored_plan_test {

using namespace chunkmem;
using transfer::expect_plan_fits;
using transfer::fingerprint_of;
using transfer::stored_plan;

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
  stored_plan good;
  good.retained_until = {3, never, never, 0};
  good.borders = {2, never, never, 2};
  good.first_use = {0, never, never};
  const auto refusal = [&](auto change) -> std::string {
    stored_plan plan = good;
    change(plan);
    try {
      expect_plan_fits(plan, record, own, 3);
    } catch (const config_error& refused) {
      return refused.what();
    }
    return {};
  };
  using Catch::Matchers::ContainsSubstring;
  CHECK(refusal([](stored_plan&) {}).empty());
  CHECK(refusal([](stored_plan& it) { it = {}; }).empty());
  CHECK(refusal([](stored_plan& it) { it.device_only = {1, 0, 0}; }).empty());
  CHECK_THAT(refusal([](stored_plan& it) { it.retained_until[0] = 1; }), ContainsSubstring("access 0"));
  CHECK_THAT(refusal([](stored_plan& it) { it.retained_until[1] = 3; }), ContainsSubstring("access 1"));
  CHECK_THAT(refusal([](stored_plan& it) { it.retained_until[2] = 2; }), ContainsSubstring("access 2"));
  CHECK_THAT(refusal([](stored_plan& it) { it.retained_until[3] = 4; }), ContainsSubstring("access 3"));
  CHECK_THAT(refusal([](stored_plan& it) { it.first_use[1] = 0; }), ContainsSubstring("chunk 1"));
  CHECK_THAT(refusal([](stored_plan& it) { it.borders.pop_back(); }), ContainsSubstring("4 accesses"));
  CHECK_THAT(refusal([](stored_plan& it) { it.first_use.push_back(0); }), ContainsSubstring("4 chunks"));
  CHECK_THAT(refusal([](stored_plan& it) { it.device_only = {1}; }), ContainsSubstring("chunks"));
  CHECK(refusal([](stored_plan& it) { it.places = {0, never, never, 0}; }).empty());
  CHECK_THAT(refusal([](stored_plan& it) { it.places = {0}; }), ContainsSubstring("accesses"));
  CHECK_THAT(refusal([](stored_plan& it) { it = {}, it.places = {0}; }), ContainsSubstring("accesses"));
}

}  // namespace stored_plan_test
