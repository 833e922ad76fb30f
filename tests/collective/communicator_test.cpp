// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/communicator.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/self.hpp>
#include <support/catch.hpp>

namespace communicator_test {

using namespace chunkmem;

/// What is not asked for by the laws: a rank that cannot give up.
struct cannot_revoke : collective::self {
  void revoke() noexcept = delete;
};
struct unnamed : collective::self {
  static constexpr int name = 1;
};

TEST_CASE("a communicator has a name, its kind and every operation", "[collective]")
{
  STATIC_REQUIRE(communicator<collective::self, backend::host_arena>);
  STATIC_REQUIRE_FALSE(communicator<cannot_revoke, backend::host_arena>);
  STATIC_REQUIRE_FALSE(tells_failure<cannot_revoke>);
  STATIC_REQUIRE_FALSE(communicator<unnamed, backend::host_arena>);
  STATIC_REQUIRE_FALSE(communicator<int, backend::host_arena>);
}

}  // namespace communicator_test
