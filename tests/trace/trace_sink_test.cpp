// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/trace/trace_sink.hpp>

#include <conformance/trace_sink.hpp>
#include <support/catch.hpp>

namespace trace_sink_test {

using namespace chunkmem;

namespace {

/// No more than the concept asks for.
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

}  // namespace trace_sink_test
