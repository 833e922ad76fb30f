// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/nccl_api.hpp>

#include <collective/nccl_rig.hpp>

namespace nccl_api_test {

static_assert(chunkmem::nccl_api<support::fake_nccl>);
static_assert(!chunkmem::nccl_api<int>);

}  // namespace nccl_api_test
