#include <chunkmem/transfer/lookahead.hpp>

#include <conformance/transfer_policy.hpp>
#include <support/catch.hpp>

using namespace chunkmem;

TEST_CASE("lookahead keeps the laws of a transfer policy and starts copies early", "[transfer]")
{
  CHECK(conformance::transfer_policy_laws<transfer::lookahead>() > 200);
}
