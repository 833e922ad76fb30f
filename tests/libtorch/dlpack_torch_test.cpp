// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/DLConvertor.h>
#include <ATen/dlpack.h>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/interop/dlpack.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace dlpack_torch_test {

namespace cm = chunkmem;
using namespace cm::literals;
using arena = cm::backend::host_arena;
using manager = cm::manager<arena>;

namespace {

template <class Element>
inline constexpr at::ScalarType scalar_of = at::kFloat;
template <>
inline constexpr at::ScalarType scalar_of<cm::bf16> = at::kBFloat16;
template <>
inline constexpr at::ScalarType scalar_of<cm::fp16> = at::kHalf;
template <>
inline constexpr at::ScalarType scalar_of<std::int32_t> = at::kInt;
template <>
inline constexpr at::ScalarType scalar_of<std::int64_t> = at::kLong;
template <>
inline constexpr at::ScalarType scalar_of<std::uint8_t> = at::kByte;

/// Bits of all kinds: of every fourth eight bytes the real numbers are NaNs with payloads.
std::vector<std::byte> some_bits(std::size_t size)
{
  std::vector<std::byte> result(size);
  for (std::size_t index = 0; index < size / 8; ++index) {
    std::uint64_t bits = (index + 1) * 0x9e37'79b9'7f4a'7c15U;
    if (index % 4 == 0) bits |= 0x7f81'7f81'7f81'7f81U;
    std::memcpy(result.data() + 8 * index, &bits, 8);
  }
  return result;
}

}  // namespace

TEMPLATE_TEST_CASE("LibTorch sees the bits of a lent tensor, writes to it, and its tensors fill weights", "[libtorch]",
                   float, cm::bf16, cm::fp16, std::int32_t, std::int64_t, std::uint8_t)
{
  arena memory{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  const auto weight = m.add<TestType>({3, 4, 32}, cm::role::buffer);
  const auto other = m.add<TestType>({4, 32, 3}, cm::role::buffer);
  std::vector<std::byte> bits = some_bits(384 * sizeof(TestType));
  std::ranges::copy(bits, std::as_writable_bytes(m.acquire(weight, cm::access::write).span()).begin());
  {
    auto pin = m.acquire(weight, cm::access::read_write);
    const void* const place = pin.data();
    at::Tensor seen = at::fromDLPack(cm::interop::to_dlpack(std::move(pin), m.info(weight).extents));
    CHECK((seen.scalar_type() == scalar_of<TestType> && seen.sizes() == at::IntArrayRef{3, 4, 32} &&
           seen.is_contiguous()));
    CHECK(seen.data_ptr() == place);
    CHECK(std::memcmp(seen.data_ptr(), bits.data(), seen.nbytes()) == 0);
    at::Tensor view = seen.select(0, 1);
    seen.reset();
    CHECK(m.state_of(weight) == cm::tensor_state::compute);  // the view has the storage, and with it the pin
    view.zero_();
  }
  CHECK(m.state_of(weight) == cm::tensor_state::hold);
  std::memset(bits.data() + bits.size() / 3, 0, bits.size() / 3);
  CHECK(std::ranges::equal(std::as_bytes(m.acquire(weight, cm::access::read).span()), bits));

  at::Tensor foreign = at::empty({3, 4, 32}, scalar_of<TestType>);
  std::memcpy(foreign.data_ptr(), bits.data(), foreign.nbytes());
  const auto count = foreign.use_count();
  {
    const auto turned = cm::interop::own_dlpack(at::toDLPack(foreign.permute({1, 2, 0})));
    cm::interop::fill(m, other, turned->dl_tensor);
  }
  CHECK(foreign.use_count() == count);
  const auto pin = m.acquire(other, cm::access::read);
  const at::Tensor expected = foreign.permute({1, 2, 0}).contiguous();
  CHECK(std::memcmp(pin.data(), expected.data_ptr(), expected.nbytes()) == 0);
}

}  // namespace dlpack_torch_test
