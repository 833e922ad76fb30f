// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/interop/dlpack.hpp>

#include <support/catch.hpp>

#include <set>
#include <tuple>

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
