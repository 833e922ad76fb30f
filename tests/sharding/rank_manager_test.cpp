// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/rank_manager.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/manager/residency_snapshot.hpp>
#include <chunkmem/sharding/gathering.hpp>

#include <support/catch.hpp>
#include <support/told_gatherer.hpp>

#include <cstdint>
#include <vector>

namespace rank_manager_test {

using namespace chunkmem;
using sharding::share_run;
using manager_type = sharding::rank_manager<manager<backend::host_arena, sharding::gathering<collective::self>>>;

/// One gathered chunk of 64 floats and its share, which is all of it.
struct rig {
  static constexpr bytes frame{256};
  backend::host_arena memory;
  collective::self ranks;
  manager_type m;
  tensor<std::uint8_t> whole;
  tensor<float> share;
  tensor<float> other;

  explicit rig(std::uint64_t frames = 8)
      : memory{{.device_capacity = frame * frames, .host_capacity = frame * 8}},
        m{memory, {.chunk_bytes = frame}, sharding::gathering<collective::self>{ranks, memory.adopt()}}
  {
    whole = m.add_gathered(frame.count(), 3, false);
    share = m.add<float>({64}, role::parameter);
    other = m.add<float>({64}, role::activation);
    m.derive(whole, share, 0);
  }
  void write(float value, memory_location place)
  {
    const auto changes = m.change(whole);
    const auto pin = m.acquire(share, access::write, place);
    for (float& it : pin.span()) it = value;
  }
  float first()
  {
    const auto pin = m.acquire(whole, access::read);
    return *reinterpret_cast<const float*>(pin.data());
  }
};

TEST_CASE("a gathered chunk is made from its share, wherever that lies, and made again after a change", "[sharding]")
{
  rig it;
  it.write(1.5F, memory_location::host);
  CHECK(it.first() == 1.5F);
  it.write(2.5F, memory_location::device);
  CHECK(it.first() == 2.5F);
  it.write(3.5F, memory_location::host);
  CHECK(it.first() == 3.5F);
  CHECK(it.first() == 3.5F);
  CHECK(it.m.report().loads == 3);  // the last read found it whole
}

TEST_CASE("a gathered chunk takes no frame of the host, and leaves the device without a copy", "[sharding]")
{
  rig it{1};
  it.write(1.5F, memory_location::host);
  CHECK(it.first() == 1.5F);
  for (int again = 0; again < 3; ++again) {
    {
      const auto pin = it.m.acquire(it.other, access::write);
    }
    it.m.drop(it.other);
    CHECK(it.first() == 1.5F);
  }
  CHECK(it.m.report().in_use[tier::host] == rig::frame);  // the share alone
  CHECK(it.m.report().write_backs == 0);
  CHECK(to_string(it.m.residency()).find("host share elsewhere") != std::string::npos);
}

TEST_CASE("a share cannot change while its whole is in use, nor a whole be read before its share is filled",
          "[sharding]")
{
  rig it;
  CHECK_THROWS_AS(it.first(), usage_error);
  it.write(1.5F, memory_location::host);
  const auto pin = it.m.acquire(it.whole, access::read);
  CHECK_THROWS_AS(it.m.change(it.whole), usage_error);
}

TEST_CASE("an update visits the runs of a share that have a gradient, under the names that one rank has for them",
          "[sharding]")
{
  rig it;
  it.m.divide(it.share, {{0, 16, 7, 4096, true}, {16, 16, 8, 0, false}, {32, 32, 9, 0, true}});
  std::vector<float> values(64);
  optimizer::parameter_bytes all;
  all.value = reinterpret_cast<std::byte*>(values.data());
  all.gradient = all.value;
  all.elements = 64;
  all.tensor = index_of(it.share.id);
  std::vector<optimizer::parameter_bytes> visited;
  it.m.for_each_run(all, [&](const optimizer::parameter_bytes& run) { visited.push_back(run); });
  REQUIRE(visited.size() == 2);
  CHECK((visited[0].value == all.value && visited[0].elements == 16 && visited[0].tensor == 7 &&
         visited[0].first == 4096));
  CHECK((visited[1].value == all.value + 128 && visited[1].gradient == all.gradient + 128 &&
         visited[1].elements == 32 && visited[1].tensor == 9));
  all.fresh_master = true;
  CHECK_THROWS_AS(it.m.for_each_run(all, [](const optimizer::parameter_bytes&) {}), usage_error);
}

namespace {

using told_type = sharding::rank_manager<manager<backend::host_arena, support::told_gatherer>>;

/// A rank of four that owns the third quarter of two wholes.
struct told_rig {
  static constexpr bytes frame{256};
  backend::host_arena memory{{.device_capacity = frame * 8, .host_capacity = frame * 8}};
  support::told_of_ranks told;
  told_type m{memory, {.chunk_bytes = frame}, support::told_gatherer{{}, &told, memory.adopt()}};
  std::vector<tensor<std::uint8_t>> wholes;
  std::vector<tensor<float>> shares;
  tensor<float> gradients;

  told_rig()
  {
    for (const std::uint32_t label : {30U, 31U}) {
      wholes.push_back(m.add_gathered(frame.count(), label, false));
      shares.push_back(m.add<float>({16}, role::parameter));
      m.derive(wholes.back(), shares.back(), 128);
    }
    gradients = m.add<float>({64}, role::activation);
    for (std::size_t index = 0; index < wholes.size(); ++index) {
      const auto changes = m.change(wholes[index]);
      for (float& it : m.acquire(shares[index], access::write, memory_location::host).span())
        it = static_cast<float>(index + 1);
    }
  }
};

}  // namespace

TEST_CASE("ranks gather by label, and a share lies where it was said to", "[sharding]")
{
  told_rig it;
  for (const std::size_t index : {1U, 0U}) {
    const auto pin = it.m.acquire(it.wholes[index], access::read);
    const auto* const values = reinterpret_cast<const float*>(pin.data());
    CHECK((values[32] == static_cast<float>(index + 1) && values[47] == static_cast<float>(index + 1)));
  }
  CHECK(it.told.gathered() == std::vector<std::uint32_t>{31, 30});
}

TEST_CASE("a sum over ranks is that of one chunk under its label, and of none in a rehearsal", "[sharding]")
{
  told_rig it;
  const auto sum = [&] {
    const auto pin = it.m.acquire(it.gradients, access::write);
    it.m.sum_over_ranks(it.gradients, 9, {dtype::float32, 0.25F});
  };
  sum();
  REQUIRE(it.told.sums.size() == 1);
  CHECK((it.told.sums[0].label == 9 && it.told.sums[0].size == 256 && it.told.sums[0].how.type == dtype::float32 &&
         it.told.sums[0].how.scale == 0.25F));
  it.m.drop(it.gradients);
  (void)it.m.rehearse([&] {
    sum();
    it.m.drop(it.gradients);
  });
  CHECK(it.told.sums.size() == 1);
}

}  // namespace rank_manager_test
