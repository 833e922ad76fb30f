// SPDX-License-Identifier: Apache-2.0
#include "precision_run.hpp"

#include <support/catch.hpp>
#include <support/fake_device.hpp>

namespace precision_cuda_test {

using namespace precision;
using support::fake_device;

namespace {

/// A row of the matrix with its kernels on streams: the calling thread cannot read this device.
setting launched(setting it)
{
  it.at[setting::place] |= 1U;
  return it;
}

int run_rows(const std::vector<setting>& rows)
{
  int runs = 0;
  for (const setting& row : rows) {
    const setting it = launched(row);
    INFO(it.name());
    const auto turn = static_cast<std::uint64_t>(runs++);
    REQUIRE(it.launched());
    CHECK(run_on<fake_device>(it, support::fake_device_options{.when = static_cast<support::fake_schedule>(turn % 3),
                                                               .seed = 1 + turn}) == "");
  }
  return runs;
}

}  // namespace

TEST_CASE("training in any precision on a CUDA runtime equals training on vectors", "[equality]")
{
  CHECK(run_rows(pairwise_cover()) >= 20);
}

TEST_CASE("so it does on a CUDA runtime in every combination", "[equality][.slow]")
{
  std::vector<setting> rows;
  for (const setting& it : all_settings())
    if (!it.is_refused() && it.launched()) rows.push_back(it);
  CHECK(run_rows(rows) == 1920);
}

}  // namespace precision_cuda_test
