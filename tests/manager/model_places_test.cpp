// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/model_places.hpp>

#include <chunkmem/chunk/append_layout.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/placement/host_first.hpp>
#include <support/catch.hpp>
#include <support/oracles/record_builder.hpp>

#include <vector>

namespace model_places_test {

using namespace chunkmem;

namespace {

/// What placing asks of an engine.
struct declarations {
  registry all;
  manager_options chosen;
  bytes device = 1_MiB;

  [[nodiscard]] registry& tensors() { return all; }
  [[nodiscard]] const manager_options& options() const { return chosen; }
  [[nodiscard]] per_tier<bytes> capacities() const { return {{device, device}}; }
  void set_chunk_bytes(bytes size) { chosen.chunk_bytes = size; }
};

declarations six_buffers(const manager_options& options)
{
  declarations core{{}, options};
  for (int at = 0; at < 6; ++at) core.all.add({128}, dtype::float32, role::buffer, group_id{0});
  return core;
}

}  // namespace

TEST_CASE("tensors lie in the order of declaration until a step showed another one", "[manager]")
{
  declarations core = six_buffers({.chunk_bytes = 1_KiB, .order = tensor_order::first_use});
  model_places<append_layout, placement::host_first> places{{}, {}};
  places.seal(core);
  const auto chunks = [&] {
    return std::vector<std::uint32_t>(core.all.chunk_of_slot().begin(), core.all.chunk_of_slot().end());
  };
  CHECK(chunks() == std::vector<std::uint32_t>{0, 0, 1, 1, 2, 2});
  CHECK(places.wants_order(core.chosen));
  support::record_builder build;
  for (const std::uint32_t slot : {5U, 0U, 5U, 3U}) build.brief(slot);
  places.order_by_first_use(core, build.finish({0, 0, 0, 0, 0, 0}, 1));
  CHECK(chunks() == std::vector<std::uint32_t>{0, 1, 2, 1, 2, 0});  // 5 and 0, then 3, then what was not used
  CHECK(!places.wants_order(core.chosen));
  CHECK(!model_places<append_layout, placement::host_first>{{}, {}}.wants_order({}));
}

TEST_CASE("the size of chunks is searched once, within a sixteenth of the device", "[manager]")
{
  declarations core = six_buffers({.chunk_bytes = least_waste_chunks});
  model_places<size_class_layout, placement::host_first> places{{}, {}};
  places.seal(core);
  const bytes found = core.chosen.chunk_bytes;
  CHECK(found.count() * core.all.frames_of_chunk().size() == 6 * 512);  // nothing is wasted
  CHECK(found <= 64_KiB);
  core.device = 8_KiB;
  places.seal(core);
  CHECK(core.chosen.chunk_bytes == found);
}

}  // namespace model_places_test
