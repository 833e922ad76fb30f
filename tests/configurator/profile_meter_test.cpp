// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/planned_activations.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/model_profile.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/profile_chain.hpp>
#include <chunkmem/configurator/profile_meter.hpp>
#include <chunkmem/configurator/step_latency.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <support/catch.hpp>

#include "usual_node.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace profile_meter_test {

using namespace chunkmem;
using namespace chunkmem::configurator;
using Catch::Matchers::ContainsSubstring;

namespace {

using manager_type = manager<backend::simulated>;
using meter_type = profile_meter<manager_type>;

constexpr std::uint64_t forward_ns = 2'000, backward_ns = 5'000;  // of part 0; part n takes n + 1 times as long

/// A table, a layer and a head that has the table too. Loads and write-backs take long, on a device of four chunks.
struct small_trainer {
  static constexpr std::size_t parts = 3;

  small_trainer()
  {
    for (const auto& each : {table, weights[0], weights[1]}) make(each);
  }

  void run(meter_type& meter, bool runs_again = false)
  {
    auto iteration = m.iteration(micro_batches);
    for (std::uint32_t which = 0; which < micro_batches; ++which) {
      iteration.pass(pass::forward, which);
      for (std::size_t part = 0; part < parts; ++part) forward(meter, part);
      iteration.pass(pass::backward, which);
      for (std::size_t part = parts; part-- > 0;) {
        backward(meter, part);
        if (runs_again && part == 2) forward(meter, 2);
      }
    }
  }

  backend::simulated memory{{.device_capacity = 16_KiB,
                             .host_capacity = 1_MiB,
                             .costs = {.to_device = {.latency_nanoseconds = 0, .bytes_per_second = 1e6},
                                       .to_host = {.latency_nanoseconds = 0, .bytes_per_second = 1e6}}}};
  manager_type m{memory, {.chunk_bytes = 4_KiB}};
  tensor<float> table = m.add<float>({900}, role::parameter);
  std::vector<tensor<float>> weights{m.add<float>({1000}, role::parameter), m.add<float>({90}, role::frozen)};
  std::vector<tensor<float>> outputs{m.add<float>({64}, role::activation), m.add<float>({128}, role::activation)};
  tensor<float> inner = m.add<float>({800}, role::activation);
  tensor<float> slope = m.add<float>({128}, role::activation);  // goes from part to part backward
  tensor<float> own = m.add<float>({40}, role::activation);     // of a forward run alone
  static constexpr std::uint32_t micro_batches = 2;

 private:
  void take(std::uint64_t nanoseconds) { memory.advance(agent::host, nanoseconds); }
  void use(tensor<float> which) { const auto pin = m.acquire(which, access::read); }
  void make(tensor<float> which) { const auto pin = m.acquire(which, access::write); }

  void forward(meter_type& meter, std::size_t part)
  {
    const auto running = meter.during(part, profiled_run::forward);
    if (part == 0 || part == 2) use(table);
    if (part == 1)
      for (const auto& each : weights) use(each);
    if (part > 0) use(outputs[part - 1]);
    if (part < 2) make(outputs[part]);
    if (part == 1) {
      make(inner);
      make(own);
      const auto scratch = m.lease(tier::device, bytes{512});
      use(own);
      m.drop(own);
    }
    if (part == 2) held = m.lease(tier::device, bytes{1024});
    take(forward_ns * (part + 1));
  }
  void backward(meter_type& meter, std::size_t part)
  {
    const auto running = meter.during(part, profiled_run::backward);
    if (part == 2) {
      const auto scratch = m.lease(tier::device, bytes{768});
      use(outputs[1]);
      use(table);
      make(slope);
      held = {};
    } else {
      use(slope);
      if (part == 1) {
        use(inner);
        m.drop(inner);
        for (const auto& each : weights) use(each);
      }
      m.drop(outputs[part]);
      if (part == 0) m.drop(slope);
    }
    take(backward_ns * (part + 1));
  }

  decltype(std::declval<manager_type&>().lease(tier::device, bytes{1})) held;
};

std::vector<profiled_part> names()
{
  return {{.name = "table", .layers = 0}, {.name = "layer"}, {.name = "head", .layers = 0}};
}

model_profile measured(std::uint64_t rows = 1, std::string kind = "here")
{
  small_trainer it;
  meter_type meter{it.m, small_trainer::parts};
  for (int iteration = 0; iteration < 4; ++iteration) {
    it.run(meter);
    meter.end_iteration();
  }
  CHECK(it.m.report().stalls.seconds() > 0);  // seconds have no waits, and there were some
  return meter.profile({.name = "small", .kind = std::move(kind), .rows = rows, .input_of_row = bytes{8}}, names());
}

}  // namespace

TEST_CASE("a profile of iterations has the seconds that runs took, without waits", "[configurator]")
{
  const model_profile found = measured();
  for (std::size_t part = 0; part < 3; ++part) {
    const double times = static_cast<double>(part + 1) * 1e-9;
    const run_seconds seconds = found.seconds("here", part, 1, 1);
    CHECK(seconds.forward == Catch::Approx(forward_ns * times));
    CHECK(seconds.backward_input == Catch::Approx(backward_ns / 2 * times));
    CHECK(seconds.backward_weight == Catch::Approx(backward_ns / 2 * times));
  }
}

TEST_CASE("a profile of iterations has the bytes of a micro-batch", "[configurator]")
{
  const model_profile found = measured();
  CHECK(found.weights == std::vector<profiled_weights>{{1, {{900}, {1000, 90}, {900}}}});
  CHECK(found.tie == profiled_tie{.first_part = 0, .last_part = 2, .elements = 900});
  REQUIRE(found.sizes.size() == 1);
  CHECK(found.sizes.front().boundary == std::vector<std::uint64_t>{64 * 4, 128 * 4, 0});
  CHECK(found.sizes.front().saved == std::vector<std::uint64_t>{0, 800 * 4, 1024});
  CHECK(found.sizes.front().transient == std::vector<std::uint64_t>{0, 512 + 40 * 4, 768});
}

TEST_CASE("a step of a plan takes the seconds of the iterations that were measured", "[configurator]")
{
  cluster whole{.name = "one", .nodes = {support::usual_node("here", 1)}, .links = link_matrix{1, {0, 1e12}}};
  whole.nodes.front().device_updates_per_second = 1e14;
  parallel_plan plan{.micro_batches = 5};
  plan.devices = {0};
  const double seconds = 5 * 6 * (forward_ns + backward_ns) * 1e-9;
  CHECK(step_latency{whole, trained_model{measured()}}.of(plan).step == Catch::Approx(seconds).epsilon(0.01));
}

TEST_CASE("planners of activations take the chain of a profile", "[configurator][activation]")
{
  const activation::layer_chain chain = chain_of(measured(2), "here", 4);  // proportional to rows
  REQUIRE(chain.size() == 3);
  CHECK(chain.input == bytes{32});
  CHECK(chain.blocks[1].saved == bytes{2 * 4 * (800 + 128)});
  CHECK(chain.blocks[1].boundary == bytes{2 * 4 * 128});
  CHECK(chain.unlimited_seconds() == Catch::Approx(2 * 6 * (forward_ns + backward_ns) * 1e-9));
  const auto plan = activation::planned{}.plan(
      chain, {.device = 1_MiB, .to_host_bytes_per_second = 1e9, .to_device_bytes_per_second = 1e9});
  CHECK(plan.costs.fits);
  CHECK(plan.costs.seconds == Catch::Approx(chain.unlimited_seconds()));
}

TEST_CASE("profiles of other rows and kinds become one", "[configurator]")
{
  model_profile both = measured(1);
  add_measurements(both, measured(4));
  add_measurements(both, measured(4, "there"));
  CHECK(both.kinds() == std::vector<std::string>{"here", "there"});
  CHECK(both.sizes.size() == 2);
  CHECK(both.has_times("there", 1));
  CHECK(both.seconds("here", 1, 1, 2) == measured(1).seconds("here", 1, 1, 1));  // both took as long
  const model_profile before = both;
  CHECK_THROWS_WITH(add_measurements(both, measured(4)), ContainsSubstring("is there twice"));
  model_profile other = measured(8);
  other.weights.front().elements.front() = {901};
  CHECK_THROWS_WITH(add_measurements(both, other), ContainsSubstring("have other weights"));
  other = measured(8);
  other.parts.front().layers = 1;
  CHECK_THROWS_WITH(add_measurements(both, other), ContainsSubstring("have other parts"));
  CHECK(both == before);
}

TEST_CASE("bytes that another part overwrites are of two parts", "[configurator]")
{
  backend::simulated memory{{.device_capacity = 64_KiB, .host_capacity = 1_MiB}};
  manager_type m{memory, {.chunk_bytes = 4_KiB}};
  const std::array weights{m.add<float>({10}, role::parameter), m.add<float>({10}, role::parameter)};
  const auto shared = m.add<float>({100}, role::activation);  // each run writes it anew
  const auto kept = m.add<float>({7}, role::activation);
  for (const auto& each : weights) const auto pin = m.acquire(each, access::write);
  meter_type meter{m, 2};
  for (int iteration = 0; iteration < 2; ++iteration) {
    {
      const auto whole = m.iteration();
      const auto run = [&](std::size_t part, profiled_run which) {
        const auto running = meter.during(part, which);
        {
          const auto pin = m.acquire(weights[part], access::read);
        }
        {
          const auto pin = m.acquire(shared, access::write);
        }
        {
          const auto pin = m.acquire(shared, access::read);
        }
        if (part == 0 && which == profiled_run::forward) const auto pin = m.acquire(kept, access::write);
        if (part == 0 && which == profiled_run::backward) {
          {
            const auto pin = m.acquire(kept, access::read);
          }
          m.drop(kept);
        }
      };
      for (const std::size_t part : {0U, 1U}) run(part, profiled_run::forward);
      for (const std::size_t part : {1U, 0U}) run(part, profiled_run::backward);
    }
    meter.end_iteration();
  }
  auto two = names();
  two.pop_back();
  const profiled_sizes sizes = meter.profile({.name = "n", .kind = "k"}, two).sizes.front();
  CHECK(sizes.boundary == std::vector<std::uint64_t>{0, 0});
  CHECK(sizes.saved == std::vector<std::uint64_t>{28, 0});
  CHECK(sizes.transient == std::vector<std::uint64_t>{400, 400});
}

TEST_CASE("an iteration that an exception left is not measured", "[configurator]")
{
  small_trainer it;
  meter_type meter{it.m, small_trainer::parts};
  try {
    const auto iteration = it.m.iteration();
    const auto running = meter.during(0, profiled_run::forward);
    const auto pin = it.m.acquire(it.table, access::read);
    it.memory.advance(agent::host, 1'000'000);
    throw 0;
  } catch (int) {
  }
  it.run(meter);
  meter.end_iteration();
  const auto found = meter.profile({.name = "n", .kind = "here"}, names());
  CHECK(found.seconds("here", 0, 1, 1).forward == Catch::Approx(forward_ns * 1e-9));
  CHECK(found.sizes.front().saved == std::vector<std::uint64_t>{0, 800 * 4, 1024});
}

TEST_CASE("a profile needs iterations in which each part runs forward and backward once", "[configurator]")
{
  small_trainer it;
  meter_type meter{it.m, small_trainer::parts};
  CHECK_THROWS_WITH(meter.profile({.name = "n", .kind = "k"}, names()), ContainsSubstring("of no iteration"));
  CHECK_THROWS_WITH(meter.end_iteration("other"), ContainsSubstring("never ran"));
  {
    const auto short_one = it.m.iteration("short");
    const auto pin = it.m.acquire(it.table, access::read);
  }
  it.run(meter, true);
  CHECK_THROWS_WITH(meter.end_iteration("short"), ContainsSubstring("more accesses than the iteration \"short\""));
  meter.end_iteration();
  CHECK_THROWS_WITH(meter.profile({.name = "n", .kind = "k"}, names()),
                    ContainsSubstring("part 2 of a profile ran forward again"));
  small_trainer plain;
  meter_type with_more{plain.m, small_trainer::parts + 1};
  plain.run(with_more);
  with_more.end_iteration();
  auto four = names();
  four.push_back({.name = "none"});
  CHECK_THROWS_WITH(with_more.profile({.name = "n", .kind = "k"}, four),
                    ContainsSubstring("part 3 of a profile has no forward run"));
}

}  // namespace profile_meter_test
