// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/chunk_mover.hpp>

#include <conformance/chunk_mover.hpp>
#include <support/catch.hpp>
#include <support/oracles/listening_backend.hpp>

#include <vector>

namespace chunk_mover_test {

using namespace chunkmem;

namespace {

using support::listening_backend;

/// The functions of the concept and nothing else.
struct archetype {
  using policy_kind = mover_kind;
  static constexpr std::string_view name = "archetype";
  void bring(listening_backend&, std::byte*, const std::byte*, bytes, agent) {}
  void take(listening_backend&, std::byte*, const std::byte*, bytes, agent) {}
};
static_assert(chunk_mover<archetype, listening_backend> && chunk_mover<copy_mover, listening_backend>);

struct without_take : archetype {
  void take(listening_backend&, std::byte*, const std::byte*, bytes, agent) = delete;
};
struct of_another_kind : archetype {
  using policy_kind = transfer_kind;
};
static_assert(!chunk_mover<without_take, listening_backend> && !chunk_mover<of_another_kind, listening_backend>);

}  // namespace

TEST_CASE("the default mover is one copy each way, on the agent it is told", "[manager]")
{
  listening_backend backend;
  std::byte device[4]{};
  std::byte host[4]{};
  copy_mover mover;
  mover.bring(backend, device, host, bytes{4}, agent::to_device);
  mover.take(backend, host, device, bytes{3}, agent::to_host);
  REQUIRE(backend.heard.size() == 2);
  CHECK(backend.heard[0] == support::copied(agent::to_device, device, host, 4));
  CHECK(backend.heard[1] == support::copied(agent::to_host, host, device, 3));
}

TEST_CASE("the default mover keeps the laws of a mover", "[manager]")
{
  conformance::chunk_mover_laws<copy_mover>();
}

}  // namespace chunk_mover_test

namespace gathering_mover_test {

using namespace chunkmem;

struct archetype {
  using policy_kind = mover_kind;
  static constexpr std::string_view name = "archetype";
  void bring(support::listening_backend&, std::byte*, const std::byte*, bytes, agent) {}
  void take(support::listening_backend&, std::byte*, const std::byte*, bytes, agent) {}
  agent worker() const noexcept { return agent::to_device; }
  agent worker_of_sums() const noexcept { return agent::to_device; }
  agent worker_of_shares() const noexcept { return agent::to_device; }
  void gather(support::listening_backend&, std::byte*, bytes, std::uint32_t) {}
  void sum(support::listening_backend&, std::byte*, bytes, std::uint32_t, collective::sum) {}
  void await(support::listening_backend&, event) {}
  void check() {}
};
struct without_sum : archetype {
  void sum(support::listening_backend&, std::byte*, bytes, std::uint32_t, collective::sum) = delete;
};
static_assert(gathering_mover<archetype, support::listening_backend>);
static_assert(!gathering_mover<without_sum, support::listening_backend> &&
              !gathering_mover<copy_mover, support::listening_backend>);

TEST_CASE("shares are found by their chunk, in order, and runs that follow each other are one", "[manager]")
{
  // whole, chunk, offset, begin, size
  const chunk_shares shares{{{chunk_id{7}, chunk_id{1}, 512, 768, 256},
                             {chunk_id{7}, chunk_id{1}, 0, 256, 256},
                             {chunk_id{7}, chunk_id{1}, 256, 512, 256},
                             {chunk_id{9}, chunk_id{1}, 0, 0, 64},
                             {chunk_id{7}, chunk_id{2}, 0, 1024, 128},
                             {chunk_id{7}, chunk_id{2}, 128, 2048, 128}},
                            {0, 0, 0, 0, 0, 0, 0, 70, 0, 90}};
  const std::vector<chunk_share> of_seven{shares.of(chunk_id{7}).begin(), shares.of(chunk_id{7}).end()};
  CHECK(of_seven == std::vector<chunk_share>{{chunk_id{7}, chunk_id{1}, 0, 256, 768},
                                             {chunk_id{7}, chunk_id{2}, 0, 1024, 128},
                                             {chunk_id{7}, chunk_id{2}, 128, 2048, 128}});
  CHECK(shares.of(chunk_id{9}).size() == 1);
  CHECK(shares.of(chunk_id{8}).empty());
  CHECK(shares.label_of(chunk_id{7}) == 70);
  CHECK(shares.label_of(chunk_id{9}) == 90);
  CHECK(chunk_shares{}.of(chunk_id{0}).empty());
  CHECK(chunk_shares{{}, {}}.of(chunk_id{0}).empty());
}

TEST_CASE("runs are joined only where both places go on, in one chunk of each kind", "[manager]")
{
  const sequence<chunk_share> apart[] = {
      {{chunk_id{7}, chunk_id{1}, 0, 0, 256}, {chunk_id{7}, chunk_id{2}, 256, 256, 256}},   // another chunk keeps it
      {{chunk_id{7}, chunk_id{1}, 0, 0, 256}, {chunk_id{8}, chunk_id{1}, 256, 256, 256}},   // it belongs to another
      {{chunk_id{7}, chunk_id{1}, 0, 0, 256}, {chunk_id{7}, chunk_id{1}, 512, 256, 256}},   // a gap where it is kept
      {{chunk_id{7}, chunk_id{1}, 0, 0, 256}, {chunk_id{7}, chunk_id{1}, 256, 512, 256}}};  // a gap in the whole
  for (const auto& runs : apart) {
    const chunk_shares shares{runs, sequence<std::uint32_t>(9, 0)};
    sequence<chunk_share> all{shares.of(chunk_id{7})};
    all.append(shares.of(chunk_id{8}));
    CHECK(all == runs);
  }
}

}  // namespace gathering_mover_test
