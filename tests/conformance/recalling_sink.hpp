#pragma once

#include <chunkmem/trace/recalling_sink.hpp>
#include <conformance/trace_sink.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

namespace conformance {

/// The laws of recalling_sink: whatever was recorded, it recalls at most so many whole lines, and the same ones again.
template <chunkmem::recalling_sink Sink>
void recalling_sink_laws(Sink sink)
{
  trace_sink_laws(sink);
  each_kind_of_event([&](const chunkmem::trace_event& event) { sink.record(event); });
  std::string shorter;
  for (const std::size_t most : {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{5}, std::size_t{1'000}}) {
    const std::string lines = sink.recall(most);
    CAPTURE(most, lines);
    CHECK(static_cast<std::size_t>(std::count(lines.begin(), lines.end(), '\n')) <= most);
    if (!lines.empty()) CHECK(lines.back() == '\n');
    CHECK(lines.ends_with(shorter));  // the last ones, the oldest first
    CHECK(sink.recall(most) == lines);
    shorter = lines;
  }
}

}  // namespace conformance
