// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/trace/trace_sink.hpp>

#include <support/catch.hpp>

#include <set>
#include <string_view>

namespace trace_event_test {

using namespace chunkmem;

TEST_CASE("every trace_event_kind has a name of its own", "[trace]")
{
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < happening_count; ++i) names.insert(name_of(static_cast<trace_event_kind>(i)));
  CHECK(names.size() == happening_count);
  CHECK(names.count("") == 0);
  CHECK(name_of(trace_event_kind::load) == "load");
  CHECK(name_of(trace_event_kind::replan) == "replan");
  CHECK(name_of(trace_event_kind::update) == "update");
  CHECK((is_numbered(trace_event_kind::backward) && !is_numbered(trace_event_kind::claim)));
}

TEST_CASE("an event is 32 plain bytes", "[trace]")
{
  STATIC_REQUIRE(sizeof(trace_event) == 32);
  STATIC_REQUIRE(std::is_trivially_copyable_v<trace_event>);
  STATIC_REQUIRE(trace_event{}.chunk == chunk_id::none);
}

}  // namespace trace_event_test
