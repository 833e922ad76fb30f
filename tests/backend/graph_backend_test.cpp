// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/stream_backend.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <conformance/graph_backend.hpp>
#include <support/catch.hpp>
#include <support/fake_device.hpp>

namespace graph_backend_test {

using namespace chunkmem;
using support::fake_device;

static_assert(graph_backend<fake_device>);
static_assert(!graph_backend<backend::host_arena>);

TEST_CASE("a CUDA device keeps the laws of a graph backend, whenever the runtime works", "[backend]")
{
  for (const auto when :
       {support::fake_schedule::latest, support::fake_schedule::earliest, support::fake_schedule::random}) {
    for (std::uint64_t seed = 1; seed <= (when == support::fake_schedule::random ? 5U : 1U); ++seed) {
      INFO("schedule " << static_cast<int>(when) << ", seed " << seed);
      conformance::graph_backend_laws<fake_device>([&](bytes device, bytes host) {
        return fake_device{
            support::fake_device_options{.device_capacity = device, .host_capacity = host, .when = when, .seed = seed}};
      });
    }
  }
}

}  // namespace graph_backend_test
