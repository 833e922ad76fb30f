// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checks/full_checks.hpp>

#include <support/catch.hpp>
#include <support/train_on_ranks.hpp>

namespace ranks_test {

namespace cm = chunkmem;
using namespace support::ranks;

TEST_CASE("ranks over threads train under checks::full without a complaint, with the bits of one rank", "[checks]")
{
  job wanted;
  wanted.is_tight = true;
  const std::vector<std::string> nothing(wanted.ranks);
  CHECK(train<float, cm::checks::full>(wanted) == nothing);
  CHECK(train<cm::bf16, cm::checks::full>(wanted) == nothing);
}

}  // namespace ranks_test
