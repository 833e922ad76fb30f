// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/share_runs.hpp>

#include <support/catch.hpp>

#include <cstddef>
#include <vector>

namespace share_runs_test {

using namespace chunkmem;
using optimizer::parameter_bytes;

namespace {

constexpr tensor_handle share{tensor_id{2}, 1};

struct rig {
  rig() { runs.divide(share, {{0, 16, 7, 4096, true}, {16, 16, 8, 0, false}, {32, 32, 9, 0, true}}); }
  parameter_bytes bytes()
  {
    parameter_bytes all;
    all.value = reinterpret_cast<std::byte*>(values.data());
    all.gradient = all.value;
    all.elements = values.size();
    all.tensor = index_of(share.id);
    return all;
  }
  std::vector<float> values = std::vector<float>(64);
  sharding::share_runs runs;
};

}  // namespace

TEST_CASE("an update visits the runs of a share that have a gradient, under the names that one rank has for them",
          "[sharding]")
{
  rig it;
  const parameter_bytes all = it.bytes();
  std::vector<parameter_bytes> visited;
  std::vector<parameter_bytes> remade;
  const auto visit = [&] {
    visited.clear();
    it.runs.for_each(
        all, [&](const parameter_bytes& run) { visited.push_back(run); },
        [&](const parameter_bytes& run) { remade.push_back(run); });
  };
  visit();
  CHECK(remade.empty());
  REQUIRE(visited.size() == 2);
  CHECK((visited[0].value == all.value && visited[0].elements == 16 && visited[0].tensor == 7 &&
         visited[0].first == 4096));
  CHECK((visited[1].value == all.value + 128 && visited[1].gradient == all.gradient + 128 &&
         visited[1].elements == 32 && visited[1].tensor == 9));
  it.runs.lends(share);  // the gradient of the share may lie in its bytes
  visit();
  CHECK(visited.size() == 2);
  REQUIRE(remade.size() == 1);
  CHECK((remade[0].value == all.value + 64 && remade[0].elements == 16 && remade[0].tensor == 8));
}

TEST_CASE("runs of a share whose master is still to be made are not updated", "[sharding]")
{
  rig it;
  parameter_bytes all = it.bytes();
  all.fresh_master = true;
  const auto nothing = [](const parameter_bytes&) {};
  CHECK_THROWS_AS(it.runs.for_each(all, nothing, nothing), usage_error);
}

TEST_CASE("a share is overwritten where all ranks say so, whatever it has itself, or where it lends its bytes",
          "[sharding]")
{
  rig it;
  it.runs[share][1].has_gradient = true;
  CHECK_FALSE(it.runs.is_overwritten(share));
  it.runs.overwrites(share, true);
  CHECK(it.runs.is_overwritten(share));
  it.runs.overwrites(share, false);
  it.runs.lends(share);
  CHECK(it.runs.is_overwritten(share));
}

}  // namespace share_runs_test
