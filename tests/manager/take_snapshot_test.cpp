// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/take_snapshot.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace take_snapshot_test {

namespace cm = chunkmem;
using namespace cm::literals;
using arena = cm::backend::host_arena;

namespace {

constexpr cm::list_spec lists[] = {{"momentum"}};

/// What a snapshot says of frames, from its own chunks and leases: its runs must say the same.
std::vector<cm::frame_use> uses_from_chunks(const cm::residency_snapshot& it, cm::tier where)
{
  const cm::tier_snapshot& tier = it.tiers[where];
  std::vector<cm::frame_use> uses(tier.frames, cm::frame_use::free);
  for (const cm::lease_place& lease : tier.leases)
    for (std::uint64_t at = lease.begin / it.frame.count();
         at < tier.frames && at * it.frame.count() < lease.begin + lease.size; ++at)
      uses[at] = cm::frame_use::leased;
  for (const cm::chunk_snapshot& one : it.chunks) {
    const cm::chunk& place = one.place;
    const std::uint32_t first = where == cm::tier::device ? place.device : place.host;
    if (first == cm::chunk::nowhere) continue;
    cm::frame_use use = cm::frame_use::spare;
    if (where == cm::tier::device) {
      if (place.live > 0 && !place.host_valid) use = cm::frame_use::sole;
      if (place.device_pins > 0) use = cm::frame_use::pinned;
    } else {
      if (place.host_valid && !place.on_device()) use = cm::frame_use::sole;
      if (place.host_pins > 0) use = cm::frame_use::pinned;
    }
    for (std::uint32_t frame = first; frame < first + place.frames; ++frame) uses[frame] = use;
  }
  return uses;
}

void check(const cm::residency_snapshot& it)
{
  for (const cm::tier where : {cm::tier::device, cm::tier::host}) {
    const cm::tier_snapshot& tier = it.tiers[where];
    std::vector<cm::frame_use> told;
    for (const cm::frame_run& run : tier.runs) {
      if (run.first != told.size() || run.frames == 0) FAIL("runs are not all frames in their order");
      if (!told.empty() && told.back() == run.use) FAIL("two runs of one use are neighbours");
      told.insert(told.end(), run.frames, run.use);
    }
    if (told != uses_from_chunks(it, where)) FAIL("runs and chunks disagree on the " << name_of(where));
    if (static_cast<std::uint32_t>(std::count(told.begin(), told.end(), cm::frame_use::free)) != tier.free_frames)
      FAIL("free frames");
    std::uint64_t leased = 0;
    for (const cm::lease_place& lease : tier.leases) leased += lease.size;
    if (leased != tier.leased.count() || tier.leased > tier.most_leased || tier.in_use > tier.peak)
      FAIL("leased bytes");
    if (tier.longest_free > tier.longest_clearable || tier.longest_clearable > tier.frames) FAIL("longest runs");
  }
  std::uint32_t tensors = 0;
  for (std::uint32_t at = 0; at < it.chunks.size(); ++at) {
    const cm::chunk_snapshot& one = it.chunks[at];
    std::uint32_t pins = 0;
    for (std::uint32_t number = one.first_tensor; number < one.first_tensor + one.tensors; ++number) {
      if (it.tensors[number].chunk != at) FAIL("a tensor is told with another chunk");
      pins += it.tensors[number].pins;
    }
    tensors += one.tensors;
    if (pins != one.place.device_pins + one.place.host_pins) FAIL("pins of chunk " << at);
    if ((one.state == cm::tensor_state::compute) != (pins > 0)) FAIL("state of chunk " << at);
  }
  if (tensors != it.tensors.size()) FAIL("a tensor is told with no chunk");
}

template <class Backend>
std::uint64_t walk(Backend& memory, std::uint64_t seed)
{
  const bool asked = seed % 2 == 0;
  cm::manager<Backend> m{memory, {.chunk_bytes = 1_KiB, .error_details = asked}};
  m.use(lists);
  const auto weights = m.template add_stacked<float>(7, {120}, cm::role::parameter);
  const auto wide = m.template add_stacked<float>(2, {600}, cm::role::frozen);  // windows of three frames
  for (std::uint32_t at = 0; at < 7; ++at) m.acquire(weights.slice(at), cm::access::write).release();
  for (std::uint32_t at = 0; at < 2; ++at) m.acquire(wide.slice(at), cm::access::write).release();
  support::dice dice{seed};
  std::vector<typename cm::manager<Backend>::template pin_type<const float>> pins;
  std::vector<cm::lease<typename cm::manager<Backend>::engine_type>> leases;
  std::uint64_t refused = 0;
  for (int call = 0; call < 150; ++call) {
    try {
      const auto what = dice.below(7);
      const cm::at place = dice.below(3) == 0 ? cm::at::host : cm::at::device;
      if (what == 0) pins.clear();
      if (what == 1) leases.clear();
      if (what == 2)
        leases.push_back(
            m.lease(dice.below(2) == 0 ? cm::tier::device : cm::tier::host, cm::bytes{256 + dice.below(3'000)}));
      if (what == 3)
        pins.push_back(
            m.template acquire<float>(weights.slice(dice.below(7)), m.list("momentum"), cm::access::read_write, place));
      if (what == 4) pins.push_back(m.acquire(wide.slice(dice.below(2)), cm::access::read, place));
      if (what > 4)
        pins.push_back(
            m.acquire(weights.slice(dice.below(7)), what == 5 ? cm::access::read : cm::access::write, place));
    } catch (const cm::error& error) {
      if (error.details() != (asked ? to_string(m.residency()) : std::string{}))
        FAIL("details are not of the moment at which it was thrown");
      ++refused;
    }
    check(m.residency());
  }
  return refused;
}

}  // namespace

TEST_CASE("a snapshot agrees with itself, whatever was done and refused before", "[manager]")
{
  std::uint64_t refused = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    arena memory{{.device_capacity = 7_KiB, .host_capacity = 26_KiB}};
    refused += walk(memory, seed);
    support::adversarial hostile{{.device_capacity = 7_KiB, .host_capacity = 26_KiB, .seed = seed}};
    refused += walk(hostile, seed);
    CHECK(hostile.faults().empty());
  }
  CHECK(refused > 100);
}

TEST_CASE("a snapshot says which run could be cleared, and what each tier holds", "[manager]")
{
  arena memory{{.device_capacity = 6_KiB, .host_capacity = 16_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 1_KiB}};
  const auto weights = m.add_stacked<float>(6, {256}, cm::role::frozen);
  m.name(weights.slice(2), "middle");
  for (std::uint32_t at = 0; at < 5; ++at) m.acquire(weights.slice(at), cm::access::write).release();
  const auto pin = m.acquire(weights.slice(2), cm::access::read);
  auto lease = m.lease(cm::tier::device, 512_B);
  auto now = m.residency();
  const cm::tier_snapshot& device = now.tiers[cm::tier::device];
  REQUIRE(device.frames == 6);
  CHECK(device.free_frames == 0);
  CHECK(device.longest_free == 0);
  CHECK(device.longest_clearable == 2);  // frames 0 and 1 below the pin; 3 and 4 between it and the lease
  CHECK(device.runs.size() == 4);
  CHECK(device.runs[1].use == cm::frame_use::pinned);
  CHECK(device.runs[2].frames == 2);
  CHECK(device.runs[3].use == cm::frame_use::leased);
  CHECK(device.leased == 512_B);
  CHECK(device.in_use == 5_KiB + 512_B);
  REQUIRE(device.leases.size() == 1);
  CHECK(device.leases[0].begin == 5'632);
  CHECK(now.chunks[2].tensors == 1);
  CHECK(now.tensors[now.chunks[2].first_tensor].name == "middle");
  CHECK(now.tensors[now.chunks[2].first_tensor].pins == 1);
  CHECK(now.chunks[2].state == cm::tensor_state::compute);
  CHECK(now.chunks[2].part == cm::role::frozen);
  CHECK(now.chunks[5].state == cm::tensor_state::free);
  lease.release();
  now = m.residency();
  CHECK(now.tiers[cm::tier::device].longest_clearable == 3);
  CHECK(now.tiers[cm::tier::device].most_leased == 512_B);
  CHECK(now.tiers[cm::tier::device].leases.empty());
}

}  // namespace take_snapshot_test
