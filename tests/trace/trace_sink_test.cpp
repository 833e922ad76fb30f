// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/trace/trace_sink.hpp>

#include <chunkmem/trace/sinks.hpp>

#include <conformance/trace_sink.hpp>
#include <support/catch.hpp>

#include <set>
#include <string>
#include <string_view>

namespace trace_sink_test {

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

namespace {

/// The functions of the concept and nothing else.
struct archetype {
  using policy_kind = sink_kind;
  static constexpr std::string_view name = "archetype";
  void record(const trace_event&) noexcept {}
};
static_assert(trace_sink<archetype>);

struct that_throws : archetype {
  void record(const trace_event&) {}
};
struct without_record : archetype {
  void record(const trace_event&) noexcept = delete;
};
struct of_another_kind : archetype {
  using policy_kind = eviction_kind;
};
struct without_a_name {
  using policy_kind = sink_kind;
  void record(const trace_event&) noexcept {}
};
static_assert(!trace_sink<that_throws>);
static_assert(!trace_sink<without_record>);
static_assert(!trace_sink<of_another_kind>);
static_assert(!trace_sink<without_a_name>);
static_assert(!trace_sink<int>);

}  // namespace

TEST_CASE("null_sink keeps the laws of a trace sink and costs no byte", "[trace]")
{
  conformance::trace_sink_laws(trace::null_sink{});
  conformance::trace_sink_laws(archetype{});
  STATIC_REQUIRE(std::is_empty_v<trace::null_sink>);
}

namespace {

/// Counts its calls.
struct counting {
  using policy_kind = sink_kind;
  static constexpr std::string_view name = "counting";
  void record(const trace_event&) noexcept { ++seen; }
  [[nodiscard]] std::string recall(std::size_t most) const
  {
    return most == 0 ? "" : std::to_string(seen) + " events\n";
  }
  int seen = 0;
};
struct recalls_numbers : counting {
  [[nodiscard]] int recall(std::size_t) const { return seen; }
};
struct changes_when_asked : counting {
  [[nodiscard]] std::string recall(std::size_t) { return std::to_string(seen = 0); }
};
struct no_sink {
  [[nodiscard]] std::string recall(std::size_t) const { return ""; }
};

}  // namespace

TEST_CASE("a sink recalls where it says so in text, without changing", "[trace]")
{
  STATIC_REQUIRE(recalling_sink<counting>);
  STATIC_REQUIRE(recalling_sink<trace::ring_sink>);
  STATIC_REQUIRE_FALSE(recalling_sink<trace::null_sink>);
  STATIC_REQUIRE_FALSE(recalling_sink<trace::counter_sink>);
  STATIC_REQUIRE_FALSE(recalling_sink<recalls_numbers>);
  STATIC_REQUIRE_FALSE(recalling_sink<changes_when_asked>);
  STATIC_REQUIRE_FALSE(recalling_sink<no_sink>);
  counting sink;
  sink.record({});
  CHECK(sink.recall(1) == "1 events\n");
  CHECK(sink.recall(0).empty());
}

}  // namespace trace_sink_test
