// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/model_builder.hpp>

#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/placement/policies.hpp>
#include <support/catch.hpp>
#include <support/oracles/record_builder.hpp>

#include <vector>

namespace model_places_test {

using namespace chunkmem;

namespace {

registry six_buffers()
{
  registry tensors;
  for (int index = 0; index < 6; ++index) tensors.add({128}, dtype::float32, role::buffer, group_id{0});
  return tensors;
}

}  // namespace

TEST_CASE("tensors lie in the order of declaration until a step showed another one", "[manager]")
{
  registry tensors = six_buffers();
  const manager_options by_use{.order = tensor_order::first_use};
  model_places<append_layout, placement::host_first> places{{}, {}};
  CHECK(places.seal(tensors, 1_KiB, 1_MiB) == 1_KiB);
  const auto chunks = [&] {
    return std::vector<std::uint32_t>(tensors.chunk_of_slot().begin(), tensors.chunk_of_slot().end());
  };
  CHECK(chunks() == std::vector<std::uint32_t>{0, 0, 1, 1, 2, 2});
  CHECK(places.wants_order(by_use));
  support::record_builder build;
  for (const std::uint32_t slot : {5U, 0U, 5U, 3U}) build.brief(slot);
  places.order_by_first_use(tensors, build.finish({0, 0, 0, 0, 0, 0}, 1), 1_KiB, 1_MiB);
  CHECK(chunks() == std::vector<std::uint32_t>{0, 1, 2, 1, 2, 0});  // 5 and 0, then 3, then what was not used
  CHECK(!places.wants_order(by_use));
  CHECK(!model_places<append_layout, placement::host_first>{{}, {}}.wants_order({}));
}

TEST_CASE("the size of chunks is searched once, within a sixteenth of the device", "[manager]")
{
  registry tensors = six_buffers();
  model_places<size_class_layout, placement::host_first> places{{}, {}};
  const bytes found = places.seal(tensors, least_waste_chunks, 1_MiB);
  CHECK(found.count() * tensors.frames_of_chunk().size() == 6 * 512);  // nothing is wasted
  CHECK(found <= 64_KiB);
  CHECK(places.seal(tensors, found, 8_KiB) == found);
}

}  // namespace model_places_test
