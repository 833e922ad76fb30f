// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/interop/dlpack.hpp>

#include "newer_dlpack.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/catch.hpp>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>

namespace dlpack_lend_test {

namespace cm = chunkmem;
using namespace cm::literals;
using Catch::Matchers::ContainsSubstring;
using arena = cm::backend::host_arena;
using manager = cm::manager<arena>;

namespace {

struct rig {
  arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  std::unique_ptr<manager> m = std::make_unique<manager>(memory, cm::manager_options{.chunk_bytes = 4_KiB});
  cm::tensor<float> weight = m->add<float>({4, 8, 32}, cm::role::parameter);
  cm::tensor<float> others[2] = {m->add<float>({1024}, cm::role::buffer), m->add<float>({1024}, cm::role::buffer)};

  /// Takes the whole device for others, where nothing is pinned.
  void push_out()
  {
    const auto first = m->acquire(others[0], cm::access::write);
    const auto second = m->acquire(others[1], cm::access::write);
  }
};

}  // namespace

TEST_CASE("a lent pin describes itself, stays where it is, and ends with the consumer's deleter", "[interop]")
{
  rig it;
  auto pin = it.m->acquire(it.weight, cm::access::write);
  float* const data = pin.data();
  for (std::size_t index = 0; index < 1024; ++index) data[index] = static_cast<float>(index);
  DLManagedTensor* const lent = cm::interop::to_dlpack(std::move(pin), it.m->info(it.weight).extents);
  CHECK_FALSE(pin.is_live());
  const DLTensor& seen = lent->dl_tensor;
  CHECK(seen.data == data);
  CHECK(reinterpret_cast<std::uintptr_t>(seen.data) % 256 == 0);
  CHECK((seen.device.device_type == kDLCPU && seen.device.device_id == 0));
  CHECK(cm::interop::is_same_type(seen.dtype, {kDLFloat, 32, 1}));
  REQUIRE(seen.ndim == 3);
  CHECK((seen.shape[0] == 4 && seen.shape[1] == 8 && seen.shape[2] == 32));
  CHECK((seen.strides[0] == 256 && seen.strides[1] == 32 && seen.strides[2] == 1));
  CHECK(seen.byte_offset == 0);
  CHECK_THROWS_AS(it.push_out(), cm::out_of_memory);  // it is pinned
  CHECK(static_cast<float*>(seen.data)[1023] == 1023);
  lent->deleter(lent);
  CHECK(it.m->state_of(it.weight) == cm::tensor_state::hold);
  it.push_out();
}

TEST_CASE("each element type is lent as itself", "[interop]")
{
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  const auto check = [&](auto one, cm::dtype type) {
    DLManagedTensor* const lent = cm::interop::to_dlpack(m.acquire(one, cm::access::write), {3, 5});
    CHECK(cm::interop::is_same_type(lent->dl_tensor.dtype, cm::interop::dlpack_type_of(type)));
    lent->deleter(lent);
  };
  const auto as_float = m.add<float>({3, 5}, cm::role::buffer);
  const auto as_bf16 = m.add<cm::bf16>({3, 5}, cm::role::buffer);
  const auto as_fp16 = m.add<cm::fp16>({3, 5}, cm::role::buffer);
  const auto as_int32 = m.add<std::int32_t>({3, 5}, cm::role::buffer);
  const auto as_int64 = m.add<std::int64_t>({3, 5}, cm::role::buffer);
  const auto as_uint8 = m.add<std::uint8_t>({3, 5}, cm::role::buffer);
  check(as_float, cm::dtype::float32);
  check(as_bf16, cm::dtype::bfloat16);
  check(as_fp16, cm::dtype::float16);
  check(as_int32, cm::dtype::int32);
  check(as_int64, cm::dtype::int64);
  check(as_uint8, cm::dtype::uint8);
}

TEST_CASE("the newer struct has a version and says who may write", "[interop]")
{
  rig it;
  {
    auto* const lent = cm::interop::to_dlpack<newer_dlpack>(it.m->acquire(it.weight, cm::access::write), {1024});
    CHECK((lent->version.major == 1 && lent->flags == 0));
    CHECK((lent->dl_tensor.ndim == 1 && lent->dl_tensor.shape[0] == 1024));
    lent->deleter(lent);
  }
  for (const cm::access how : std::initializer_list<cm::access>{cm::access::read, cm::access::read_write})
    for (const cm::memory_location place : {cm::memory_location::device, cm::memory_location::host}) {
      auto* const lent = cm::interop::to_dlpack<newer_dlpack>(it.m->acquire(it.weight, how, place), {32, 32});
      CHECK(lent->flags == (how == cm::access::read ? 1U : 0U));
      CHECK(lent->dl_tensor.device.device_type == kDLCPU);
      lent->deleter(lent);
    }
}

TEST_CASE("what cannot be lent is refused, and the pin stays the caller's", "[interop]")
{
  rig it;
  auto pin = it.m->acquire(it.weight, cm::access::write);
  CHECK_THROWS_WITH((void)cm::interop::to_dlpack(std::move(pin), {1023}),
                    ContainsSubstring("1024 elements") && ContainsSubstring("1023"));
  CHECK(pin.is_live());
  pin.release();
  CHECK_THROWS_AS((void)cm::interop::to_dlpack(std::move(pin), {1024}), cm::usage_error);
  manager other{it.memory, {.chunk_bytes = 4_KiB}};
  CHECK_THROWS_AS((void)other.info(it.weight), cm::usage_error);

  rig unfilled;
  (void)unfilled.m->rehearse([&] {
    auto without_bytes = unfilled.m->acquire(unfilled.weight, cm::access::write);
    CHECK_THROWS_WITH((void)cm::interop::to_dlpack(std::move(without_bytes), {1024}), ContainsSubstring("rehearsal"));
    CHECK(without_bytes.is_live());
  });
}

TEST_CASE("with a mailbox the pin ends when it is collected", "[interop]")
{
  rig it;
  cm::interop::dlpack_returns returns;
  DLManagedTensor* const lent =
      cm::interop::to_dlpack(it.m->acquire(it.weight, cm::access::write), {1024}, {.returns = &returns});
  lent->deleter(lent);
  CHECK(it.m->state_of(it.weight) == cm::tensor_state::compute);
  CHECK_THROWS_AS(it.push_out(), cm::out_of_memory);
  CHECK(returns.collect() == 1);
  CHECK(it.m->state_of(it.weight) == cm::tensor_state::hold);
  it.push_out();
}

TEST_CASE("a deleter that is called after the manager went frees what is left and touches nothing", "[interop]")
{
  rig it;
  DLManagedTensor* const lent = cm::interop::to_dlpack(it.m->acquire(it.weight, cm::access::write), {1024});
  it.m.reset();
  lent->deleter(lent);
}

}  // namespace dlpack_lend_test
