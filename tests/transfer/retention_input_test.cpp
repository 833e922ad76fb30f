// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/record_uses.hpp>

#include <chunkmem/transfer/retention_problem.hpp>
#include <support/catch.hpp>
#include <support/oracles/retention_trace.hpp>

namespace retention_input_test {

using namespace chunkmem;
using transfer::use_kind;

TEST_CASE("reads, updates and overwrites take room on the device, and nothing else does", "[transfer]")
{
  for (const use_kind kind : {use_kind::read, use_kind::update, use_kind::overwrite, use_kind::host_read,
                              use_kind::host_update, use_kind::host_overwrite, use_kind::drop}) {
    support::retention_trace what{{7}, {}, {9, 9, 9}, true};
    what.use(0, 1, kind);
    const transfer::residency_intervals found{what.input()};
    const std::uint64_t expected =
        kind == use_kind::read || kind == use_kind::update || kind == use_kind::overwrite ? 7 : 0;
    CHECK(transfer::is_on_device(kind) == (expected > 0));
    CHECK(found.used_bytes()[0] == 0);
    CHECK(found.used_bytes()[1] == expected);
    CHECK(found.used_bytes()[2] == 0);
  }
}

}  // namespace retention_input_test
