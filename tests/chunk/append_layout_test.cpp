#include <chunkmem/chunk/append_layout.hpp>

#include <conformance/chunk_layout.hpp>
#include <support/catch.hpp>

using namespace chunkmem;

namespace {

void placed_at(chunk_place place, std::uint32_t chunk, std::uint64_t offset, std::uint32_t frames)
{
  CHECK(place.chunk == chunk);
  CHECK(place.offset == offset);
  CHECK(place.frames == frames);
}

}  // namespace

TEST_CASE("append layout keeps the laws of a layout", "[chunk]")
{
  conformance::chunk_layout_laws<append_layout>();
}

TEST_CASE("append layout fills a chunk and opens the next one where a tensor does not fit", "[chunk]")
{
  append_layout layout{bytes{1'024}};
  placed_at(layout.place(bytes{300}), 0, 0, 1);
  placed_at(layout.place(bytes{256}), 0, 512, 1);
  placed_at(layout.place(bytes{256}), 0, 768, 1);  // to the last byte
  placed_at(layout.place(bytes{1}), 1, 0, 1);
  placed_at(layout.place(bytes{1'024}), 2, 0, 1);
  placed_at(layout.place(bytes{1}), 3, 0, 1);  // never looks back to chunk 1
}

TEST_CASE("append layout gives what is larger than a frame a window for itself", "[chunk]")
{
  append_layout layout{bytes{512}};
  placed_at(layout.place(bytes{10}), 0, 0, 1);
  placed_at(layout.place(bytes{513}), 1, 0, 2);
  placed_at(layout.place(bytes{10}), 2, 0, 1);  // not back into chunk 0
  placed_at(layout.place(bytes{1'024}), 3, 0, 2);
  placed_at(layout.place(bytes{1'025}), 4, 0, 3);
}

TEST_CASE("append layout refuses a frame that is no multiple of the alignment", "[chunk]")
{
  for (const std::uint64_t frame : {0u, 1u, 255u, 257u, 1'000u}) CHECK_THROWS_AS(append_layout{bytes{frame}}, usage_error);
  CHECK_NOTHROW(append_layout{bytes{256}});
}

TEST_CASE("append layout refuses sizes beyond its numbers and stays as it was", "[chunk]")
{
  append_layout layout{bytes{256}};
  placed_at(layout.place(bytes{100}), 0, 0, 1);
  CHECK_THROWS_AS(layout.place(bytes{UINT64_MAX}), size_overflow);
  CHECK_THROWS_AS(layout.place(bytes{std::uint64_t{1} << 41}), size_overflow);
  placed_at(layout.place(bytes{100}), 1, 0, 1);
}
