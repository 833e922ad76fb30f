// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/model_builder.hpp>

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/manager/manager.hpp>

#include <support/catch.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace declaring_test {

namespace cm = chunkmem;
using namespace cm::literals;
using memory = cm::backend::simulated;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("sealing gives the exact bytes by role before anything is allocated", "[manager]")
{
  memory mem{{.device_capacity = 1_MiB, .host_capacity = 4_MiB}};
  cm::manager<memory> m{mem, {.chunk_bytes = 4_KiB}};
  (void)m.add<float>({1000}, cm::role::parameter);
  (void)m.add_stacked<float>(3, {10, 10}, cm::role::parameter);
  (void)m.add<std::uint8_t>({5000}, cm::role::buffer);
  (void)m.add<float>({300}, cm::role::activation);
  constexpr cm::list_spec lists[] = {{"toy/first"}, {"toy/second"}};
  m.use(lists);
  const cm::memory_requirement need = m.seal();
  CHECK(need.by_role[cm::role::parameter] == 5200_B);
  CHECK(need.by_role[cm::role::gradient] == 5200_B);
  CHECK(need.by_role[cm::role::optimizer_state] == 10400_B);
  CHECK(need.by_role[cm::role::buffer] == 5000_B);
  CHECK(need.by_role[cm::role::activation] == 1200_B);
  CHECK(need.smallest_device == 8_KiB);  // the buffer needs two frames
  CHECK(need.chunks == 4_KiB * (4 * 2 + 2 + 1));
  CHECK_FALSE(need.rehearsed);
  CHECK_THROWS_AS((void)m.add<float>({1}, cm::role::buffer), cm::usage_error);
}

TEST_CASE("a device smaller than the largest tensor is refused with both numbers", "[manager]")
{
  memory mem{{.device_capacity = 4_KiB, .host_capacity = 1_MiB}};
  cm::manager<memory> m{mem, {.chunk_bytes = 4_KiB}};
  (void)m.add<float>({5000}, cm::role::parameter);
  try {
    (void)m.seal();
    FAIL("sealed");
  } catch (const cm::config_error& refusal) {
    const std::string text = refusal.what();
    CHECK(text.find("4096 B") != std::string::npos);
    CHECK(text.find("20480 B") != std::string::npos);
  }
}

namespace {

/// Something with two lists, a count and a name, as optimizers have.
struct toy_kernel {
  static constexpr std::string_view name = "toy";
  static std::span<const cm::list_spec> lists()
  {
    static constexpr cm::list_spec all[] = {{"toy/first"}, {"toy/second"}};
    return all;
  }
  template <class Visit>
  void for_each_state(Visit visit)
  {
    visit(cm::restart_state{"count", std::as_writable_bytes(std::span{&count, 1})});
  }
  cm::registration registered;
  int count = 0;
};
/// Without lists and without a name.
struct toy_scale {
  template <class Visit>
  void for_each_state(Visit visit)
  {
    visit(cm::restart_state{"scale", std::as_writable_bytes(std::span{&value, 1})});
  }
  cm::registration registered;
  float value = 1;
};

template <class Manager>
std::string states_of(const Manager& m)
{
  std::string all;
  m.content().states().for_each([&](std::string_view name, std::span<std::byte> content) {
    all += std::string{name} + ' ' + std::to_string(content.size()) + ' ';
  });
  return all;
}

}  // namespace

TEST_CASE("use declares the lists of an object and registers its states under the name of its type", "[manager]")
{
  memory mem{{.device_capacity = 64_KiB, .host_capacity = 1_MiB}};
  cm::manager<memory> m{mem, {.chunk_bytes = 4_KiB}};
  toy_kernel kernel;
  toy_scale scale;
  m.use(kernel);
  (void)m.add<float>({100}, cm::role::parameter);
  CHECK(m.list("toy/second") == cm::list_id{3});
  CHECK(states_of(m) == "toy/count 4 ");
  (void)m.seal();
  m.use(scale);  // it has no lists
  CHECK(states_of(m) == "toy/count 4 scale 4 ");
  m.content().states().for_each([&](std::string_view name, std::span<std::byte> content) {
    if (name == "toy/count") CHECK(content.data() == reinterpret_cast<std::byte*>(&kernel.count));
  });
  m.updates().expect_used(kernel.registered, "a kernel");
  m.updates().expect_used(scale.registered, "a scale");
  const toy_kernel copy = kernel;
  CHECK_THROWS_WITH(m.updates().expect_used(copy.registered, "a kernel"),
                    ContainsSubstring("a step with a kernel that the manager was not given (call m.use()"));
}

TEST_CASE("an object belongs to the first manager that it was given to", "[manager]")
{
  memory mem{{.device_capacity = 64_KiB, .host_capacity = 1_MiB}};
  toy_kernel kernel;
  toy_scale scale;
  cm::manager<memory> second{mem, {.chunk_bytes = 4_KiB}};
  {
    cm::manager<memory> first{mem, {.chunk_bytes = 4_KiB}};
    first.use(kernel);
    CHECK_THROWS_WITH(first.use(kernel), ContainsSubstring("was given to use() again"));
    CHECK_THROWS_AS(second.use(kernel), cm::usage_error);
    CHECK_THROWS_WITH(second.updates().expect_used(kernel.registered, "a kernel"),
                      ContainsSubstring("that another manager was given (make one for each manager"));
    CHECK(states_of(first) == "toy/count 4 ");
  }
  CHECK_THROWS_AS(second.use(kernel), cm::usage_error);  // it counts what the first one did
  CHECK_THROWS_AS(second.updates().expect_used(kernel.registered, "a kernel"), cm::usage_error);
  toy_kernel fresh = kernel;  // whoever copies it means it
  second.use(fresh);
  second.use(scale);
  CHECK(states_of(second) == "toy/count 4 scale 4 ");
}

TEST_CASE("a use that is refused leaves the manager and the object as they were", "[manager]")
{
  memory mem{{.device_capacity = 64_KiB, .host_capacity = 1_MiB}};
  cm::manager<memory> m{mem, {.chunk_bytes = 4_KiB}};
  int own = 0;
  m.state("toy/count", std::as_writable_bytes(std::span{&own, 1}));
  toy_kernel kernel;
  CHECK_THROWS_WITH(m.use(kernel), ContainsSubstring("two registered states have one name, toy/count"));
  CHECK_THROWS_AS(m.list("toy/first"), cm::usage_error);
  cm::manager<memory> with_list{mem, {.chunk_bytes = 4_KiB}};
  constexpr cm::list_spec taken[] = {{"toy/second"}};
  with_list.use(taken);
  CHECK_THROWS_AS(with_list.use(kernel), cm::usage_error);
  CHECK(states_of(with_list).empty());
  cm::manager<memory> sealed{mem, {.chunk_bytes = 4_KiB}};
  (void)sealed.add<float>({100}, cm::role::parameter);
  (void)sealed.seal();
  CHECK_THROWS_AS(sealed.use(kernel), cm::usage_error);
  CHECK_FALSE(kernel.registered.is_tied());
  cm::manager<memory> willing{mem, {.chunk_bytes = 4_KiB}};
  willing.use(kernel);
}

TEST_CASE("states whose owner is gone or moved are never read, and a save would say so", "[manager]")
{
  memory mem{{.device_capacity = 64_KiB, .host_capacity = 1_MiB}};
  cm::manager<memory> m{mem, {.chunk_bytes = 4_KiB}};
  {
    toy_kernel kernel;
    m.use(kernel);
    CHECK(states_of(m) == "toy/count 4 ");
    toy_kernel moved = std::move(kernel);
    moved.count = 7;
    CHECK_THROWS_AS(m.updates().expect_used(moved.registered, "a kernel"), cm::usage_error);
    CHECK(states_of(m) == "toy/count 4 ");  // of the one that it was given
    m.content().states().expect_whole();
  }
  CHECK(states_of(m) == "toy/count 0 ");
  CHECK_THROWS_WITH(m.content().states().expect_whole(),
                    ContainsSubstring("the owner of the state toy/count was given to use() and is gone"));
  CHECK_THROWS_AS(m.content().states().expect_whole(), cm::usage_error);
}

}  // namespace declaring_test
