// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/nccl_registration.hpp>

#include <collective/nccl_rig.hpp>

namespace nccl_registration_test {

using namespace nccl_rig;

TEST_CASE("memory is told to NCCL once and forgotten once", "[collective]")
{
  const outcome end = run(2, [](rank_rig& rig) {
    const collective::nccl_registration told{rig.all, rig.place, bytes{4096}};
    rig.all.barrier(rig.gpu, agent::compute, 1);
  });
  for (const auto& it : end.world->members) CHECK(it.enrolled == 0);
  CHECK(end.world->misuses == 0);
}

}  // namespace nccl_registration_test
