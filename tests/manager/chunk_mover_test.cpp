// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/chunk_mover.hpp>

#include <conformance/chunk_mover.hpp>
#include <support/catch.hpp>
#include <support/oracles/listening_backend.hpp>

namespace chunk_mover_test {

using namespace chunkmem;

namespace {

using support::listening_backend;

/// No more than the concept asks for.
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
