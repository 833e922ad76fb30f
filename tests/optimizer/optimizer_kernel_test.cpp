// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/optimizer_kernel.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <support/catch.hpp>

#include <string_view>

namespace optimizer_kernel_test {

namespace cm = chunkmem;
using namespace cm::literals;

namespace {

/// The least that a kernel must have: no list at all.
struct descend {
  static constexpr std::string_view name = "descend";
  [[nodiscard]] static std::span<const cm::list_spec> lists() noexcept { return {}; }
  void update(const cm::optimizer::update_spans& spans, const cm::optimizer::step_settings& settings) const noexcept
  {
    for (std::size_t index = 0; index < spans.parameter.size(); ++index)
      spans.parameter[index] -= settings.learning_rate * spans.gradient[index];
  }
  cm::optimizer::step_progress progress;
};

/// As many lists as are allowed: each counts the updates times its place.
struct four_lists {
  static constexpr std::string_view name = "four_lists";
  [[nodiscard]] static std::span<const cm::list_spec> lists() noexcept
  {
    static constexpr cm::list_spec specs[] = {{"a", cm::dtype::float32, 1},
                                              {"b", cm::dtype::float32, 1},
                                              {"c", cm::dtype::float32, 1},
                                              {"d", cm::dtype::float32, 1}};
    return specs;
  }
  void update(const cm::optimizer::update_spans& spans, const cm::optimizer::step_settings&) const noexcept
  {
    for (std::size_t index = 0; index < spans.parameter.size(); ++index)
      for (std::size_t list = 0; list < 4; ++list)
        spans.lists[list][index] += static_cast<float>(list + 1) * spans.gradient[index];
  }
  cm::optimizer::step_progress progress;
};

/// All that a kernel may have besides.
struct versatile : descend {
  struct group_settings {
    float rate_factor = 0.5F;
  };
  [[nodiscard]] auto prepared(const cm::optimizer::step_settings& settings) const noexcept
  {
    return [this, settings](const cm::optimizer::update_spans& spans) noexcept { update(spans, settings); };
  }
  [[nodiscard]] static cm::optimizer::instruction_set instructions() noexcept { return {}; }
  [[nodiscard]] static group_settings options(cm::group_id) noexcept { return {}; }
  [[nodiscard]] static cm::work_cost update_takes(cm::memory_location, std::uint64_t elements) noexcept
  {
    return {3 * elements};
  }
  [[nodiscard]] static cm::work_cost measure_takes(cm::memory_location, std::uint64_t elements) noexcept
  {
    return {elements};
  }
};

struct may_throw : descend {
  void update(const cm::optimizer::update_spans&, const cm::optimizer::step_settings&) const {}
};

}  // namespace

static_assert(cm::optimizer_kernel<descend>);
static_assert(cm::optimizer_kernel<four_lists>);
static_assert(!cm::optimizer_kernel<may_throw>, "an update that may throw could leave a parameter half done");
static_assert(!cm::optimizer_kernel<int>);
static_assert(cm::optimizer_kernel<versatile>);
static_assert(cm::prepares_updates<versatile> && !cm::prepares_updates<descend>);
static_assert(cm::chooses_instructions<versatile> && !cm::chooses_instructions<descend>);
static_assert(cm::scales_rates<versatile> && !cm::scales_rates<descend>);
static_assert(cm::timed_kernel<versatile> && !cm::timed_kernel<descend>);
static_assert(cm::chooses_instructions<cm::optimizer::sgd> && cm::scales_rates<cm::optimizer::sgd>);
static_assert(!cm::timed_kernel<cm::optimizer::adam>);

TEST_CASE("a kernel of one's own with no list or with four is stepped like ours", "[optimizer]")
{
  using arena = cm::backend::host_arena;
  arena memory{{.device_capacity = 16_KiB, .host_capacity = 256_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  four_lists many;
  descend none;
  m.use(many);
  m.use(none);
  const auto weights = m.add_stacked<float>(7, {900}, cm::role::parameter);
  for (std::uint32_t index = 0; index < 7; ++index)
    for (float& value : m.acquire(weights.slice(index), cm::access::write).span()) value = 1;
  for (int step = 0; step < 3; ++step) {
    for (const bool with_lists : {true, false}) {
      for (std::uint32_t index = 0; index < 7; ++index)
        for (float& value : m.gradient(weights.slice(index)).span()) value = 2;
      const auto result =
          with_lists ? cm::optimizer::step(m, many) : cm::optimizer::step(m, none, {.learning_rate = 0.25F});
      CHECK(result == cm::optimizer::step_result::updated);
    }
  }
  CHECK(many.progress.number == 3);
  CHECK(none.progress.number == 3);
  for (std::uint32_t index = 0; index < 7; ++index) {
    CHECK(m.acquire(weights.slice(index), cm::access::read).span()[899] == -0.5F);
    CHECK(
        m.acquire<float>(weights.slice(index), m.list("d"), cm::access::read, cm::memory_location::host).span()[899] ==
        24.0F);
  }
}

}  // namespace optimizer_kernel_test
