// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/trace/nvtx_sink.hpp>

#include <conformance/trace_sink.hpp>
#include <support/catch.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace nvtx_sink_test {

using namespace chunkmem;

namespace {

/// NVTX as a list of calls.
struct written_nvtx {
  using domain_type = int;
  using range_type = std::uint64_t;

  std::vector<std::string>* calls = nullptr;

  void say(std::string text) const noexcept
  {
    if (calls != nullptr) calls->push_back(std::move(text));
  }
  int create_domain(const char* name) const noexcept { return say("domain " + std::string{name}), 5; }
  void destroy_domain(int domain) const noexcept { say("destroy " + std::to_string(domain)); }
  void name_category(int, std::uint32_t category, const char* name) const noexcept
  {
    say(std::to_string(category) + " is " + name);
  }
  void mark(int, const char* text, std::uint32_t category, std::uint64_t payload) const noexcept
  {
    say("mark " + std::string{text} + " " + std::to_string(category) + " " + std::to_string(payload));
  }
  std::uint64_t start(int, const char* text, std::uint64_t payload) const noexcept
  {
    say("start " + std::string{text} + " " + std::to_string(payload));
    return 40 + payload;
  }
  void end(int, std::uint64_t range) const noexcept { say("end " + std::to_string(range)); }
  void push(int, const char* text) const noexcept { say("push " + std::string{text}); }
  void pop(int) const noexcept { say("pop"); }
};

using domain_type = trace::nvtx_domain<written_nvtx>;
using sink_type = trace::nvtx_sink<written_nvtx>;

}  // namespace

TEST_CASE("nvtx_sink keeps the laws of a trace sink", "[trace]")
{
  domain_type domain;
  STATIC_REQUIRE(trace_sink<sink_type>);
  conformance::trace_sink_laws(sink_type{domain});
}

TEST_CASE("an iteration is a range, all else is a mark in its category", "[trace]")
{
  std::vector<std::string> calls;
  {
    domain_type domain{"mine", written_nvtx{&calls}};
    CHECK(calls.size() == 1 + happening_count);
    CHECK((calls[0] == "domain mine" && calls[1] == "1 is load" && calls.back() == "13 is update"));
    calls.clear();
    sink_type sink{domain};
    {
      const trace::nvtx_scope forward{domain, "forward"};
      sink.record({.what = trace_event_kind::load, .bytes = 64});
      sink.record({.what = trace_event_kind::evict, .bytes = 32});
    }
    sink.record({.what = trace_event_kind::iteration, .bytes = 1});
    sink.record({.what = trace_event_kind::iteration, .bytes = 2});  // one in which nothing happened
    sink.record({.what = trace_event_kind::lease, .bytes = 16});
  }
  const std::vector<std::string> expected{
      "push forward", "start iteration 1", "mark load 1 64",  "mark evict 3 32", "pop",
      "end 41",       "start iteration 3", "mark lease 5 16", "end 43",          "destroy 5"};
  CHECK(calls == expected);
}

}  // namespace nvtx_sink_test
