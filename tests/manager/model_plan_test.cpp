#include <chunkmem/manager/model_plan.hpp>

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/manager/manager.hpp>

#include <support/catch.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <string>

namespace model_plan_test {

namespace cm = chunkmem;
using namespace cm::literals;
using memory = cm::backend::simulated;

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

TEST_CASE("registered states are found by name, and a name serves once", "[manager]")
{
  memory mem{{.device_capacity = 4_KiB, .host_capacity = 1_MiB}};
  cm::manager<memory> m{mem, {.chunk_bytes = 4_KiB}};
  std::array<std::byte, 8> cursor{};
  m.state("data/cursor", cursor);
  CHECK_THROWS_AS(m.state("data/cursor", cursor), cm::usage_error);
  int seen = 0;
  m.for_each_state([&](std::string_view name, std::span<std::byte> content) {
    ++seen;
    CHECK(name == "data/cursor");
    CHECK(content.data() == cursor.data());
  });
  CHECK(seen == 1);
}

TEST_CASE("a handle that this manager did not make is refused, also the empty one and as the first call", "[manager]")
{
  memory mem{{.device_capacity = 64_KiB, .host_capacity = 1_MiB}};
  cm::manager<memory> mine{mem, {.chunk_bytes = 4_KiB}};
  cm::manager<memory> other{mem, {.chunk_bytes = 4_KiB}};
  const auto theirs = other.add<float>({4}, cm::role::parameter);
  (void)mine.add<float>({4}, cm::role::parameter);
  CHECK_THROWS_AS((void)mine.acquire(cm::tensor<float>{}, cm::access::write), cm::usage_error);
  CHECK_THROWS_AS((void)mine.acquire(theirs, cm::access::write), cm::usage_error);
}

}  // namespace model_plan_test
