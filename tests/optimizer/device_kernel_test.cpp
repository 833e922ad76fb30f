// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/device_kernel.hpp>

#include <support/catch.hpp>

#include <string>

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
