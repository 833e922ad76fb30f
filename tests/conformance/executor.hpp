// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/executor.hpp>
#include <support/catch.hpp>

#include <vector>

namespace conformance {

/// The laws of executor: every part once, all over and visible at the end, whatever the number of parts.
template <chunkmem::executor Executor>
void executor_laws(Executor& workers)
{
  CHECK(workers.threads() >= 1);
  for (const unsigned parts : {0U, 1U, 2U, 3U, 7U, 64U, 1000U}) {
    std::vector<unsigned> seen(parts + 1, 0);
    workers.run(parts, [&seen](unsigned part) { seen[part] += part + 1; });
    bool right = seen[parts] == 0;
    for (unsigned part = 0; part < parts; ++part) right = right && seen[part] == part + 1;
    INFO("parts " << parts);
    CHECK(right);
  }
  unsigned sum = 0;
  void (*none)(unsigned) = [](unsigned) {};
  workers.run(3, none);
  auto one_by_one = [&sum](unsigned part) mutable { sum += part + 5; };
  workers.run(1, one_by_one);
  CHECK(sum == 5);
}

}  // namespace conformance
