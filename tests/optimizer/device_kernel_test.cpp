// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/device_kernel.hpp>

#include <chunkmem/backend/host_arena.hpp>

#include <support/catch.hpp>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace device_kernel_test {

using namespace chunkmem::optimizer;

namespace {

struct sums {
  int number = 0;
  void add(const sums& next) noexcept { number += next.number; }
};

struct element_work {
  [[nodiscard]] std::uint64_t count() const { return 1; }
  [[nodiscard]] const element_work& prepared() const { return *this; }
  void operator()(std::uint64_t) const {}
};
struct lane_work {
  using sums_type = sums;
  [[nodiscard]] std::uint64_t count() const { return 1; }
  [[nodiscard]] sums lane(std::uint64_t, std::uint32_t) const { return {}; }
  static void combine(sums&, sums) {}
  void store(std::uint64_t, sums) const {}
};
struct ordered_work {
  using total_type = sums;
  [[nodiscard]] std::uint64_t count() const { return 1; }
  [[nodiscard]] std::uint64_t length(std::uint64_t) const { return 0; }
  [[nodiscard]] sums load(std::uint64_t, std::uint64_t) const { return {}; }
  void store(std::uint64_t, const sums&) const {}
};

static_assert(element_kernel<element_work> && !lane_kernel<element_work> && !ordered_kernel<element_work>);
static_assert(lane_kernel<lane_work> && !element_kernel<lane_work> && !ordered_kernel<lane_work>);
static_assert(ordered_kernel<ordered_work> && !element_kernel<ordered_work> && !lane_kernel<ordered_work>);
static_assert(device_kernel<element_work> && device_kernel<lane_work> && device_kernel<ordered_work>);

struct large_work : element_work {
  char bytes[largest_kernel + 1] = {};
};
struct owning_work : element_work {
  std::string text;
};
struct endless_work {
  [[nodiscard]] const endless_work& prepared() const { return *this; }
  void operator()(std::uint64_t) const {}
};
static_assert(!device_kernel<large_work> && !device_kernel<owning_work> && !device_kernel<endless_work> &&
              !device_kernel<int>);

}  // namespace

TEST_CASE("a body is copied to where it runs, and is of one kind", "[optimizer]")
{
  SUCCEED("checked by the compiler");
}

}  // namespace device_kernel_test

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace loop_launcher_test {

namespace cm = chunkmem;
using namespace chunkmem::optimizer;

namespace {

struct square_kernel {
  int* out;
  std::uint64_t size;
  [[nodiscard]] std::uint64_t count() const { return size; }
  [[nodiscard]] const square_kernel& prepared() const { return *this; }
  void operator()(std::uint64_t index) const { out[index] = static_cast<int>(index * index); }
};

/// Words instead of sums: records the operands of each combination.
struct order {
  std::uint64_t hash = 0;
};
struct folding_kernel {
  using sums_type = order;
  order* out;
  [[nodiscard]] std::uint64_t count() const { return 3; }
  [[nodiscard]] order lane(std::uint64_t block, std::uint32_t index) const { return {1000 * block + index + 1}; }
  static void combine(order& into, order other) { into.hash = into.hash * 31 + other.hash; }
  void store(std::uint64_t block, order sums) const { out[block] = sums; }
};

struct chain {
  std::uint64_t hash = 7;
  void add(const chain& next) { hash = hash * 31 + next.hash; }
};
struct chain_kernel {
  using total_type = chain;
  chain* out;
  [[nodiscard]] std::uint64_t count() const { return 3; }
  [[nodiscard]] std::uint64_t length(std::uint64_t row) const { return 40 * row; }
  [[nodiscard]] chain load(std::uint64_t row, std::uint64_t index) const { return {100 * row + index}; }
  void store(std::uint64_t row, const chain& total) const { out[row] = total; }
};

/// The smallest denormal, doubled: 0 where the processor takes denormals for zero.
struct denormal_kernel {
  volatile float* value;
  [[nodiscard]] std::uint64_t count() const { return 1; }
  [[nodiscard]] const denormal_kernel& prepared() const { return *this; }
  void operator()(std::uint64_t) const { *value = *value + *value; }
};

}  // namespace

TEST_CASE("a loop runs every index once", "[optimizer]")
{
  std::vector<int> out(101, -1);
  loop_launcher::run(square_kernel{out.data(), 100});
  for (int index = 0; index < 100; ++index) CHECK(out[static_cast<std::size_t>(index)] == index * index);
  CHECK(out[100] == -1);
}

TEST_CASE("lanes are folded by sixteens, eights, fours, twos and ones", "[optimizer]")
{
  order out[3];
  loop_launcher::run(folding_kernel{out});
  for (std::uint64_t block = 0; block < 3; ++block) {
    std::vector<std::uint64_t> lanes;
    for (std::uint64_t index = 0; index < 32; ++index) lanes.push_back(1000 * block + index + 1);
    for (const std::size_t half : {16U, 8U, 4U, 2U, 1U})
      for (std::size_t index = 0; index < half; ++index) lanes[index] = lanes[index] * 31 + lanes[index + half];
    CHECK(out[block].hash == lanes[0]);
  }
}

TEST_CASE("rows are added up in their order, from a fresh total", "[optimizer]")
{
  chain out[3];
  loop_launcher::run(chain_kernel{out});
  for (std::uint64_t row = 0; row < 3; ++row) {
    std::uint64_t hash = 7;
    for (std::uint64_t index = 0; index < 40 * row; ++index) hash = hash * 31 + 100 * row + index;
    CHECK(out[row].hash == hash);
  }
}

TEST_CASE("a body runs on its agent, in order, and one without work is not enqueued", "[optimizer]")
{
  std::vector<int> out(100, -1);
  cm::backend::host_arena arena{
      {.device_capacity = cm::bytes{1U << 20U}, .host_capacity = cm::bytes{1U << 20U}, .async_compute = true}};
  loop_launcher launcher;
  const auto before = arena.record(cm::agent::compute).value;
  launcher(arena, cm::agent::compute, square_kernel{out.data(), 0});
  CHECK(arena.record(cm::agent::compute).value == before);
  launcher(arena, cm::agent::compute, square_kernel{out.data(), 100});
  arena.wait(cm::agent::host, arena.record(cm::agent::compute));
  CHECK(out[99] == 99 * 99);
}

#if defined(__SSE__)
TEST_CASE("a body knows denormals whatever its thread was told to do with them", "[optimizer]")
{
  const unsigned before = _mm_getcsr();
  auto value = std::bit_cast<float>(1U);
  _mm_setcsr(before | 0x8040U);
  loop_launcher::run(denormal_kernel{&value});
  CHECK(_mm_getcsr() == (before | 0x8040U));
  _mm_setcsr(before);
  CHECK(std::bit_cast<std::uint32_t>(value) == 2);
}
#endif

}  // namespace loop_launcher_test
