// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/eviction/evictions.hpp>

namespace support {

/// Every eviction policy, chosen when the program runs, so that a matrix of tests needs one type of manager.
using every_eviction =
    chunkmem::eviction::any_eviction<chunkmem::eviction::lru, chunkmem::eviction::belady, chunkmem::eviction::fifo,
                                     chunkmem::eviction::list_order, chunkmem::eviction::cost_aware>;

}  // namespace support
