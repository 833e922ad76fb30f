// SPDX-License-Identifier: Apache-2.0
// Prints a fingerprint of every kernel on every kind of parameter. Built several times, with flags that must not
// matter; compare.cmake compares what the builds print.
#include "numerics_cases.hpp"

#include <cinttypes>
#include <cstdio>

int main()
{
  using chunkmem::optimizer::instruction_set;
  chunkmem::serial alone;
  for (const instruction_set set : chunkmem::optimizer::instruction_sets) {
    if (!chunkmem::optimizer::is_available(set)) continue;
    numerics_cases::run_all<chunkmem::optimizer::numerics::version_3>(
        set, 1'100, 3, alone, [&](const std::string& name, std::uint64_t print) {
          std::printf("%s %s %016" PRIx64 "\n", name_of(set).data(), name.c_str(), print);
        });
  }
  return 0;
}
