// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/trace/chrome_sink.hpp>

#include <chunkmem/core/bytes.hpp>
#include <conformance/trace_sink.hpp>
#include <support/catch.hpp>
#include <support/links.hpp>

#include <unistd.h>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace chrome_sink_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Accepts exactly the JSON of RFC 8259 whose escapes are those of quotes and backslashes: all that a trace contains.
class json_reader {
 public:
  explicit json_reader(std::string_view text) : text_{text} {}
  [[nodiscard]] bool accepts() { return value() && (space(), at_ == text_.size()); }

 private:
  bool value()
  {
    space();
    if (taken('{')) return members('}', true);
    if (taken('[')) return members(']', false);
    if (taken('"')) return string();
    return number();
  }
  bool members(char end, bool named)
  {
    if (space(), taken(end)) return true;
    do {
      space();
      if (named && !(taken('"') && string() && (space(), taken(':')))) return false;
      if (!value()) return false;
      space();
    } while (taken(','));
    return taken(end);
  }
  bool string()
  {
    while (at_ < text_.size() && text_[at_] != '"') {
      if (static_cast<unsigned char>(text_[at_]) < 0x20) return false;
      if (text_[at_++] != '\\') continue;
      if (!taken('"') && !taken('\\')) return false;
    }
    return taken('"');
  }
  bool number()
  {
    const std::size_t begin = at_;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    const bool whole = at_ > begin && (text_[begin] != '0' || at_ == begin + 1);
    if (!taken('.')) return whole;
    const std::size_t fraction = at_;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    return whole && at_ > fraction;
  }
  void space()
  {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool taken(char wanted)
  {
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

[[nodiscard]] bool is_json(const std::string& text)
{
  return json_reader{text}.accepts();
}

}  // namespace

TEST_CASE("chrome_sink keeps the laws of a trace sink", "[trace]")
{
  trace::chrome_trace trace;
  conformance::trace_sink_laws(trace::chrome_sink{trace});
  CHECK(trace.events().size() == 4'000 * happening_count);
  CHECK(is_json(to_json(trace)));
}

TEST_CASE("the reader of this test refuses what is no JSON", "[trace]")
{
  CHECK(is_json("{\"a\":[1,2.500,{}],\"b\":\"c\"}\n"));
  for (const char* wrong : {"", "{", "{\"a\":}", "[1,]", "[1 2]", "{\"a\":1,}", "[01]", "[1.]", "{}x", "[\"\n\"]",
                            "[\"\\x\"]", "[\"\\\"]"}) {
    CHECK_FALSE(is_json(wrong));
  }
}

TEST_CASE("an empty trace is well-formed", "[trace]")
{
  const std::string text = to_json(trace::chrome_trace{0});
  CHECK(is_json(text));
  CHECK_THAT(text, ContainsSubstring("\"traceEvents\":[") && ContainsSubstring("\"name\":\"to device: loads\""));
}

TEST_CASE("a trace has one track per direction and keeps the nanoseconds", "[trace]")
{
  trace::chrome_trace trace;
  trace::chrome_sink sink{trace};
  sink.record({.what = trace_event_kind::load, .chunk = chunk_id{7}, .bytes = 64, .begin = 1'002, .end = 3'045});
  sink.record(
      {.what = trace_event_kind::write_back, .from = tier::device, .to = tier::host, .chunk = chunk_id{7}, .begin = 9});
  sink.record({.what = trace_event_kind::iteration, .bytes = 12});
  const std::string text = to_json(trace);
  CHECK(is_json(text));
  CHECK_THAT(text, ContainsSubstring("\"name\":\"load\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":1.002,\"dur\":2.043"));
  CHECK_THAT(text, ContainsSubstring("\"name\":\"write_back\",\"ph\":\"i\",\"pid\":1,\"tid\":2,\"ts\":0.009"));
  CHECK_THAT(text, ContainsSubstring("\"chunk\":7,\"bytes\":64,\"from\":\"host\",\"to\":\"device\""));
  CHECK_THAT(text, ContainsSubstring("\"number\":12"));
}

TEST_CASE("counters follow loads, evictions and leases and end at zero", "[trace]")
{
  trace::chrome_trace trace;
  trace::chrome_sink sink{trace};
  const chunk_id first{1};
  sink.record({.what = trace_event_kind::load, .chunk = first, .bytes = 100, .begin = 1});
  sink.record({.what = trace_event_kind::load, .chunk = chunk_id{2}, .bytes = 50, .begin = 2});
  sink.record({.what = trace_event_kind::lease, .bytes = 30, .begin = 3});
  sink.record({.what = trace_event_kind::evict, .chunk = first, .bytes = 100, .begin = 4});
  sink.record({.what = trace_event_kind::evict, .chunk = chunk_id{9}, .bytes = 8, .begin = 5});  // was never loaded
  sink.record({.what = trace_event_kind::lease_end, .bytes = 30, .begin = 6});
  sink.record({.what = trace_event_kind::discard, .chunk = chunk_id{2}, .bytes = 50, .begin = 7});
  const std::string text = to_json(trace);
  CHECK(is_json(text));
  CHECK_THAT(text, ContainsSubstring("\"bytes of chunks on device\",\"ph\":\"C\",\"pid\":1,\"tid\":1,\"ts\":0.002,"
                                     "\"args\":{\"bytes\":150}"));
  CHECK_THAT(text, ContainsSubstring("\"ts\":0.003,\"args\":{\"bytes\":30}"));
  CHECK_THAT(text, ContainsSubstring("\"ts\":0.005,\"args\":{\"bytes\":50}"));
  CHECK_THAT(text, ContainsSubstring("\"ts\":0.006,\"args\":{\"bytes\":0}"));
  CHECK_THAT(text, ContainsSubstring("\"ts\":0.007,\"args\":{\"bytes\":0}"));
}

struct some_places {  // as much of a residency_snapshot as a trace wants
  struct one_tier {
    chunkmem::bytes capacity{65'536};
  };
  struct one_tensor {
    std::string name;
    std::uint32_t list = 0;
    std::uint32_t chunk = 0;
  };
  chunkmem::per_tier<one_tier> tiers;
  chunkmem::bytes frame{4096};
  std::vector<std::string> lists{"value"};
  std::vector<one_tensor> tensors{{"a \"b\"\\\n", 0, 0}, {"c", 0, 0}, {"d", 0, 2}};
};

TEST_CASE("a trace that was described has the capacity, and names of tensors as JSON can have them", "[trace]")
{
  const some_places places;
  trace::chrome_trace trace;
  CHECK(to_json(trace).find("device_capacity") == std::string::npos);
  trace.describe(places);
  const std::string text = to_json(trace);
  CHECK(is_json(text));
  CHECK_THAT(text, ContainsSubstring("\"device_capacity\":65536,\"frame\":4096,\"chunks\":{"));
  CHECK_THAT(text, ContainsSubstring("\"0\":\"a \\\"b\\\"\\\\  (value), c (value)\",\"2\":\"d (value)\""));
}

TEST_CASE("events past the bound are counted, not kept", "[trace]")
{
  trace::chrome_trace trace{2};
  const trace_event* const storage = trace.events().data();
  trace::chrome_sink sink{trace};
  for (std::uint64_t i = 0; i < 5; ++i) sink.record({.what = trace_event_kind::load, .bytes = i});
  CHECK(trace.events().size() == 2);
  CHECK(trace.events()[1].bytes == 1);
  CHECK(trace.events().data() == storage);  // room for all was there from the start
  CHECK(trace.dropped() == 3);
  CHECK_THAT(to_json(trace), ContainsSubstring("\"dropped_events\":\"3\""));
}

TEST_CASE("a saved trace is the same text, and a file that cannot be written is an io_error", "[trace]")
{
  trace::chrome_trace trace;
  trace::chrome_sink{trace}.record({.what = trace_event_kind::load, .bytes = 1});
  const auto path = std::filesystem::temp_directory_path() / ("chunkmem_trace_" + std::to_string(::getpid()) + ".json");
  save(trace, path.string());
  std::ifstream file{path};
  const std::string text{std::istreambuf_iterator<char>{file}, {}};
  std::filesystem::remove(path);
  CHECK(text == to_json(trace));

  try {
    save(trace, "/no such folder/trace.json");
    FAIL("not refused");
  } catch (const io_error& refused) {
    CHECK_THAT(std::string{refused.what()},
               ContainsSubstring("/no such folder/trace.json") && ContainsSubstring("errno 2"));
  }
  if (std::filesystem::exists("/dev/full")) CHECK_THROWS_AS(save(trace, "/dev/full"), io_error);
}

TEST_CASE("a saved trace never goes through a link", "[trace]")
{
  support::expect_no_link_is_followed([](const std::string& path) { save(trace::chrome_trace{1}, path); });
}

}  // namespace chrome_sink_test
