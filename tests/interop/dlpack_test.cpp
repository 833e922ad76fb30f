// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/interop/dlpack.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>
#include "newer_dlpack.hpp"

namespace dlpack_type_test {

using namespace chunkmem;

TEST_CASE("each element type has a DLPack type of its own and of its size", "[interop]")
{
  std::set<std::tuple<int, int, int>> seen;
  for (const dtype type : {dtype::float32, dtype::bfloat16, dtype::float16, dtype::int32, dtype::int64, dtype::uint8}) {
    const DLDataType it = interop::dlpack_type_of(type);
    CHECK(it.bits == 8 * size_of(type));
    CHECK(it.lanes == 1);
    CHECK(interop::is_same_type(it, interop::dlpack_type_of(type)));
    seen.insert({it.code, it.bits, it.lanes});
  }
  CHECK(seen.size() == 6);
  CHECK(interop::dlpack_type_of(dtype::bfloat16).code == kDLBfloat);
  CHECK(interop::dlpack_type_of(dtype::float16).code == kDLFloat);
  CHECK(interop::dlpack_type_of(dtype::uint8).code == kDLUInt);
  CHECK_FALSE(interop::is_same_type({kDLFloat, 32, 1}, {kDLFloat, 32, 4}));
  CHECK_FALSE(interop::is_same_type({kDLFloat, 32, 1}, {kDLInt, 32, 1}));
  CHECK_FALSE(interop::is_same_type({kDLFloat, 32, 1}, {kDLFloat, 64, 1}));
}

TEST_CASE("the calling thread reads the memory of the host, pinned and managed memory, and no other", "[interop]")
{
  for (const DLDeviceType readable : {kDLCPU, kDLCUDAHost, kDLCUDAManaged})
    CHECK(interop::is_readable_here({readable, 0}));
  for (const DLDeviceType foreign : {kDLCUDA, kDLROCM, kDLMetal, kDLVulkan})
    CHECK_FALSE(interop::is_readable_here({foreign, 0}));
}

}  // namespace dlpack_type_test

namespace dlpack_returns_test {

using namespace chunkmem;
using interop::dlpack_returns;

namespace {

struct counted final : interop::lent_tensor {
  explicit counted(int& ended) : ended_{ended} {}
  ~counted() override { ++ended_; }
  int& ended_;
};

}  // namespace

TEST_CASE("tensors that come back end when they are collected, not before", "[interop]")
{
  int ended = 0;
  dlpack_returns returns;
  CHECK(returns.collect() == 0);
  for (int round = 0; round < 3; ++round)
    dlpack_returns::address::drop(dlpack_returns::address{returns}, new counted{ended});
  CHECK(ended == 0);
  CHECK(returns.collect() == 3);
  CHECK(ended == 3);
  CHECK(returns.collect() == 0);
  CHECK_FALSE(dlpack_returns::address{}.is_known());
}

TEST_CASE("tensors end too where the mailbox went before them or with them", "[interop]")
{
  int ended = 0;
  std::optional<dlpack_returns> returns{std::in_place};
  dlpack_returns::address late{*returns};
  dlpack_returns::address::drop(dlpack_returns::address{*returns}, new counted{ended});
  returns.reset();
  CHECK(ended == 0);  // one that is out still has the box
  dlpack_returns::address::drop(std::move(late), new counted{ended});
  CHECK(ended == 2);
}

TEST_CASE("any thread may bring tensors back while they are collected", "[interop]")
{
  constexpr int each = 500;
  int ended = 0;  // of the collecting thread alone
  dlpack_returns returns;
  std::size_t collected = 0;
  {
    std::vector<std::thread> threads;
    for (int who = 0; who < 2; ++who)
      threads.emplace_back([&, to = dlpack_returns::address{returns}] {
        for (int index = 0; index < each; ++index) dlpack_returns::address::drop(to, new counted{ended});
      });
    for (int index = 0; index < each; ++index) collected += returns.collect();
    for (auto& it : threads) it.join();
  }
  collected += returns.collect();
  CHECK(collected == 2 * each);
  CHECK(ended == 2 * each);
}

}  // namespace dlpack_returns_test

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

namespace dlpack_take_test {

namespace cm = chunkmem;
using namespace cm::literals;
using Catch::Matchers::ContainsSubstring;
using arena = cm::backend::host_arena;
using manager = cm::manager<arena>;

namespace {

/// A foreign tensor over elements of one type.
template <class Element>
struct foreign {
  foreign(std::vector<std::int64_t> its_extents, std::size_t room) : extents{std::move(its_extents)}, elements(room)
  {
    auto* const bytes = reinterpret_cast<unsigned char*>(elements.data());
    for (std::size_t index = 0; index < room * sizeof(Element); ++index)
      bytes[index] = static_cast<unsigned char>(index * 37 + 11);
  }
  DLTensor tensor()
  {
    return {elements.data(),
            {kDLCPU, 0},
            static_cast<int>(extents.size()),
            cm::interop::dlpack_type_of(cm::dtype_of<Element>),
            extents.data(),
            strides.empty() ? nullptr : strides.data(),
            0};
  }
  std::vector<std::int64_t> extents;
  std::vector<std::int64_t> strides;
  std::vector<Element> elements;
};

template <class Element>
bool same_bits(const Element& left, const Element& right)
{
  return std::memcmp(&left, &right, sizeof left) == 0;
}

int ended = 0;
void count_end(DLManagedTensor*)
{
  ++ended;
}
void count_newer_end(newer_dlpack*)
{
  ++ended;
}

}  // namespace

TEST_CASE("every bit of a foreign tensor arrives, in the usual order, whatever its strides", "[interop]")
{
  foreign<float> it{{3, 4}, 32};
  std::vector<float> got(12);
  cm::interop::copy_of<float>(it.tensor(), got);
  CHECK(std::memcmp(got.data(), it.elements.data(), 48) == 0);
  CHECK(cm::interop::span_of<float>(it.tensor()).data() == it.elements.data());

  it.strides = {1, 3};  // columns first
  cm::interop::copy_of<float>(it.tensor(), got);
  for (std::size_t row = 0; row < 3; ++row)
    for (std::size_t column = 0; column < 4; ++column)
      CHECK(same_bits(got[row * 4 + column], it.elements[row + 3 * column]));
  CHECK_THROWS_WITH(cm::interop::span_of<float>(it.tensor()), ContainsSubstring("another order"));

  it.strides = {-8, 2};  // backwards, with gaps
  DLTensor backwards = it.tensor();
  backwards.byte_offset = 16 * sizeof(float);
  cm::interop::copy_of<float>(backwards, got);
  for (std::size_t row = 0; row < 3; ++row)
    for (std::size_t column = 0; column < 4; ++column)
      CHECK(same_bits(got[row * 4 + column], it.elements[16 - 8 * row + 2 * column]));

  it.strides = {0, 1};  // one row three times
  cm::interop::copy_of<float>(it.tensor(), got);
  CHECK((same_bits(got[0], it.elements[0]) && same_bits(got[8], it.elements[0])));
}

TEST_CASE("axes of one element have any stride, and no element is read of an empty tensor", "[interop]")
{
  foreign<std::int32_t> it{{1, 4, 1}, 4};
  it.strides = {77, 1, -3};
  CHECK(cm::interop::span_of<std::int32_t>(it.tensor()).size() == 4);
  it.extents = {4, 0, 2};
  DLTensor empty = it.tensor();
  empty.data = nullptr;
  CHECK(cm::interop::span_of<std::int32_t>(empty).empty());
  cm::interop::copy_of<std::int32_t>(empty, {});
  foreign<std::int32_t> scalar{{}, 1};
  std::int32_t got = 0;
  cm::interop::copy_of<std::int32_t>(scalar.tensor(), {&got, 1});
  CHECK(got == scalar.elements[0]);
}

TEST_CASE("the usual order is that of all axes together", "[interop]")
{
  foreign<std::uint8_t> it{{2, 3, 4}, 64};
  it.strides = {12, 4, 1};
  CHECK(cm::interop::span_of<std::uint8_t>(it.tensor()).size() == 24);
  std::vector<std::uint8_t> got(24);
  // gaps, and planes over each other
  for (const std::int64_t plane : {std::int64_t{20}, std::int64_t{4}, std::int64_t{3}}) {
    it.strides[0] = plane;
    CHECK_THROWS_AS(cm::interop::span_of<std::uint8_t>(it.tensor()), cm::usage_error);
    cm::interop::copy_of<std::uint8_t>(it.tensor(), got);
    CHECK(got[12 + 5] == it.elements[static_cast<std::size_t>(plane) + 5]);
  }
}

TEST_CASE("elements that are not aligned are copied and not looked at in place", "[interop]")
{
  foreign<float> it{{3}, 4};
  DLTensor odd = it.tensor();
  odd.byte_offset = 2;
  CHECK_THROWS_WITH(cm::interop::span_of<float>(odd), ContainsSubstring("not aligned"));
  std::vector<float> got(3);
  cm::interop::copy_of<float>(odd, got);
  CHECK(std::memcmp(got.data(), reinterpret_cast<const std::byte*>(it.elements.data()) + 2, 12) == 0);
}

TEST_CASE("a foreign tensor that is not what is wanted is refused with a reason", "[interop]")
{
  foreign<float> it{{3, 4}, 12};
  std::vector<float> got(12, 7.0F);
  const auto refused = [&](DLTensor changed, const char* why) {
    CHECK_THROWS_AS(cm::interop::copy_of<float>(changed, got), cm::usage_error);
    CHECK_THROWS_WITH(cm::interop::copy_of<float>(changed, got), ContainsSubstring(why));
    CHECK_THROWS_AS(cm::interop::span_of<float>(changed), cm::usage_error);
  };
  DLTensor wrong = it.tensor();
  wrong.dtype = {kDLFloat, 64, 1};
  refused(wrong, "64 bits");
  wrong.dtype = {kDLInt, 32, 1};
  refused(wrong, "wanted is float32");
  wrong.dtype = {kDLFloat, 32, 4};
  refused(wrong, "4 lanes");
  wrong = it.tensor();
  wrong.device = {kDLCUDA, 0};
  refused(wrong, "not the host's");
  wrong = it.tensor();
  wrong.data = nullptr;
  refused(wrong, "no bytes");
  wrong = it.tensor();
  wrong.shape = nullptr;
  refused(wrong, "no shape");
  wrong = it.tensor();
  wrong.ndim = -1;
  refused(wrong, "no shape");
  wrong.ndim = 1'000'000;
  refused(wrong, "too many axes");
  std::int64_t negative[] = {3, -4};
  wrong = it.tensor();
  wrong.shape = negative;
  refused(wrong, "negative");
  std::int64_t huge[] = {INT64_MAX, INT64_MAX};
  wrong.shape = huge;
  CHECK_THROWS_AS(cm::interop::copy_of<float>(wrong, got), cm::size_overflow);
  std::int64_t too_many_bytes[] = {INT64_MAX, 1};
  wrong.shape = too_many_bytes;
  CHECK_THROWS_AS(cm::interop::copy_of<float>(wrong, got), cm::size_overflow);
  CHECK_THROWS_WITH(cm::interop::copy_of<float>(it.tensor(), std::span{got}.first(11)),
                    ContainsSubstring("12 elements") && ContainsSubstring("11"));
  for (const float untouched : got) CHECK(untouched == 7.0F);
}

TEST_CASE("a weight is filled from a foreign tensor of its shape, on either tier, NaN payloads included", "[interop]")
{
  arena memory{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  const auto weight = m.add<cm::bf16>({2, 1, 32768 / 32}, cm::role::parameter);
  foreign<cm::bf16> it{{2, 1, 1024}, 2048};
  // many of them NaN
  for (std::size_t index = 0; index < 2048; ++index)
    it.elements[index] = cm::bf16::from_bits(static_cast<std::uint16_t>(index * 32 + 1));
  for (const cm::memory_location place : {cm::memory_location::device, cm::memory_location::host}) {
    cm::interop::fill(m, weight, it.tensor(), place);
    const auto pin = m.acquire(weight, cm::access::read);
    CHECK(std::memcmp(pin.data(), it.elements.data(), 4096) == 0);
    for (auto& element : it.elements) element = cm::bf16::from_bits(static_cast<std::uint16_t>(element.bits() + 5));
  }
  it.extents = {1, 2, 1024};
  CHECK_THROWS_WITH(cm::interop::fill(m, weight, it.tensor()), ContainsSubstring("shape"));
  it.extents = {2048};
  CHECK_THROWS_WITH(cm::interop::fill(m, weight, it.tensor()), ContainsSubstring("shape"));
  const auto held = m.acquire(weight, cm::access::read);
  it.extents = {2, 1, 1024};
  CHECK_THROWS_AS(cm::interop::fill(m, weight, it.tensor(), cm::memory_location::host), cm::usage_error);
}

TEST_CASE("what a manager lends can be taken again", "[interop]")
{
  arena memory{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  const auto from = m.add<std::int64_t>({4, 4}, cm::role::buffer);
  const auto to = m.add<std::int64_t>({4, 4}, cm::role::frozen);
  foreign<std::int64_t> it{{4, 4}, 16};
  cm::interop::fill(m, from, it.tensor());
  {
    const auto lent =
        cm::interop::own_dlpack(cm::interop::to_dlpack_without_const(m.acquire(from, cm::access::read), {4, 4}));
    cm::interop::fill(m, to, lent->dl_tensor);
    CHECK(m.state_of(from) == cm::tensor_state::compute);
  }
  CHECK(m.state_of(from) == cm::tensor_state::hold);
  CHECK(std::memcmp(m.acquire(to, cm::access::read).span().data(), it.elements.data(), 128) == 0);
}

TEST_CASE("a single number and a tensor without elements are lent and taken with their extents", "[interop]")
{
  arena memory{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  const auto number = m.add<float>({}, cm::role::frozen);
  const auto nothing = m.add<float>({2, 0}, cm::role::frozen);
  foreign<float> one{{}, 1}, none{{2, 0}, 0}, row{{1}, 1};
  cm::interop::fill(m, number, one.tensor());
  cm::interop::fill(m, nothing, none.tensor());
  CHECK_THROWS_AS(cm::interop::fill(m, number, row.tensor()), cm::usage_error);
  const auto lent =
      cm::interop::own_dlpack(cm::interop::to_dlpack_without_const(m.acquire(number, cm::access::read), {}));
  CHECK(lent->dl_tensor.ndim == 0);
  CHECK(same_bits(*static_cast<const float*>(lent->dl_tensor.data), one.elements[0]));
  const auto empty =
      cm::interop::own_dlpack(cm::interop::to_dlpack_without_const(m.acquire(nothing, cm::access::read), {2, 0}));
  CHECK((empty->dl_tensor.ndim == 2 && empty->dl_tensor.shape[1] == 0));
}

TEST_CASE("a tensor that was handed over ends once, also where its version is not known", "[interop]")
{
  ended = 0;
  DLManagedTensor older{};
  older.deleter = &count_end;
  (void)cm::interop::own_dlpack(&older);
  CHECK(ended == 1);
  newer_dlpack newer;
  newer.deleter = &count_newer_end;
  newer.version.major = 1;
  newer.version.minor = 99;
  (void)cm::interop::own_dlpack(&newer);
  CHECK(ended == 2);
  newer.version.major = 2;
  CHECK_THROWS_WITH((void)cm::interop::own_dlpack(&newer), ContainsSubstring("version 2"));
  CHECK(ended == 3);
  older.deleter = nullptr;  // allowed: nothing to tell
  (void)cm::interop::own_dlpack(&older);
  CHECK_THROWS_AS((void)cm::interop::own_dlpack(static_cast<DLManagedTensor*>(nullptr)), cm::usage_error);
}

}  // namespace dlpack_take_test
