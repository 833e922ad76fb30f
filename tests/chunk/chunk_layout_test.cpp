// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/chunk_layout.hpp>

#include <chunkmem/chunk/layouts.hpp>

#include <conformance/chunk_layout.hpp>
#include <support/catch.hpp>

#include <string>
#include <vector>

namespace chunk_layout_test {

using namespace chunkmem;

namespace {

/// The functions of the concept and nothing else: a chunk for each tensor.
class one_each {
 public:
  using policy_kind = layout_kind;
  static constexpr std::string_view name = "one_each";
  void reset(bytes frame)
  {
    frame_ = frame_size{frame};
    next_ = 0;
  }
  chunk_place place(bytes size)
  {
    const std::uint32_t frames = frame_.frames_for(frame_size::padded(size));  // it may throw
    return {next_++, 0, frames};
  }

 private:
  frame_size frame_;
  std::uint32_t next_ = 0;
};
static_assert(chunk_layout<one_each>);
static_assert(!arranging_layout<one_each> && !searchable_layout<one_each>);

struct without_place : one_each {
  chunk_place place(bytes size) = delete;
};
struct without_reset : one_each {
  void reset(bytes frame) = delete;
};
struct that_needs_settings : one_each {
  explicit that_needs_settings(int) {}
};
struct of_another_kind : one_each {
  using policy_kind = eviction_kind;
};
static_assert(!chunk_layout<without_place> && !chunk_layout<without_reset> && !chunk_layout<that_needs_settings> &&
              !chunk_layout<of_another_kind>);

}  // namespace

TEST_CASE("the laws of a layout hold for a chunk for each tensor", "[chunk]")
{
  conformance::chunk_layout_laws<one_each>();
}

TEST_CASE("the laws of a layout notice each kind of mistake", "[chunk]")
{
  using conformance::mistake_in;
  const std::vector<std::uint64_t> two{300, 300};
  CHECK(mistake_in(two, {{0, 0, 1}, {0, 512, 1}}, 1'024).empty());
  CHECK(mistake_in(two, {{0, 0, 1}, {0, 300, 1}}, 1'024) == "a place is not aligned");
  CHECK(mistake_in(two, {{0, 0, 1}, {0, 256, 1}}, 1'024) == "two tensors share a byte");
  CHECK(mistake_in(two, {{0, 0, 1}, {2, 0, 1}}, 1'024) == "a chunk was passed over");
  CHECK(mistake_in(two, {{0, 0, 1}, {0, 768, 1}}, 1'024) == "a tensor reaches beyond its chunk");
  CHECK(mistake_in(two, {{0, 0, 2}, {0, 512, 2}}, 1'024) == "a chunk has the wrong length");
}

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

namespace {

/// Fills chunks from the last tensor to the first, and names the chunks by the first tensor in them.
struct backwards : append_layout {
  static constexpr std::string_view name = "backwards";
  void arrange(std::span<const bytes> sizes, std::span<chunk_place> places)
  {
    for (std::size_t index = sizes.size(); index-- > 0;) places[index] = place(sizes[index]);
    if (places.empty()) return;
    const std::uint32_t last = places.front().chunk;
    for (chunk_place& place : places) place.chunk = last - place.chunk;
  }
};
static_assert(arranging_layout<backwards> && !arranging_layout<append_layout>);

struct with_sizes_alone : append_layout {
  void arrange(std::span<const bytes> sizes);
};
static_assert(!arranging_layout<with_sizes_alone>);

}  // namespace

TEST_CASE("the laws of a layout hold for one that arranges from the last tensor on", "[chunk]")
{
  conformance::chunk_layout_laws<backwards>();
}

namespace {

/// Returns too small a number, which is allowed: a search tries more sizes than it must.
struct careful : append_layout {
  static constexpr std::string_view name = "careful";
  [[nodiscard]] bytes changes_at() const { return changes_; }
  void reset(bytes frame)
  {
    append_layout::reset(frame);
    changes_ = frame + bytes{512};
  }
  chunk_place place(bytes size)
  {
    const chunk_place result = append_layout::place(size);
    changes_ = std::min(changes_, append_layout::changes_at());
    return result;
  }
  bytes changes_;
};
static_assert(searchable_layout<careful>);

struct with_a_number : append_layout {
  [[nodiscard]] std::uint64_t changes_at() const;
};
static_assert(!searchable_layout<with_a_number>);

}  // namespace

TEST_CASE("a layout may say that a decision changes earlier than it does", "[chunk]")
{
  conformance::searchable_layout_laws<careful>();
}

namespace {

struct all_apart : append_layout {
  static constexpr std::string_view name = "all_apart";
  void arrange(std::span<const bytes> sizes, std::span<chunk_place> places)
  {
    for (std::size_t index = 0; index < sizes.size(); ++index)
      places[index] = {static_cast<std::uint32_t>(index), 0, 1};
  }
};

}  // namespace

TEST_CASE("all tensors are arranged where a layout can, and placed one by one where it cannot", "[chunk]")
{
  const std::vector<bytes> sizes{bytes{256}, bytes{256}, bytes{512}};
  std::vector<chunk_place> places(3);
  append_layout plain;
  plain.reset(bytes{512});
  place_all(plain, sizes, places);
  CHECK(places == std::vector<chunk_place>{{0, 0, 1}, {0, 256, 1}, {1, 0, 1}});
  all_apart arranging;
  arranging.reset(bytes{512});
  place_all(arranging, sizes, places);
  CHECK(places == std::vector<chunk_place>{{0, 0, 1}, {1, 0, 1}, {2, 0, 1}});
}

TEST_CASE("sizes and places must be as many", "[chunk]")
{
  append_layout layout;
  layout.reset(bytes{512});
  std::vector<chunk_place> places(2);
  CHECK_THROWS_AS(place_all(layout, std::vector<bytes>(3, bytes{256}), places), usage_error);
  CHECK(layout.place(bytes{1}) == chunk_place{0, 0, 1});
}

}  // namespace chunk_layout_test
