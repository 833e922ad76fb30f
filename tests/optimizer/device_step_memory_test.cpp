// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/device_optimizer.hpp>

#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <support/catch.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace device_step_memory_test {

using namespace chunkmem::optimizer;

namespace {

template <class Kernel>
void places_are_apart(const device_step_sizes& sizes)
{
  using memory_type = device_step_memory<Kernel>;
  struct alignas(16) quad {
    char bytes[16];
  };
  const std::uint64_t size = memory_type::size(sizes).count();
  std::vector<quad> owner(size / 16 + 1);
  auto* const start = reinterpret_cast<std::byte*>(owner.data());
  const memory_type memory{start, sizes};
  std::uint64_t end = 0;
  const auto follows = [&](const auto* place, std::uint64_t count) {
    const auto at = static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(place) - start);
    CHECK(at >= end);
    CHECK(at < end + 16);
    CHECK(at % alignof(std::remove_cvref_t<decltype(*place)>) == 0);
    end = at + count * sizeof(*place);
  };
  follows(memory.state(), 1);
  follows(memory.rates(), sizes.groups);
  CHECK(memory.host_bytes().count() == end);
  follows(memory.factors(), sizes.groups);
  follows(memory.ranges(), sizes.parameters);
  follows(memory.measures(), sizes.parameters);
  follows(memory.sums(), sizes.blocks);
  CHECK(size == end);
}

}  // namespace

TEST_CASE("places in the memory of a device step follow each other, aligned and apart", "[optimizer]")
{
  for (const device_step_sizes& sizes :
       {device_step_sizes{}, device_step_sizes{1, 1, 1}, device_step_sizes{3, 7, 100}}) {
    places_are_apart<adam>(sizes);
    places_are_apart<sgd>(sizes);
  }
}

TEST_CASE("the memory of a device step costs what its comment says", "[optimizer]")
{
  CHECK(device_step_memory<adam>::size({2, 10, 1000}).count() == 72 + 2 * (4 + 48) + 10 * 40 + 1000 * 24);
}

}  // namespace device_step_memory_test
