// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/error.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/pipeline/weight_versions.hpp>

#include <support/count_allocations.hpp>

#include <support/catch.hpp>
#include <support/managed_weights.hpp>
#include <support/sanitized.hpp>

#include "schedule_runs.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace weight_versions_test {

using namespace pipeline_test;
using support::managed_layers;
using support::vector_type;
using support::width;

namespace {

constexpr std::uint32_t layers_of_model = 12;

/// Weights of several versions on one device that holds few of them. A batch reads every version of every weight.
template <class Element>
struct versioned_training {
  versioned_training(std::uint32_t kept, std::uint32_t chunks)
      : layers{chunks}, versions{layers.m(), kept, dtype_of<Element>}
  {
    for (std::uint32_t part = 0; part < layers_of_model; ++part) layers.declare(part);
    layers.m().use(kernel);
    layers.fill();
    versions.start();
    for (std::uint32_t part = 0; part < layers_of_model; ++part) weights[part] = layers[part];
  }

  [[nodiscard]] std::vector<vector_type> read(list_id list)
  {
    std::vector<vector_type> all;
    for (const auto& [part, weight] : layers.parts())
      all.push_back(
          layers.read(layers.m().template acquire<Element>(weight, list, access::read, memory_location::device)));
    return all;
  }
  optimizer::step_outcome step()
  {
    return versions.update([&] { return optimizer::step(layers.m(), kernel, {.learning_rate = 0.02F}); });
  }
  /// @return   every version of every weight had its bytes
  bool batch()
  {
    const bool updates = number++ > 0;
    if (updates) versions.flip();
    auto scope = layers.m().iteration("batch");
    if (updates) (void)step();
    bool good = true;
    for (std::uint32_t part = 0; part < layers_of_model; ++part) {
      for (std::uint32_t age = 0; age < versions.kept() && age <= versions.newest(); ++age)
        good = good && is_as_made(part, versions.newest() - age);
      const auto gradient = layers.m().template gradient<float>(weights[part]);
      for (float& value : gradient.span()) value = 1;
    }
    seen_firsts.push_back(made[0][versions.newest() % made[0].size()]);
    return good;
  }
  /// The first number of a version has not changed since the version was new.
  bool is_as_made(std::uint32_t part, std::uint32_t version)
  {
    const float found = to_float(versions.acquire(weights[part], version).span()[0]);
    float& known = made[part][version % made[part].size()];
    if (version == versions.newest()) known = found;
    return known == found;
  }

  managed_layers<Element> layers;
  optimizer::adam kernel{{}, {.masters = sizeof(Element) == 2}};
  pipeline::weight_versions<support::manager_of_layers> versions;
  std::array<tensor<Element>, layers_of_model> weights{};
  std::array<std::array<float, 8>, layers_of_model> made{};  // by part, and version
  std::vector<float> seen_firsts;                            // of the newest versions
  std::uint32_t number = 0;
};

}  // namespace

TEMPLATE_TEST_CASE("versions stay as they were made, and batches follow their plans", "[pipeline]", float, bf16)
{
  for (const std::uint32_t kept : {1U, 2U, 3U, 5U, 8U}) {
    if (support::sanitized && (kept == 2 || kept == 5)) continue;
    CAPTURE(kept);
    versioned_training<TestType> it{kept, 16};
    it.seen_firsts.reserve(100);
    bool good = true;
    for (int number = 0; number < 60; ++number) good = it.batch() && good;
    const report before = it.layers.m().report();
    const support::allocation_counts heap = support::allocations_so_far();
    for (int number = 0; number < 40; ++number) good = it.batch() && good;
    if (support::counts_allocations) CHECK((support::allocations_so_far() - heap).all() == 0);
    CHECK(good);
    const report after = it.layers.m().report();
    CHECK(std::ranges::adjacent_find(it.seen_firsts) == it.seen_firsts.end());  // every batch has a new version
    CHECK(after.evictions > before.evictions);
    CHECK(after.divergences == before.divergences);
    CHECK(after.replans == before.replans);
    CHECK(after.abandoned_plans == before.abandoned_plans);
  }
}

TEST_CASE("a version that is not kept or not made is refused", "[pipeline]")
{
  versioned_training<bf16> it{2, 512};
  CHECK_THROWS_AS(it.versions.flip(), usage_error);  // no masters yet
  for (int number = 0; number < 4; ++number) it.batch();
  CHECK(it.versions.newest() == 3);
  CHECK(it.versions.list_of(3) == value_list);
  CHECK(it.versions.list_of(2) == it.layers.m().list("weights/1"));
  for (const std::uint32_t version : {0U, 1U, 4U}) CHECK_THROWS_AS(it.versions.list_of(version), usage_error);
  CHECK_THROWS_AS(it.step(), usage_error);
  it.versions.flip();
  CHECK_THROWS_AS(it.versions.flip(), usage_error);
  CHECK_THROWS_AS(it.versions.list_of(4), usage_error);
  CHECK(it.versions.list_of(3) == it.layers.m().list("weights/1"));
  {
    auto scope = it.layers.m().iteration("batch");
    CHECK(it.step() == optimizer::step_result::updated);
  }
  CHECK(it.versions.list_of(4) == value_list);
  for (const std::uint32_t versions : {0U, 9U}) {
    managed_layers<float> other{8};
    CHECK_THROWS_AS((pipeline::weight_versions{other.m(), versions, dtype::float32}), config_error);
  }
}

TEST_CASE("an update that failed goes on, and one that was skipped leaves the version before", "[pipeline]")
{
  versioned_training<float> it{2, 512};
  for (int number = 0; number < 3; ++number) it.batch();
  const vector_type before = it.read(value_list).front();
  it.versions.flip();
  auto scope = it.layers.m().iteration("batch");
  CHECK_THROWS_AS(it.versions.update([]() -> optimizer::step_outcome { throw device_error{"a copy failed"}; }),
                  device_error);
  CHECK(it.versions.update([] { return optimizer::step_outcome{optimizer::step_result::skipped_nonfinite}; }) ==
        optimizer::step_result::skipped_nonfinite);
  CHECK(it.read(value_list).front() == before);
  CHECK(it.read(it.versions.list_of(2)).front() == before);
}

TEST_CASE("a pin of any version keeps versions from flipping, and nothing changes", "[pipeline]")
{
  versioned_training<bf16> it{3, 512};
  for (int number = 0; number < 5; ++number) it.batch();
  for (std::uint32_t version = 2; version <= 4; ++version) {
    CAPTURE(version);
    const vector_type before = it.read(it.versions.list_of(version)).back();
    const auto held = it.versions.acquire(it.layers[layers_of_model - 1], version);
    CHECK_THROWS_AS(it.versions.flip(), usage_error);
    CHECK(it.read(it.versions.list_of(version)).back() == before);
  }
  CHECK_NOTHROW(it.versions.flip());
}

TEMPLATE_TEST_CASE("a weight without a gradient stays the same in every version", "[pipeline]", float, bf16)
{
  for (const std::uint32_t kept : {2U, 3U}) {
    versioned_training<TestType> it{kept, 512};
    for (int number = 0; number < 4; ++number) it.batch();
    for (int number = 0; number < 6; ++number) {
      CAPTURE(kept, number);
      it.layers.m().drop_gradient(it.weights[1]);
      const std::vector<vector_type> before = it.read(value_list);
      it.versions.flip();
      auto scope = it.layers.m().iteration("batch");
      (void)it.step();
      const std::vector<vector_type> after = it.read(value_list);
      CHECK(after[1] == before[1]);
      CHECK(after[2] != before[2]);
      for (std::uint32_t part = 0; part < layers_of_model; ++part)
        it.layers.set_gradient(part, vector_type(width * width, 1));
    }
  }
}

TEST_CASE("a version that could not be copied after a skip is copied by the next call", "[pipeline]")
{
  versioned_training<bf16> it{2, 512};
  for (int number = 0; number < 3; ++number) it.batch();
  const std::vector<vector_type> before = it.read(value_list);
  it.versions.flip();
  auto scope = it.layers.m().iteration("batch");
  int steps = 0;
  const auto skip = [&] {
    ++steps;
    it.layers.m().drop_gradients();
    return optimizer::step_outcome{optimizer::step_result::skipped_nonfinite};
  };
  {
    const auto in_the_way = it.layers.m().template acquire<bf16>(it.weights[0], it.layers.m().list("weights/1"),
                                                                 access::read_write, memory_location::device);
    CHECK_THROWS_AS(it.versions.update(skip), usage_error);
  }
  CHECK(it.versions.update(skip) == optimizer::step_result::skipped_nonfinite);
  CHECK(steps == 1);
  CHECK(it.read(value_list) == before);
}

TEST_CASE("versions of another type than their weights are refused before a byte is written", "[pipeline]")
{
  managed_layers<float> layers{64};
  pipeline::weight_versions versions{layers.m(), 2, dtype::bfloat16};
  layers.declare(0);
  layers.fill();
  CHECK_THROWS_AS(versions.start(), usage_error);
}

}  // namespace weight_versions_test
