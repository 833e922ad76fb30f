// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/trace/sinks.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

#include <conformance/recalling_sink.hpp>
#include <conformance/trace_sink.hpp>
#include <support/catch.hpp>
#include <support/forked_child.hpp>
#include <support/links.hpp>

#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

namespace csv_sink_test {

using namespace chunkmem;

namespace {

/// A file of this process, gone at the end.
struct scratch {
  scratch()
      : path{(std::filesystem::temp_directory_path() / ("chunkmem-" + std::to_string(::getpid()) + ".csv")).string()}
  {
  }
  ~scratch() { std::remove(path.c_str()); }
  [[nodiscard]] std::string text() const
  {
    std::ifstream in{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{in}, {}};
  }
  std::string path;
};

}  // namespace

TEST_CASE("csv_sink keeps the laws of a sink, and writes a line for each event", "[trace]")
{
  const scratch file;
  trace::csv_file table{file.path};
  conformance::trace_sink_laws(trace::csv_sink{table});
  table.close();
  table.close();
  const std::string text = file.text();
  CHECK(std::count(text.begin(), text.end(), '\n') == 4'000 * happening_count + 1);
  CHECK(std::count(text.begin(), text.end(), ',') == 6 * (4'000 * happening_count + 1));
}

TEST_CASE("a table of events is what other programs expect", "[trace]")
{
  const scratch file;
  {
    trace::csv_file table{file.path};
    trace::csv_sink sink{table};
    sink.record({.what = trace_event_kind::load, .chunk = chunk_id{3}, .bytes = 4096, .begin = 10, .end = 12});
    sink.record({.what = trace_event_kind::iteration, .from = tier::device, .to = tier::device, .bytes = 7});
  }
  CHECK(file.text() ==
        "what,chunk,bytes,from,to,begin_ns,end_ns\n"
        "load,3,4096,host,device,10,12\n"
        "iteration,,7,device,device,0,0\n");
}

TEST_CASE("a table that cannot be written says so when it is opened or closed", "[trace]")
{
  CHECK_THROWS_AS(trace::csv_file{"/nowhere/at/all.csv"}, io_error);
  if (!std::filesystem::exists("/dev/full")) return;
  trace::csv_file full{"/dev/full"};
  trace::csv_sink sink{full};
  for (int turn = 0; turn < 10'000; ++turn) sink.record({.bytes = 1});
  try {
    full.close();
    FAIL("a full disk was not noticed");
  } catch (const io_error& failed) {
    CHECK(failed.fault().number == ENOSPC);
  }
}

TEST_CASE("a forked child adds no line of its parent a second time", "[trace]")
{
  const scratch file;
  static std::optional<trace::csv_file> table;
  table.emplace(file.path);
  table->add({.bytes = 1});
  CHECK(support::result_in_child([] {
          table->add({.bytes = 2});
          std::exit(7);
          return 0;
        }) == 7);
  table->close();
  const std::string text = file.text();
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
}

TEST_CASE("a table of events never goes through a link", "[trace]")
{
  support::expect_no_link_is_followed([](const std::string& path) { trace::csv_file{path}; });
}

}  // namespace csv_sink_test

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

namespace ring_sink_test {

using namespace chunkmem;

TEST_CASE("ring_sink keeps the laws of a sink", "[trace]")
{
  trace::event_ring ring{7};
  conformance::recalling_sink_laws(trace::ring_sink{ring});
  CHECK(ring.size() == 7);
  CHECK(ring.seen() == 4'005 * happening_count);
}

TEST_CASE("a ring holds the last events, the newest first", "[trace]")
{
  trace::event_ring ring{3};
  CHECK(ring.size() == 0);
  CHECK_THROWS_AS(ring.last(0), usage_error);
  for (std::uint64_t bytes = 1; bytes <= 5; ++bytes) ring.add({.bytes = bytes});
  CHECK(ring.size() == 3);
  for (std::size_t age = 0; age < 3; ++age) CHECK(ring.last(age).bytes == 5 - age);
  CHECK_THROWS_AS(ring.last(3), usage_error);
  CHECK_THROWS_AS(trace::event_ring{0}, usage_error);
}

TEST_CASE("beside an error the last events say how it came", "[trace]")
{
  using arena = backend::host_arena;
  trace::event_ring ring{4};
  arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  manager<arena, trace::ring_sink> m{memory, {.chunk_bytes = 4_KiB}, trace::ring_sink{ring}};
  const auto stack = m.add_stacked<float>(4, {1024}, role::parameter);
  for (std::uint32_t layer = 0; layer < 4; ++layer) m.acquire(stack.slice(layer), access::write).release();
  const auto first = m.acquire(stack.slice(0), access::read);
  const auto second = m.acquire(stack.slice(1), access::read);
  CHECK_THROWS_AS(m.acquire(stack.slice(2), access::read), out_of_memory);
  const std::string text = to_string(ring);
  CHECK(text.find("load of chunk 1, bytes 4096, from host to device\n") != std::string::npos);
  CHECK(text.find("evict of chunk ") != std::string::npos);
}

TEST_CASE("a ring recalls the last events and no more lines than asked for", "[trace]")
{
  trace::event_ring ring{6};
  const trace::ring_sink sink{ring};
  CHECK(sink.recall(10).empty());
  for (std::uint64_t bytes = 1; bytes <= 8; ++bytes) ring.add({.bytes = bytes});
  CHECK(sink.recall(0).empty());
  CHECK(sink.recall(2) == "load, bytes 7, from host to device\nload, bytes 8, from host to device\n");
  CHECK(sink.recall(6) == to_string(ring));
  CHECK(sink.recall(SIZE_MAX) == to_string(ring));
}

}  // namespace ring_sink_test
