// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/bytes.hpp>

#include <cstdio>

using namespace chunkmem::literals;

// A user's program: sizes add up, and a sum that does not fit says so.
int main()
{
  if (64_MiB + 1_KiB != chunkmem::bytes{67'109'888}) return 1;
  if (align_up(1_B, chunkmem::tensor_alignment) != 256_B) return 2;
  try {
    const auto total = chunkmem::bytes{UINT64_MAX} + 1_B;
    std::printf("wrapped to %llu\n", static_cast<unsigned long long>(total.count()));
    return 3;
  } catch (const chunkmem::size_overflow& e) {
    std::puts(e.what());
  }
  return 0;
}
