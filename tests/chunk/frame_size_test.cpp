// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/chunk_layout.hpp>

#include <support/catch.hpp>

namespace frame_size_test {

using namespace chunkmem;

TEST_CASE("a frame is a positive multiple of 256 bytes", "[chunk]")
{
  for (const std::uint64_t wrong : {0U, 1U, 255U, 257U, 1'000U}) CHECK_THROWS_AS(frame_size{bytes{wrong}}, usage_error);
  CHECK(frame_size{bytes{768}}.count() == 768);
  CHECK(frame_size{}.count() == 256);
}

TEST_CASE("a tensor takes whole units of the alignment, and at least one", "[chunk]")
{
  CHECK(frame_size::padded(bytes{0}) == 256);
  CHECK(frame_size::padded(bytes{1}) == 256);
  CHECK(frame_size::padded(bytes{256}) == 256);
  CHECK(frame_size::padded(bytes{257}) == 512);
  CHECK_THROWS_AS(frame_size::padded(bytes{UINT64_MAX}), size_overflow);
}

TEST_CASE("frames for bytes, and from which frame on they are fewer, agree with trying each size", "[chunk]")
{
  for (std::uint64_t frame = 256; frame <= 4'096; frame += 256)
    for (std::uint64_t need = 256; need <= 20'000; need += 256) {
      const frame_size size{bytes{frame}};
      std::uint64_t expected = 1;
      while (expected * frame < need) ++expected;
      if (size.frames_for(need) != expected) FAIL(need << " B in frames of " << frame);
      std::uint64_t larger = frame + 256;
      while (expected > 1 && frame_size{bytes{larger}}.frames_for(need) == expected) larger += 256;
      if (size.fewer_from(need) != (expected == 1 ? frame_size::never : larger))
        FAIL(need << " B, fewer than with " << frame);
    }
  CHECK(frame_size::holds_from(513, 1) == 768);
  CHECK(frame_size::holds_from(UINT64_MAX, 1) == frame_size::never);
  CHECK_THROWS_AS(frame_size{}.frames_for(std::uint64_t{1} << 40), size_overflow);
  CHECK(frame_size{}.frames_for((std::uint64_t{1} << 40) - 256) == UINT32_MAX);
}

}  // namespace frame_size_test
