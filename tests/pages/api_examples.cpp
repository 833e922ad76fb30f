// SPDX-License-Identifier: Apache-2.0
// The examples in the comments of public functions, each word by word, with the effect that its comment promises.
// tests/pages/api_examples.py writes them to files and checks that none is left out.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/checkpoint/export_values.hpp>
#include <chunkmem/checkpoint/import_values.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/checkpoint/save_async.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/io/posix_folder.hpp>
#include <chunkmem/manager/residency_snapshot.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/planner/plan_memory.hpp>
#include <chunkmem/planner/step_bound.hpp>
#include <chunkmem/profile/profile_text.hpp>
#include <chunkmem/transfer/plan_text.hpp>
#include <chunkmem/transfer/transfers.hpp>

#include <checkpoint/small_model.hpp>
#include <planner/tiny_plan.hpp>
#include <support/catch.hpp>
#include <support/fake_device.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>

namespace api_examples_test {

using namespace chunkmem;
using namespace chunkmem::literals;

namespace {

using manager_type = manager<backend::host_arena>;

/// Two parameters, an activation and Adam in plenty of memory.
template <class Manager = manager_type>
struct rig {
  rig()
  {
    m.use(adam);
    w = m.template add<float>({16, 16}, role::parameter);
    bias = m.template add<float>({16}, role::parameter);
    activation = m.template add<float>({64}, role::activation);
  }
  void fill()
  {
    for (float& x : m.acquire(w, access::write).span()) x = 1.0F;
    for (float& x : m.acquire(bias, access::write).span()) x = 2.0F;
  }
  void backward()
  {
    for (const auto& each : {w, bias}) {
      auto g = m.gradient(each);
      write_gradient(g.data(), g.beta(), g.size());
      m.gradient_done(std::move(g));
    }
  }
  void step()
  {
    const auto iteration = m.iteration();
    backward();
    optimizer::step(m, adam, {.learning_rate = 0.5F});
  }
  static void write_gradient(float* to, float beta, std::size_t count = 256)
  {
    for (std::size_t at = 0; to != nullptr && at < count; ++at) to[at] = (beta == 0 ? 0 : to[at]) + 1.0F;
  }

  backend::host_arena memory{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  optimizer::adam adam;
  Manager m{memory, {.chunk_bytes = 4_KiB}};
  tensor<float> w, bias, activation;
};

/// std::cout and std::cerr go to a text while this lives.
struct printed {
  printed() : out_{std::cout.rdbuf(text.rdbuf())}, errors_{std::cerr.rdbuf(text.rdbuf())} {}
  printed(const printed&) = delete;
  printed& operator=(const printed&) = delete;
  ~printed() { std::cout.rdbuf(out_), std::cerr.rdbuf(errors_); }
  std::ostringstream text{};

 private:
  std::streambuf* out_;
  std::streambuf* errors_;
};

}  // namespace

TEST_CASE("manager: examples of declarations", "[pages]")
{
  {
    using namespace chunkmem;
#include "manager.basic_manager.1.inc"
    CHECK(m.report().capacity[tier::device] == 64_MiB);
  }
  backend::host_arena memory{{.device_capacity = 64_MiB, .host_capacity = 64_MiB}};
  manager<backend::host_arena> m{memory, {.chunk_bytes = 1_MiB}};
#include "manager.add.1.inc"
  CHECK(m.info(table).part == role::buffer);
  CHECK(m.info(bias).group == group_id{1});
#include "manager.name.1.inc"
  CHECK(m.name_of(w) == "wte");
#include "manager.use.1.inc"
#include "manager.use.2.inc"
  CHECK(m.is_in(w, m.list("curvature")));
#include "manager.state.1.inc"
  CHECK_THROWS_AS(m.state("data/cursor", {}), usage_error);
  {
#include "manager.add_stacked.1.inc"
    CHECK(pin.size() == 768 * 768);
  }
}

TEST_CASE("manager: an example of what seal says", "[pages]")
{
  backend::host_arena memory{{.device_capacity = 64_MiB, .host_capacity = 64_MiB}};
  manager<backend::host_arena> m{memory, {.chunk_bytes = 1_MiB}};
  (void)m.add<float>({1000}, role::parameter);
#include "manager.seal.1.inc"
  CHECK(waste > 0);
}

TEST_CASE("manager: examples of a rehearsal", "[pages]")
{
  rig<> t;
  auto& [memory, adam, m, w, bias, activation] = t;
  std::ostringstream file;
  bool was_null = false;
  const auto train_one_step = [&](auto&) {
    const auto iteration = m.iteration();
    (void)m.acquire(bias, access::write);
    (void)m.acquire(w, access::write);
    {
#include "manager.rehearsing.1.inc"
      was_null = was_null || pin.data() == nullptr;
    }
  };
#include "manager.rehearse.1.inc"
  CHECK(fits);
  CHECK(was_null);
#include "manager.rehearsed.1.inc"
  CHECK(!file.str().empty());
}

TEST_CASE("manager: examples of iterations", "[pages]")
{
  rig<> t;
  auto& [memory, adam, m, w, bias, activation] = t;
  t.fill();
  int batches = 0;
  const auto evaluate_one_batch = [&](auto&) { batches += m.is_iterating() ? 1 : 0; };
#include "manager.iteration.1.inc"
  CHECK(batches == 1);
  CHECK(!m.is_iterating());
  CHECK(m.profile("evaluation") != nullptr);
  CHECK(m.profile() == nullptr);
#include "manager.iteration.2.inc"
  CHECK(m.is_iterating());
  (void)m.acquire(bias, access::read);
#include "manager.access_index.1.inc"
  CHECK(accesses == 1);
}

TEST_CASE("manager: examples of pins and leases", "[pages]")
{
  rig<> t;
  auto& [memory, adam, m, w, bias, activation] = t;
  t.fill();
  t.step();
  {
#include "manager.acquire.1.inc"
    CHECK(first < 1.0F);
  }
  CHECK(m.acquire(bias, access::read).span()[0] == 0.0F);
  {
#include "manager.acquire.2.inc"
    CHECK(pin.size() == 256);
  }
  {
#include "manager.acquire.3.inc"
    CHECK(pin.size() == 256);
  }
  {
#include "manager.acquire.4.inc"
    CHECK(largest > 0);
  }
  {
#include "manager.list.1.inc"
    CHECK(pin.data()[0] > 0);
  }
  std::ostringstream file;
  {
#include "manager.acquire_bytes.1.inc"
  } CHECK(file.str().size() == 1024);
  {
#include "manager.lease.1.inc"
    numbers[0] = 1.0F;
    CHECK(m.report().in_use[tier::device] >= 64_KiB);
  }
  {
#include "manager.acquire_beside.1.inc"
    CHECK(pin.size() == 1024);
  }
  {
#include "manager.adopt.1.inc"
    CHECK(mine != agent::compute);
  }
#include "manager.state_of.1.inc"
#include "manager.verify.1.inc"
  CHECK(written);
#include "manager.is_filled.1.inc"
  CHECK(is_loaded);
#include "manager.is_in.1.inc"
  CHECK(!has_master);
#include "manager.has_masters.1.inc"
  CHECK(bytes_of_states == 12);
#include "manager.backend.1.inc"
  CHECK(all == 1_MiB);
#include "manager.info.1.inc"
  CHECK(trained);
  {
#include "manager.name_of.1.inc"
    CHECK(name == "tensor.0");
  }
#include "manager.for_each_parameter.1.inc"
  CHECK(parameters == 272);
  for (float& x : m.acquire(activation, access::write).span()) x = 1;
#include "manager.drop.1.inc"
  {
#include "manager.resize_activations.1.inc"
    CHECK(m.acquire(activation, access::write).size() == 32);
    m.drop(activation);
  }
  CHECK(m.state_of(activation) == tensor_state::free);
}

TEST_CASE("manager: examples of gradients", "[pages]")
{
  rig<> t;
  auto& [memory, adam, m, w, bias, activation] = t;
  t.fill();
  const auto gradient_of_input = [](const float* weights) { CHECK(weights[0] == 1.0F); };
  const auto write_gradient = [](float* to, float beta) { rig<>::write_gradient(to, beta); };
  const auto run_backward = [&](auto&) { t.backward(); };
  const auto iteration = m.iteration();
  {
#include "manager.gradient.1.inc"
    CHECK(g.data()[0] == 1.0F);
  }
#include "manager.drop_gradients.1.inc"
  CHECK(!m.has_gradient(w));
  {
#include "manager.gradient.2.inc"
    CHECK(g.data()[5] == 1.0F);
    CHECK(g.data()[6] == 0.0F);
  }
#include "manager.drop_gradient.1.inc"
  CHECK(!m.has_gradient(w));
  {
#include "manager.gradient_done.1.inc"
  } CHECK(m.has_gradient(w));
  {
#include "manager.acquire.5.inc"
    CHECK(pin.data()[255] == 1.0F);
  }
  {
#include "manager.acquire_bytes.2.inc"
    CHECK(pin.size() == 1024);
  }
  {
#include "manager.acquire_bytes.3.inc"
    CHECK(pin.size() == 1024);
  }
  m.drop_gradient(w);
  int experts_without_tokens = 0;
  const auto expert = w;
#include "manager.has_gradient.1.inc"
#include "manager.without_gradient.1.inc"
  CHECK(experts_without_tokens == 1);
  {
#include "manager.gradient_done.2.inc"
  } CHECK(m.has_gradient(w));
}

TEST_CASE("manager: examples of looking", "[pages]")
{
  rig<> t;
  auto& [memory, adam, m, w, bias, activation] = t;
  t.fill();
  const auto framework_bytes = [] { return std::uint64_t{4096}; };
#include "manager.watch_external_memory.1.inc"
  t.step(), t.step();
  printed to;
#include "manager.report.1.inc"
  CHECK(to.text.str().find(" loads, ") != std::string::npos);
#include "manager.residency.1.inc"
  CHECK(to.text.str().find("tensor.0") != std::string::npos);
  to.text.str("");
#include "manager.drifted.1.inc"
  CHECK(to.text.str().empty());
#include "manager.external_memory.1.inc"
  CHECK(highest == 4_KiB);
#include "manager.for_each_tensor.1.inc"
  CHECK(to.text.str().find("tensor.2: activation") != std::string::npos);
#include "manager.for_each_list.1.inc"
  CHECK(to.text.str().find("adam/variance") != std::string::npos);
#include "manager.slot_of.1.inc"
  CHECK(chunk < 11);
#include "manager.chunk_of_slot.1.inc"
  CHECK(slots == 11);  // two parameters in five lists, and an activation
}

TEST_CASE("manager: examples of where updates work, and when", "[pages]")
{
  rig<manager<backend::host_arena, placement::update_share>> t;
  auto& [memory, adam, m, w, bias, activation] = t;
  t.fill();
  CHECK(m.placement().device_share == 0);
#include "manager.use_placement.1.inc"
  CHECK(m.is_filled(w, value_list));  // bytes stay where they are
#include "manager.placement.1.inc"
  CHECK(share == 0.5);
  optimizer::late_updates late{m, adam};
  const auto iteration = m.iteration();
  t.backward();
#include "manager.updates_pending.1.inc"
  CHECK(waiting == 2);
  late.finish();
}

TEST_CASE("manager: an example of a captured step", "[pages]")
{
  support::fake_device memory{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  manager<support::fake_device> m{memory, {.chunk_bytes = 4_KiB}};
  const auto w = m.add<float>({16}, role::buffer);
  for (float& x : m.acquire(w, access::write, memory_location::host).span()) x = 1.0F;
  int steps = 0;
  const auto step = [&] {
    const auto iteration = m.iteration();
    (void)m.acquire(w, access::read, agent::compute);
    ++steps;
  };
  for (int repeated = 0; repeated < 4; ++repeated) step();
#include "manager.capture.1.inc"
  CHECK(steps == 5);  // the fifth one was captured, and the sixth was a replay
}

TEST_CASE("manager: examples of plans that are kept", "[pages]")
{
  using planned = manager<backend::host_arena, transfer::planned>;
  std::stringstream text, plan;
  {
    rig<planned> t;
    auto& [memory, adam, m, w, bias, activation] = t;
    t.fill();
    t.step(), t.step();
    {
      std::ostream& file = text;
#include "manager.profile.1.inc"
    }
    {
      std::ostream& file = plan;
#include "manager.plan.1.inc"
    }
  }
  {
    rig<planned> t;
    auto& m = t.m;
    std::istream& file = text;
#include "manager.use_profile.1.inc"
    CHECK(m.profile() != nullptr);
  }
  rig<planned> other;
  text.clear(), text.seekg(0);
  other.m.use_profile(profile_text::read(text));
  [](auto& m, std::istream& file) {
#include "manager.use_plan.1.inc"
    CHECK_NOTHROW(m.plan());
  }(other.m, plan);
}

TEST_CASE("manager: lists exchange their bytes", "[pages]")
{
  rig<> t;
  backend::host_arena memory{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  manager_type m{memory, {.chunk_bytes = 4_KiB}};
  const list_spec both[] = {{"older"}, {"newer"}};
  m.use(both);
  const auto w = m.add<float>({16}, role::parameter);
  m.acquire<float>(w, m.list("newer"), access::write, memory_location::host).span()[3] = 5.0F;
#include "manager.exchange.1.inc"
  CHECK(m.acquire<float>(w, m.list("older"), access::read, memory_location::host).span()[3] == 5.0F);
#include "manager.is_iterating.1.inc"
  CHECK(m.acquire<float>(w, m.list("newer"), access::read, memory_location::host).span()[3] == 5.0F);
}

TEST_CASE("optimizer: an example of a step", "[pages]")
{
  rig<> t;
  auto& [memory, adam, m, w, bias, activation] = t;
  t.fill();
  optimizer::thread_pool pool{2};
  using optimizer::step_outcome, optimizer::step_result;
  int skipped = 0;
  const auto iteration = m.iteration();
  t.backward();
#include "optimizer.step.1.inc"
  CHECK(skipped == 0);
  CHECK(done.norm > 16.0);
}

TEST_CASE("checkpoint: examples of saves and loads", "[pages]")
{
  const checkpoints::temporary_folder top;
  const auto before = std::filesystem::current_path();
  std::filesystem::create_directories(top.path() + "/runs/a");
  std::filesystem::create_directories(top.path() + "/exported");
  std::filesystem::current_path(top.path());
  rig<> t;
  t.fill(), t.step();
  {
    auto& m = t.m;
#include "checkpoint.save.1.inc"
    CHECK(std::filesystem::exists("runs/a"));
    const auto train_one_step = [&](auto&) { t.step(); };
#include "checkpoint.save_async.1.inc"
  }
  {
    auto& m = t.m;
#include "checkpoint.export_values.1.inc"
  }
  rig<> another;
  {
    auto& m = another.m;
#include "checkpoint.load.1.inc"
    CHECK(found.number == 2);
  }
  CHECK(another.m.acquire(another.w, access::read).span()[0] < 1.0F);
  rig<> imported;
  {
    auto& m = imported.m;
    const io::posix_folder folder{"exported"};
#include "checkpoint.import_values.1.inc"
  }
  CHECK(imported.m.acquire(imported.w, access::read).span()[0] == t.m.acquire(t.w, access::read).span()[0]);
  std::filesystem::current_path(before);
}

TEST_CASE("planner: examples of a plan and of a bound", "[pages]")
{
  const workload::transformer_shape& shape = tiny_plan::shape;
  const workload::rank_share share = tiny_plan::share_of(8_GiB, 64_GiB);
  printed to;
#include "planner.step_bound_of.1.inc"
  CHECK(to.text.str().find("at least ") != std::string::npos);
  {
    const workload::machine machine{.name = "small", .device_bytes = 8_GiB, .host_bytes = 64_GiB, .rates = share.rates};
#include "planner.plan_memory.1.inc"
    CHECK(options.chunk_bytes > bytes{});
  }
}

TEST_CASE("elements: examples of conversions", "[pages]")
{
#include "chunkmem.to_float.1.inc"
  CHECK(number == 0.100097656F);
#include "chunkmem.round_to.1.inc"
  CHECK(to_float(half) == 0.0999755859F);
}

}  // namespace api_examples_test
