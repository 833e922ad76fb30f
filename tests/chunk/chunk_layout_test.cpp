// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/chunk_layout.hpp>

#include <conformance/chunk_layout.hpp>
#include <support/catch.hpp>

namespace chunk_layout_test {

using namespace chunkmem;

namespace {

/// No more than the concept asks for: a chunk for each tensor.
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

}  // namespace chunk_layout_test
