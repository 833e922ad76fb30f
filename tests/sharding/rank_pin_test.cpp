// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/rank_pin.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace rank_pin_test {

using namespace chunkmem;
using model_type = sharded_model<backend::host_arena, collective::self>;

struct rig {
  static constexpr bytes frame{65536};
  backend::host_arena memory{{.device_capacity = frame * 8, .host_capacity = frame * 8}};
  collective::self alone;
  model_type m{memory, alone, {.chunk_bytes = frame}};
  tensor<float> first = m.add<float>({100}, role::parameter);
  tensor<float> second = m.add<float>({200}, role::parameter);
  tensor<std::int32_t> own = m.add<std::int32_t>({10}, role::buffer);
};

TEST_CASE("a weight that is written becomes a share when its pin ends, and is read whole", "[sharding]")
{
  rig it;
  for (const auto which : {it.first, it.second}) {
    auto pin = it.m.acquire(which, access::write);
    REQUIRE(pin.span().size() == pin.size());
    std::iota(pin.span().begin(), pin.span().end(), static_cast<float>(pin.size()));
    auto moved = std::move(pin);
    CHECK(moved.data()[1] == static_cast<float>(moved.size()) + 1);
  }
  auto read = it.m.acquire(it.second, access::read);
  CHECK(read.size() == 200);
  CHECK(read.span()[199] == 399);
  CHECK(read.of() == it.second);
  float sum = 0;
  for (const float value : it.m.acquire(it.first, access::read).span()) sum += value;
  CHECK(sum == 100 * 100 + 99 * 50);
  read.release();
  CHECK_THROWS_AS(read.data(), usage_error);
}

TEST_CASE("tensors of a rank's own are pinned as in a manager", "[sharding]")
{
  rig it;
  it.m.acquire(it.own, access::write, memory_location::host).span()[3] = 7;
  CHECK(it.m.acquire(it.own, access::read).span()[3] == 7);
  CHECK(it.m.acquire(it.own, access::read).size() == 10);
}

TEST_CASE("a gradient says whether there is something to add to", "[sharding]")
{
  rig it;
  {
    const auto pin = it.m.acquire(it.first, access::write);
  }
  auto scope = it.m.iteration();
  {
    const auto gradient = it.m.gradient(it.m.acquire(it.first, access::read));
    CHECK((gradient.beta() == 0 && gradient.size() == 100 && gradient.span().size() == 100));
    gradient.span()[0] = 2;
  }
  const auto again = it.m.gradient(it.first);
  CHECK((again.beta() == 1 && again.data()[0] == 2));
}

TEST_CASE("of what was written a rank keeps its own part, in its place, when the pin ends", "[sharding]")
{
  using manager_type = model_type::manager_type;
  rig it;
  auto& own = it.m.shares();
  const auto share = it.own;  // any tensor of a manager will do
  {
    const auto fill = it.m.acquire(share, access::write, memory_location::host);
  }
  const tensor<std::int32_t> kept{[&] {
    tensor_handle found;
    own.for_each_tensor([&](tensor_handle one, const tensor_info& info) {
      if (info.type == dtype::int32) found = one;
    });
    return found;
  }()};
  {
    auto pin = own.acquire(kept, access::write, memory_location::host);
    std::fill_n(pin.span().begin(), 10, -1);
  }
  {
    sharding::filling<std::int32_t, manager_type> fill;
    for (int value = 0; value < 20; ++value) fill.all.push_back(value);
    fill.kept = own.acquire(kept, access::read_write, memory_location::host);
    fill.first = 12;
    fill.begin = 3;
    fill.elements = 4;
  }
  const auto pin = own.acquire(kept, access::read, memory_location::host);
  CHECK(std::vector<std::int32_t>(pin.span().begin(), pin.span().end()) ==
        std::vector<std::int32_t>{-1, -1, -1, 12, 13, 14, 15, -1, -1, -1});
}

TEST_CASE("pins that are released hold nothing, whatever they were of", "[sharding]")
{
  rig it;
  auto filled = it.m.acquire(it.first, access::write);
  CHECK_THROWS_AS(it.m.acquire(it.first, access::read), usage_error);
  filled.span()[99] = 5;
  filled.release();
  CHECK_THROWS_AS(filled.data(), usage_error);
  CHECK(it.m.acquire(it.first, access::read).span()[99] == 5);
  const auto scratch = it.m.acquire(it.own, access::write, memory_location::host);
  auto again = it.m.acquire(it.own, access::read, memory_location::host);
  again.release();
  CHECK_THROWS_AS(again.data(), usage_error);
  CHECK(scratch.data() != nullptr);
}

TEST_CASE("gradients of one unit lie side by side, each at its own place", "[sharding]")
{
  rig it;
  for (const auto which : {it.first, it.second}) {
    const auto pin = it.m.acquire(which, access::write);
  }
  const auto scope = it.m.iteration();
  const auto first = it.m.gradient(it.first);
  const auto second = it.m.gradient(it.second);
  CHECK(second.data() - first.data() == 4096);
  CHECK((second.span().data() == second.data() && second.size() == 200 && second.of() == it.second));
}

}  // namespace rank_pin_test
