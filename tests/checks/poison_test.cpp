// SPDX-License-Identifier: Apache-2.0
#include "mistakes.hpp"

#include <support/catch.hpp>

#include <algorithm>
#include <cmath>
#include <span>

namespace poison_test {

using namespace mistakes;

namespace {

bool all_are_nan(std::span<const float> values)
{
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isnan(value); });
}

}  // namespace

TEST_CASE("bytes that nobody has written are NaN", "[checks]")
{
  cm::backend::host_arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  cm::manager<cm::backend::host_arena, cm::checks::full> m{memory, {.chunk_bytes = 4_KiB}};
  const auto w = m.add<float>({100}, cm::role::parameter);
  const auto half = m.add<cm::bf16>({100}, cm::role::buffer);
  CHECK(all_are_nan(m.acquire(w, cm::access::write).span()));
  const auto pin = m.acquire(half, cm::access::write, cm::memory_location::host);
  CHECK(std::isnan(cm::to_float(pin.span()[99])));
  const auto lease = m.lease(cm::tier::device, 1_KiB);
  CHECK(all_are_nan(lease.span<float>()));
}

TEST_CASE("bytes that are to be overwritten are NaN again", "[checks]")
{
  rig<> it;
  CHECK(it.m.acquire(it.weights.slice(1), cm::access::read).span()[5] == 1.0F);
  CHECK(all_are_nan(it.m.acquire(it.weights.slice(1), cm::access::write).span()));
}

TEST_CASE("a lease that ended and a tensor that was dropped leave NaN", "[checks]")
{
  rig<> it;
  const float* of_lease = nullptr;
  {
    const auto lease = it.m.lease(cm::tier::device, 256_B);
    const auto values = lease.span<float>();
    std::fill(values.begin(), values.end(), 1.0F);
    of_lease = values.data();
  }
  CHECK(holds_nan(of_lease));
  const float* const of_tensor = it.m.acquire(it.weights.slice(2), cm::access::read).span().data();
  CHECK_FALSE(holds_nan(of_tensor));
  it.m.drop(it.weights.slice(2));
  CHECK(holds_nan(of_tensor));
  CHECK(it.m.acquire(it.weights.slice(1), cm::access::read).span()[0] == 1.0F);
  CHECK_NOTHROW(it.m.verify());
}

TEST_CASE("a drop before the first access does nothing", "[checks]")
{
  cm::backend::host_arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  cm::manager<cm::backend::host_arena, cm::checks::full> m{memory, {.chunk_bytes = 4_KiB}};
  cm::optimizer::sgd sgd;
  m.use(sgd);
  const auto activation = m.add<float>({100}, cm::role::activation);
  CHECK_NOTHROW(m.drop(activation));
  CHECK(m.state_of(activation) == cm::tensor_state::free);
}

TEST_CASE("lists of an optimizer begin at zero all the same", "[checks]")
{
  rig<> it;
  cm::backend::host_arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  cm::manager<cm::backend::host_arena, cm::checks::full> m{memory, {.chunk_bytes = 4_KiB}};
  const cm::list_spec lists[] = {{"momentum", cm::dtype::float32, 1, cm::list_use::state}};
  m.use(lists);
  const auto w = m.add<float>({100}, cm::role::parameter);
  CHECK(m.acquire<float>(w, m.list("momentum"), cm::access::read, cm::memory_location::host).span()[99] == 0.0F);
  CHECK_NOTHROW(m.verify());
}

}  // namespace poison_test
