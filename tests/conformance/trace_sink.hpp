#pragma once

#include <chunkmem/trace/trace_sink.hpp>
#include <support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace conformance {

/// One event of each kind, and the largest numbers there are.
template <class Visitor>
void each_kind_of_event(Visitor visit)
{
  for (std::size_t i = 0; i < chunkmem::happening_count; ++i) {
    const auto what = static_cast<chunkmem::happening>(i);
    visit(chunkmem::trace_event{.what = what, .chunk = chunkmem::chunk_id{3}, .bytes = 100, .begin = 10, .end = 20});
    visit(chunkmem::trace_event{.what = what, .bytes = UINT64_MAX, .begin = UINT64_MAX, .end = 0});
  }
}

/// The laws of trace_sink: takes every event, as often as it comes, through any copy, and never throws.
template <chunkmem::trace_sink Sink>
void trace_sink_laws(Sink sink)
{
  STATIC_REQUIRE(noexcept(sink.record(chunkmem::trace_event{})));
  CHECK_FALSE(std::string_view{Sink::name}.empty());
  Sink copied = sink;
  for (int round = 0; round < 1'000; ++round) {
    each_kind_of_event([&](const chunkmem::trace_event& event) { copied.record(event); });
    each_kind_of_event([&](const chunkmem::trace_event& event) { sink.record(event); });
  }
}

}  // namespace conformance
