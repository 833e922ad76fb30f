// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/basic_manager.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>

#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/decisions_in.hpp>
#include <support/failing.hpp>
#include <support/mixed_trainer.hpp>

#include <array>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace basic_manager_test {

namespace cm = chunkmem;
using namespace cm::literals;
using Catch::Matchers::ContainsSubstring;
using arena = cm::backend::host_arena;
using arena_manager = cm::manager<arena>;

namespace {

constexpr cm::list_spec specs[] = {
    {"first", cm::dtype::float32, 1}, {"second", cm::dtype::float32, 1}, {"half", cm::dtype::bfloat16, 1}};

struct fixture {
  fixture() { m.use(specs); }
  void fill(std::uint32_t index, float with)
  {
    for (float& value : m.acquire(weights.slice(index), cm::access::write).span()) value = with;
  }

  arena memory{{.device_capacity = 16_KiB, .host_capacity = 256_KiB}};
  arena_manager m{memory, {.chunk_bytes = 4_KiB}};
  cm::stacked<float> weights = m.add_stacked<float>(6, {512}, cm::role::parameter);
};

}  // namespace

TEST_CASE("absurd options are refused with numbers and what to change", "[manager]")
{
  arena memory{{.device_capacity = 16_KiB, .host_capacity = 16_KiB}};
  for (const cm::bytes chunk : {0_B, 1_B, 255_B, 300_B, 4097_B, cm::bytes{UINT64_MAX}})
    CHECK_THROWS_AS((arena_manager{memory, {.chunk_bytes = chunk}}), cm::config_error);
  CHECK_THROWS_WITH((arena_manager{memory, {.chunk_bytes = 300_B}}),
                    ContainsSubstring("300 B") && ContainsSubstring("multiple of 256"));
  for (const cm::bytes chunk : {20_KiB, 1_GiB, cm::bytes{UINT64_MAX - 255}}) {
    arena_manager m{memory, {.chunk_bytes = chunk}};
    const auto weight = m.add<float>({16}, cm::role::parameter);
    CHECK_THROWS_AS(m.seal(), cm::error);
    CHECK_THROWS_AS(m.acquire(weight, cm::access::write), cm::error);
  }
  arena_manager m{memory, {.chunk_bytes = 256_B}};
  const auto large = m.add<float>({5000}, cm::role::buffer);
  CHECK_THROWS_WITH(m.seal(), ContainsSubstring("16384 B") && ContainsSubstring("20224 B"));
  CHECK_THROWS_AS(m.acquire(large, cm::access::write), cm::error);
}

TEST_CASE("tensors and lists are declared before the first access", "[manager]")
{
  fixture it;
  CHECK_THROWS_AS(it.m.add<float>({1}, cm::role::gradient), cm::usage_error);
  CHECK_THROWS_AS(it.m.add<float>({1}, cm::role::optimizer_state), cm::usage_error);
  CHECK_THROWS_AS(it.m.add<float>({std::uint64_t{1} << 40, std::uint64_t{1} << 40}, cm::role::parameter),
                  cm::size_overflow);
  CHECK_THROWS_AS(it.m.add_stacked<float>(0, {4}, cm::role::parameter), cm::usage_error);
  CHECK_THROWS_AS(it.m.use(specs), cm::usage_error);  // the names are taken
  CHECK_THROWS_AS(it.m.list("third"), cm::usage_error);
  CHECK_THROWS_AS(it.weights.slice(6), cm::usage_error);
  it.m.seal();
  it.m.seal();
  CHECK_THROWS_AS(it.m.add<float>({4}, cm::role::parameter), cm::usage_error);
  const cm::list_spec late[] = {{"late", cm::dtype::float32, 1}};
  CHECK_THROWS_AS(it.m.use(late), cm::usage_error);
  it.fill(5, 1);
}

TEST_CASE("sealing says what the model needs by role", "[manager]")
{
  fixture it;
  it.m.add<float>({100}, cm::role::buffer);
  const cm::memory_requirement need = it.m.seal();
  CHECK(need.by_role[cm::role::parameter] == cm::bytes{6 * 2048});
  CHECK(need.by_role[cm::role::gradient] == cm::bytes{6 * 2048});
  CHECK(need.by_role[cm::role::optimizer_state] == cm::bytes{6 * 2048 * 5 / 2});
  CHECK(need.by_role[cm::role::buffer] == 400_B);
  CHECK(need.by_role[cm::role::activation] == 0_B);
  CHECK(need.chunks == (3 + 3 + 3 + 3 + 2 + 1) * 4_KiB);
  CHECK(need.smallest_device == 4_KiB);
  CHECK(!need.rehearsed);
}

TEST_CASE("handles of another manager, and none at all, are refused", "[manager]")
{
  fixture it;
  fixture other;
  CHECK_THROWS_AS(it.m.acquire(cm::tensor<float>{}, cm::access::write), cm::usage_error);  // as the very first call
  CHECK_THROWS_AS(it.m.acquire(other.weights.slice(0), cm::access::write), cm::usage_error);
  it.fill(0, 1);
  for (const cm::tensor<float> wrong : {cm::tensor<float>{}, other.weights.slice(0)}) {
    CHECK_THROWS_WITH(it.m.acquire(wrong, cm::access::write), ContainsSubstring("did not make it"));
    CHECK_THROWS_AS(it.m.acquire(wrong, cm::access::read, cm::memory_location::host), cm::usage_error);
    CHECK_THROWS_AS(it.m.acquire<float>(wrong, cm::value_list, cm::access::read, cm::memory_location::host),
                    cm::usage_error);
    CHECK_THROWS_AS(it.m.gradient(wrong), cm::usage_error);
    CHECK_THROWS_AS(it.m.drop(wrong), cm::usage_error);
    CHECK_THROWS_AS(it.m.drop_gradient(wrong), cm::usage_error);
    CHECK_THROWS_AS(it.m.state_of(wrong), cm::usage_error);
    CHECK_THROWS_AS(it.m.has_gradient(wrong), cm::usage_error);
  }
  CHECK(it.m.acquire(it.weights.slice(0), cm::access::read).span()[3] == 1.0F);
}

TEST_CASE("what was never written cannot be read", "[manager]")
{
  fixture it;
  const auto weight = it.weights.slice(1);
  for (const cm::access how : std::initializer_list<cm::access>{cm::access::read, cm::access::read_write}) {
    CHECK_THROWS_WITH(it.m.acquire(weight, how), ContainsSubstring("tensor 1") && ContainsSubstring("free") &&
                                                     ContainsSubstring("write it first"));
    CHECK_THROWS_AS(it.m.acquire(weight, how, cm::memory_location::host), cm::usage_error);
  }
  CHECK_THROWS_AS(it.m.acquire<float>(weight, cm::gradient_list, cm::access::read, cm::memory_location::host),
                  cm::usage_error);
  CHECK(it.m.state_of(weight) == cm::tensor_state::free);
  CHECK_NOTHROW(it.m.drop(weight));
  CHECK(it.m.state_of(weight) == cm::tensor_state::free);
}

TEST_CASE("a fresh list of an optimizer is zero, however it is first looked at", "[manager]")
{
  for (const cm::memory_location first : {cm::memory_location::device, cm::memory_location::host})
    for (const cm::access how : std::initializer_list<cm::access>{cm::access::read, cm::access::read_write}) {
      support::adversarial memory{
          {.device_capacity = 8_KiB, .host_capacity = 256_KiB, .when = support::schedule::latest}};
      cm::manager<support::adversarial> m{memory, {.chunk_bytes = 4_KiB}};
      m.use(specs);
      const auto weights = m.add_stacked<float>(6, {512}, cm::role::parameter);
      const cm::list_id list = m.list("second");
      for (std::uint32_t round = 0; round < 2; ++round)
        for (std::uint32_t index = 0; index < 6; ++index) {
          for (const float value : m.acquire<float>(weights.slice(index), list, how, first).span())
            REQUIRE(value == 0.0F);
          const cm::memory_location second =
              first == cm::memory_location::host ? cm::memory_location::device : cm::memory_location::host;
          for (const float value : m.acquire<float>(weights.slice(index), list, cm::access::read, second).span())
            REQUIRE(value == 0.0F);
        }
      memory.drain();
      CHECK(memory.faults().empty());
    }
}

TEST_CASE("lists have their own element type and belong to parameters", "[manager]")
{
  fixture it;
  const auto buffer = it.m.add<float>({16}, cm::role::buffer);
  const cm::list_id half = it.m.list("half");
  CHECK_THROWS_AS(it.m.acquire<float>(it.weights.slice(0), half, cm::access::write, cm::memory_location::host),
                  cm::usage_error);
  CHECK(it.m.acquire<cm::bf16>(it.weights.slice(0), half, cm::access::write, cm::memory_location::host).size() == 512);
  CHECK_THROWS_AS(
      it.m.acquire<std::int32_t>(it.weights.slice(0), cm::value_list, cm::access::write, cm::memory_location::host),
      cm::usage_error);
  CHECK_THROWS_AS(it.m.acquire<float>(buffer, it.m.list("first"), cm::access::write, cm::memory_location::host),
                  cm::usage_error);
  for (const cm::list_id wrong : {cm::list_id::none, cm::list_id{5}, cm::list_id{77}})
    CHECK_THROWS_AS(it.m.acquire<float>(it.weights.slice(0), wrong, cm::access::write, cm::memory_location::host),
                    cm::usage_error);
  CHECK_THROWS_AS(it.m.gradient(buffer), cm::usage_error);
}

TEST_CASE("a chunk is written in one place at a time", "[manager]")
{
  fixture it;
  it.fill(0, 1);
  it.fill(1, 2);  // the same chunk
  const auto weight = it.weights.slice(0);
  {
    const auto reading = it.m.acquire(weight, cm::access::read, cm::memory_location::host);
    CHECK_THROWS_AS(it.m.acquire(weight, cm::access::read_write), cm::usage_error);
    CHECK_THROWS_AS(it.m.acquire(it.weights.slice(1), cm::access::write), cm::usage_error);
    CHECK(it.m.acquire(weight, cm::access::read).span()[0] == 1.0F);
  }
  {
    const auto writing = it.m.acquire(weight, cm::access::read_write, cm::memory_location::host);
    writing.span()[0] = 7;
    CHECK_THROWS_AS(it.m.acquire(weight, cm::access::read), cm::usage_error);
    CHECK_THROWS_AS(it.m.acquire(it.weights.slice(1), cm::access::read), cm::usage_error);
    CHECK_THROWS_AS(it.m.acquire(weight, cm::access::write), cm::usage_error);
    writing.span()[1] = 8;
  }
  {
    const auto writing = it.m.acquire(weight, cm::access::read_write);
    CHECK(writing.span()[0] == 7.0F);
    CHECK(writing.span()[1] == 8.0F);
    CHECK_THROWS_WITH(it.m.acquire(weight, cm::access::read, cm::memory_location::host),
                      ContainsSubstring("in use on the device"));
    CHECK_THROWS_AS(it.m.acquire(weight, cm::access::write, cm::memory_location::host), cm::usage_error);
    writing.span()[0] = 9;
  }
  {
    const auto reading = it.m.acquire(weight, cm::access::read);
    CHECK_THROWS_AS(it.m.acquire(weight, cm::access::read_write, cm::memory_location::host), cm::usage_error);
  }
  CHECK(it.m.acquire(weight, cm::access::read, cm::memory_location::host).span()[0] == 9.0F);
  CHECK(it.m.acquire(it.weights.slice(1), cm::access::read, cm::memory_location::host).span()[0] == 2.0F);
}

TEST_CASE("an agent that the backend does not have is refused at once", "[manager]")
{
  fixture it;
  it.fill(0, 1);
  for (const unsigned wrong : {4U, 7U, 8U, 9U, 200U}) {
    const auto stream = static_cast<cm::agent>(wrong);
    CHECK_THROWS_AS(it.m.acquire(it.weights.slice(0), cm::access::read, stream), cm::usage_error);
    CHECK_THROWS_AS(it.m.lease(cm::tier::device, 1_KiB, stream), cm::usage_error);
    CHECK_THROWS_AS(it.m.gradient(it.weights.slice(0), stream), cm::usage_error);
  }
  std::vector<cm::agent> adopted;
  while (adopted.size() < cm::max_agents - cm::built_in_agents) adopted.push_back(it.m.adopt());
  CHECK_THROWS_AS(it.m.adopt(), cm::usage_error);
  for (const cm::agent copier : {cm::agent::to_device, cm::agent::to_host}) {
    CHECK_THROWS_AS(it.m.acquire(it.weights.slice(0), cm::access::read, copier), cm::usage_error);
    CHECK_THROWS_AS(it.m.lease(cm::tier::device, 256_B, copier), cm::usage_error);
    CHECK_THROWS_AS(it.m.gradient(it.weights.slice(0), copier), cm::usage_error);
  }
  CHECK(it.m.acquire(it.weights.slice(0), cm::access::read, adopted.back()).size() > 0);
  CHECK(it.m.acquire(it.weights.slice(0), cm::access::read_write).span()[0] == 1.0F);
}

TEST_CASE("exchange swaps two lists of one type between iterations, and nothing else", "[manager]")
{
  fixture it;
  const cm::list_id first = it.m.list("first");
  const cm::list_id second = it.m.list("second");
  it.m.exchange(first, second);  // as the very first call
  for (std::uint32_t index = 0; index < 6; ++index)
    for (float& value :
         it.m.acquire<float>(it.weights.slice(index), first, cm::access::write, cm::memory_location::host).span())
      value = 3;
  for (const auto& [left, right] :
       {std::pair{first, cm::list_id::none}, std::pair{cm::list_id{77}, second}, std::pair{first, it.m.list("half")}})
    CHECK_THROWS_AS(it.m.exchange(left, right), cm::usage_error);
  {
    auto scope = it.m.iteration();
    CHECK_THROWS_AS(it.m.exchange(first, second), cm::usage_error);
  }
  {
    const auto held = it.m.acquire<float>(it.weights.slice(2), first, cm::access::read, cm::memory_location::host);
    CHECK_THROWS_AS(it.m.exchange(first, second), cm::usage_error);
  }
  CHECK_THROWS_AS(it.m.rehearse([&] { it.m.exchange(first, second); }), cm::usage_error);
  it.m.updates().gradients().begin_update();
  CHECK_THROWS_AS(it.m.exchange(first, second), cm::usage_error);  // a step is half done
  it.m.updates().gradients().end_update();
  it.m.exchange(first, second);
  it.m.exchange(second, second);
  for (std::uint32_t index = 0; index < 6; ++index) {
    CHECK(it.m.acquire<float>(it.weights.slice(index), second, cm::access::read, cm::memory_location::host).span()[1] ==
          3.0F);
    CHECK(it.m.acquire<float>(it.weights.slice(index), first, cm::access::read, cm::memory_location::host).span()[1] ==
          0.0F);
  }
}

TEST_CASE("inference rules know no gradient", "[manager]")
{
  arena memory{{.device_capacity = 16_KiB, .host_capacity = 16_KiB}};
  cm::manager<arena, cm::inference_rules> m{memory, {.chunk_bytes = 4_KiB}};
  const auto weight = m.add<float>({64}, cm::role::parameter);
  {
    const auto pin = m.acquire(weight, cm::access::write);
  }
  CHECK_THROWS_AS(m.gradient(weight), cm::usage_error);
  CHECK_THROWS_AS(m.gradient(m.acquire(weight, cm::access::read)), cm::usage_error);
  CHECK(m.state_of(weight) == cm::tensor_state::hold);
}

TEST_CASE("states that must survive are registered by name and stay the caller's", "[manager]")
{
  fixture it;
  std::array<std::byte, 4> cursor{};
  it.m.state("cursor", cursor);
  it.m.state("seed", {});
  CHECK_THROWS_AS(it.m.state("cursor", cursor), cm::usage_error);
  std::string names;
  it.m.content().states().for_each([&](std::string_view name, std::span<std::byte> content) {
    names.append(name).append(std::to_string(content.size())).append(" ");
  });
  CHECK(names == "cursor4 seed0 ");
}

TEST_CASE("a rehearsal leaves everything as it was", "[manager]")
{
  fixture it;
  it.fill(0, 4);
  const std::string before = support::decisions_in(it.m.report());
  std::optional<arena_manager::pin_type<float>> escaped;
  for (int round = 0; round < 2; ++round) {
    const cm::memory_requirement need = it.m.rehearse([&] {
      CHECK(it.m.rehearsing());
      auto scope = it.m.iteration();
      scope.pass(cm::pass::backward);
      const auto lease = it.m.lease(cm::tier::device, 3_KiB);
      CHECK(lease.span<float>().empty());
      auto held = it.m.acquire(it.weights.slice(0), cm::access::read);
      CHECK(held.data() == nullptr);
      CHECK(held.span().empty());
      CHECK(held.size() == 512);
      const auto gradient = it.m.gradient(std::move(held));
      CHECK(it.m.has_gradient(it.weights.slice(0)));
      const auto fresh = it.m.acquire(it.weights.slice(4), cm::access::write);
      CHECK_THROWS_AS(it.m.drop(it.weights.slice(4)), cm::usage_error);
      escaped.emplace(it.m.acquire(it.weights.slice(5), cm::access::write));
    });
    CHECK(need.rehearsed);
    CHECK(need.largest_leases == 3_KiB);
    CHECK(!it.m.rehearsing());
  }
  escaped.reset();
  CHECK(support::decisions_in(it.m.report()) == before);
  CHECK(it.m.state_of(it.weights.slice(0)) == cm::tensor_state::hold);
  CHECK(!it.m.has_gradient(it.weights.slice(0)));
  CHECK(it.m.state_of(it.weights.slice(4)) == cm::tensor_state::free);
  CHECK(it.m.acquire(it.weights.slice(0), cm::access::read).span()[0] == 4.0F);
  auto scope = it.m.iteration();
  CHECK_THROWS_AS(it.m.rehearse([] {}), cm::usage_error);
}

TEST_CASE("a rehearsed step of several iterations runs where it was accepted, and needs what each of them needs",
          "[manager]")
{
  const auto smallest = [](cm::bytes device, bool both) {
    arena memory{{.device_capacity = device, .host_capacity = 16_KiB}};
    arena_manager m{memory, {.chunk_bytes = 1_KiB}};
    const auto weight = [&](std::uint64_t frames) { return m.add<float>({frames * 256}, cm::role::frozen); };
    const std::array weights{weight(1), weight(1), weight(2), weight(3)};
    const auto small = [&] {
      auto scope = m.iteration("small");
      const auto first = m.acquire(weights[0], cm::access::read);
      const auto second = m.acquire(weights[1], cm::access::read);
    };
    const auto large = [&] {  // behind the other iteration four frames are enough, and from an empty device six
      auto scope = m.iteration("large");
      auto before = std::optional{m.acquire(weights[2], cm::access::read)};
      const auto between = m.acquire(weights[0], cm::access::read);
      before.reset();
      const auto after = m.acquire(weights[3], cm::access::read);
    };
    const auto step = [&] {
      if (both) small();
      large();
    };
    const cm::bytes needed = m.rehearse(step).smallest_device;
    for (const auto& it : weights) (void)m.acquire(it, cm::access::write);
    for (int round = 0; round < 3; ++round) step();
    return needed.count();
  };
  CHECK(smallest(64_KiB, false) == (6_KiB).count());
  CHECK(smallest(64_KiB, true) == (6_KiB).count());
  CHECK(smallest(6_KiB, true) == (6_KiB).count());
  CHECK_THROWS_AS(smallest(4_KiB, true), cm::config_error);
}

TEST_CASE("nothing is allocated before the first access", "[manager]")
{
  using failing = support::failing<arena>;
  failing memory{support::failure_plan{},
                 cm::backend::host_arena_options{.device_capacity = 96_KiB, .host_capacity = 1_MiB}};
  cm::manager<failing> m{memory, {.chunk_bytes = 4_KiB}};
  support::mixed::trainer<cm::manager<failing>, failing, float> trainer{m, memory, support::mixed::usual_recipe(2)};
  trainer.rehearse();
  m.seal();
  CHECK(memory.allocations() == 0);
  trainer.initialise();
  CHECK(memory.allocations() == 2);  // one arena in each tier
  trainer.whole_step(0);
  trainer.whole_step(1);
  CHECK(memory.allocations() == 2);
}

TEST_CASE("a host of no bytes is enough where nothing has to leave", "[manager]")
{
  arena memory{{.device_capacity = 16_KiB, .host_capacity = 0_B}};
  arena_manager m{memory, {.chunk_bytes = 4_KiB}};
  const auto weight = m.add<float>({512}, cm::role::buffer);
  const cm::memory_requirement need = m.rehearse([&] { const auto pin = m.acquire(weight, cm::access::write); });
  CHECK(need.smallest_host == 0_B);
  {
    const auto pin = m.acquire(weight, cm::access::write);
  }
  CHECK(m.acquire(weight, cm::access::read).size() == 512);
  CHECK_THROWS_AS(m.acquire(weight, cm::access::read, cm::memory_location::host), cm::out_of_memory);
  CHECK(m.state_of(weight) == cm::tensor_state::hold);
}

TEST_CASE("virtual time takes the same decisions as real bytes", "[manager]")
{
  using simulated = cm::backend::simulated;
  simulated virtual_memory{{.device_capacity = 64_KiB, .host_capacity = 1_MiB}};
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 1_MiB}};
  auto train = [](auto& m, auto& where) {
    const auto weights = m.template add_stacked<float>(24, {1000}, cm::role::parameter);
    for (std::uint32_t index = 0; index < 24; ++index) {
      const auto pin = m.acquire(weights.slice(index), cm::access::write, cm::agent::compute);
    }
    for (int step = 0; step < 5; ++step) {
      auto scope = m.iteration();
      for (std::uint32_t index = 0; index < 24; ++index) {
        const auto lease = m.lease(cm::tier::device, 2_KiB, cm::agent::compute);
        const auto pin = m.acquire(weights.slice(index), cm::access::read, cm::agent::compute);
      }
      for (std::uint32_t index = 24; index-- > 0;) {
        const auto pin = m.acquire(weights.slice(index), cm::access::read_write, cm::agent::compute);
      }
    }
    (void)where;
    const cm::report seen = m.report();
    return std::array{seen.loads, seen.write_backs, seen.evictions, seen.loaded.count(), seen.written_back.count()};
  };
  cm::manager<simulated> planned{virtual_memory, {.chunk_bytes = 4_KiB}};
  arena_manager real{memory, {.chunk_bytes = 4_KiB}};
  CHECK(train(planned, virtual_memory) == train(real, memory));
}

}  // namespace basic_manager_test
