#include "second_chance.hpp"

#include "usual_training.hpp"

#include <conformance/eviction_policy.hpp>

using namespace chunkmem;

TEST_CASE("second_chance keeps the laws of an eviction policy")
{
  conformance::eviction_policy_laws<second_chance>();
}

TEST_CASE("second_chance passes over what was used since its last round")
{
  const auto of = [](std::uint32_t chunk) { return eviction::candidate{chunk_id{chunk}, moment::none, 1, false}; };
  second_chance policy;
  policy.reset(4);
  for (std::uint32_t chunk = 0; chunk < 4; ++chunk) policy.enter(of(chunk));
  REQUIRE(policy.victim(moment{0}) == chunk_id{0});  // all were used: after one round the first goes
  policy.leave(of(0));
  policy.leave(of(1));  // is used once more
  policy.enter(of(1));
  REQUIRE(policy.victim(moment{0}) == chunk_id{2});
  policy.leave(of(2));
  CHECK(policy.victim(moment{0}) == chunk_id{3});
  policy.leave(of(3));
  CHECK(policy.victim(moment{0}) == chunk_id{1});
}

TEST_CASE("with second_chance a model trains to the same bits")
{
  const trained mine = train_with<second_chance>();
  CHECK(usual_training().left.difference(mine.left) == "");
  CHECK(mine.moved.evictions > 0);
}
