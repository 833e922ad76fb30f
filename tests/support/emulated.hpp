// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

namespace support {

/// The tests of the preset aarch64 run under qemu-user, which loses its own threads in a fork.
[[nodiscard]] inline bool is_emulated() noexcept
{
  return std::getenv("CHUNKMEM_EMULATED") != nullptr;
}

}  // namespace support
