// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/trace/trace_sink.hpp>

#include <chunkmem/trace/sinks.hpp>
#include <support/catch.hpp>

#include <string>
#include <string_view>

namespace recalling_sink_test {

using namespace chunkmem;

namespace {

/// Remembers how much it was told.
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

}  // namespace recalling_sink_test
