// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/trace/sinks.hpp>

#include <conformance/trace_sink.hpp>
#include <support/catch.hpp>

namespace counter_sink_test {

using namespace chunkmem;

TEST_CASE("counter_sink keeps the laws of a trace sink", "[trace]")
{
  trace::counter_totals totals;
  conformance::trace_sink_laws(trace::counter_sink{totals});
  CHECK(totals[trace_event_kind::load].count == 4'000);
}

TEST_CASE("totals count each kind apart, through every copy of the sink", "[trace]")
{
  trace::counter_totals totals;
  trace::counter_sink sink{totals};
  trace::counter_sink copied = sink;
  sink.record({.what = trace_event_kind::load, .bytes = 100});
  copied.record({.what = trace_event_kind::load, .bytes = 11});
  copied.record({.what = trace_event_kind::evict, .bytes = 5});
  sink.record({.what = trace_event_kind::iteration, .bytes = 41});
  CHECK(totals[trace_event_kind::load].count == 2);
  CHECK(totals[trace_event_kind::load].bytes == 111);
  CHECK(totals[trace_event_kind::evict].count == 1);
  CHECK(totals[trace_event_kind::iteration].count == 1);
  CHECK(totals[trace_event_kind::iteration].bytes == 0);  // a number is no size
  CHECK(totals[trace_event_kind::write_back].count == 0);
  CHECK(to_string(totals) == "load 2 times, 111 B\nevict 1 times, 5 B\niteration 1 times, 0 B\n");
  totals.reset();
  CHECK(to_string(totals).empty());
}

}  // namespace counter_sink_test
