// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/chunk_layout.hpp>

#include <chunkmem/chunk/layouts.hpp>
#include <conformance/chunk_layout.hpp>
#include <support/catch.hpp>

namespace arranging_layout_test {

using namespace chunkmem;

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

}  // namespace arranging_layout_test
