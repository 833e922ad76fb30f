// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/nccl_session.hpp>

#include <collective/nccl_rig.hpp>

namespace nccl_session_test {

using namespace nccl_rig;

TEST_CASE("revoke and check at once abort exactly once", "[collective]")
{
  for (int round = 0; round < 20; ++round) {
    const outcome end = run(1, [](rank_rig& rig) {
      std::thread other{[&] { rig.all.revoke(); }};
      try {
        for (;;) rig.all.check();
      } catch (const comm_error& error) {
        CHECK(error.fault().failure == comm_failure::revoked);
      }
      other.join();
    });
    CHECK(end.world->aborts == 1);
    CHECK(end.world->destroys == 0);
    CHECK(end.world->misuses == 0);
  }
}

}  // namespace nccl_session_test
