// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

#include <support/every_policy.hpp>

namespace support {

/// A manager whose policies are chosen when the program runs: tests of several policies need one type of manager.
///
///     chosen_manager m = chosen_by(memory, {.chunk_bytes = 4_KiB}, {.placement = "device_margin"});
using chosen_manager =
    chunkmem::manager<chunkmem::backend::host_arena, every_eviction, every_layout, every_placement, every_transfer>;

[[nodiscard]] inline chosen_manager chosen_by(chunkmem::backend::host_arena& memory,
                                              const chunkmem::manager_options& options, const policy_names& by)
{
  return chosen_manager{memory,
                        options,
                        every_eviction{by.eviction},
                        every_layout{by.layout},
                        every_placement{by.placement},
                        every_transfer{by.transfer}};
}

}  // namespace support
