// SPDX-License-Identifier: Apache-2.0
// Prints a fingerprint of every kernel on every kind of parameter. Built several times, with flags that must not
// matter; compare_builds.cmake compares the output of the builds.
#include "numerics_cases.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

/// The argument is the number of elements of each case.
int main(int count, char** words)
{
  const std::size_t elements = count > 1 ? std::strtoull(words[1], nullptr, 10) : 1'100;
  using chunkmem::optimizer::instruction_set;
  chunkmem::serial alone;
  for (const instruction_set set : chunkmem::optimizer::instruction_sets) {
    if (!chunkmem::optimizer::is_available(set)) continue;
    numerics_cases::run_all<chunkmem::optimizer::numerics::version_3>(
        set, elements, 3, alone, [&](const std::string& name, std::uint64_t print) {
          std::printf("%s %s %016" PRIx64 "\n", name_of(set).data(), name.c_str(), print);
        });
  }
  return 0;
}
