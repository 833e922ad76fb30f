// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/simulated_ranks.hpp>

#include <support/catch.hpp>

namespace collective_counts_test {

using chunkmem::collective::collective_counts;
using chunkmem::collective::operation;

TEST_CASE("counts are kept by operation and add up", "[collective]")
{
  collective_counts counts;
  counts[operation::all_gather] += {1, 2, 3, 4};
  counts[operation::exchange] += {10, 20, 30, 40};
  counts[operation::all_gather] += {100, 200, 300, 400};
  CHECK(counts[operation::all_gather] == collective_counts::entry{101, 202, 303, 404});
  CHECK(counts[operation::barrier] == collective_counts::entry{});
  CHECK(counts.total() == collective_counts::entry{111, 222, 333, 444});
  CHECK(!(counts == collective_counts{}));
}

}  // namespace collective_counts_test
