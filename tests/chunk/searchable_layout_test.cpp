// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/chunk_layout.hpp>

#include <chunkmem/chunk/layouts.hpp>
#include <conformance/chunk_layout.hpp>
#include <support/catch.hpp>

namespace searchable_layout_test {

using namespace chunkmem;

namespace {

/// Says too little, which is allowed: a search looks at more sizes than it must.
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

}  // namespace searchable_layout_test
