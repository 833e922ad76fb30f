// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/training_timeline.hpp>

#include <chunkmem/manager/manager.hpp>
#include <conformance/trace_sink.hpp>
#include <support/catch.hpp>

#include <vector>

namespace training_timeline_test {

using namespace chunkmem;

TEST_CASE("timeline_sink keeps the laws of a trace sink", "[planner]")
{
  conformance::trace_sink_laws(planner::timeline_sink{});
  const backend::simulated clocks{{}};
  std::vector<planner::timed_copy> copies;
  const std::uint32_t now = 7;
  const planner::access_index_source access_indices{
      &now, [](const void* context) { return *static_cast<const std::uint32_t*>(context); }};
  conformance::trace_sink_laws(planner::timeline_sink{clocks, {}, access_indices, copies});
  CHECK(copies.size() == 2 * 1'000 * 2 * 2);  // loads and write-backs alone
}

TEST_CASE("timeline_sink tells when copies are on the link, not when they were asked for", "[planner]")
{
  const backend::cost_table costs{.to_device = {100, 1e9}, .to_host = {50, 2e9}};
  std::vector<planner::timed_copy> copies;
  std::vector<planner::timed_departure> left;
  const std::uint32_t now = 7;
  const planner::access_index_source access_indices{
      &now, [](const void* context) { return *static_cast<const std::uint32_t*>(context); }};
  backend::simulated memory{
      {.device_capacity = 2_KiB, .host_capacity = 1_MiB, .costs = costs, .host_runs_ahead = true}};
  manager<backend::simulated, planner::timeline_sink> m{
      memory, {.chunk_bytes = 1_KiB}, planner::timeline_sink{memory, costs, access_indices, copies, &left}};
  const auto one = m.add<float>({256}, role::frozen);
  const auto other = m.add<float>({256}, role::frozen);
  const auto third = m.add<float>({256}, role::frozen);
  for (const auto it : {one, other}) (void)m.acquire(it, access::write, memory_location::host);
  for (const auto it : {one, other}) (void)m.acquire(it, access::read, agent::compute);
  REQUIRE(copies.size() == 2);
  CHECK(copies[0].begin == 0);
  CHECK(copies[0].access_index == 7);
  CHECK(copies[0].end == 100 + 1'024);
  CHECK(copies[1].begin == 1'124);  // it waits for its link
  CHECK(copies[1].end == 2'248);
  CHECK(copies[1].bytes == 1'024);
  CHECK(copies[1].to == tier::device);
  (void)m.acquire(one, access::read_write, agent::compute);
  (void)m.acquire(one, access::read, memory_location::host);
  REQUIRE(copies.size() == 3);
  CHECK(copies[2].to == tier::host);
  CHECK(copies[2].begin == 2'248);  // compute had followed both loads before it wrote
  CHECK(copies[2].end == 2'248 + 50 + 512);
  CHECK(left.empty());
  (void)m.acquire(other, access::write, memory_location::host);
  REQUIRE(left.size() == 1);  // what was written on the host is worth nothing on the device
  left.clear();
  (void)m.acquire(other, access::read, agent::compute);
  (void)m.acquire(third, access::write, agent::compute);
  REQUIRE(left.size() == 1);
  CHECK(left[0].time == copies.back().end);  // until then compute waited for the load
}

}  // namespace training_timeline_test
