// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

namespace support {

/// True under qemu-user, where the preset aarch64 runs its tests: qemu loses its own threads in a fork.
[[nodiscard]] inline bool is_emulated() noexcept
{
  return std::getenv("CHUNKMEM_EMULATED") != nullptr;
}

}  // namespace support
