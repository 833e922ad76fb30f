// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/optimizer_kernel.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/early_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>

#include <support/any_backend.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace instruction_set_test {

namespace cm = chunkmem;
using cm::optimizer::instruction_set;

TEST_CASE("instruction sets have names and grow", "[optimizer]")
{
  CHECK(name_of(instruction_set::baseline) == "baseline");
  CHECK(name_of(instruction_set::avx2) == "avx2");
  CHECK(name_of(instruction_set::avx512) == "avx512");
  CHECK(name_of(instruction_set::avx512_bf16) == "avx512_bf16");
  CHECK(cm::optimizer::is_available(instruction_set::baseline));
  CHECK(cm::optimizer::is_available(cm::optimizer::best_instruction_set()));
  for (const instruction_set set : cm::optimizer::instruction_sets)
    CHECK(cm::optimizer::is_available(set) == (set <= cm::optimizer::best_instruction_set()));
  CHECK(cm::optimizer::best_instruction_set() == cm::optimizer::best_instruction_set());
}

}  // namespace instruction_set_test

namespace group_options_test {

namespace cm = chunkmem;

TEST_CASE("a group has its own options where some were set, else the common ones", "[optimizer]")
{
  cm::optimizer::detail::group_options<int> options{7};
  CHECK(options.common() == 7);
  CHECK(options.of(cm::group_id{3}) == 7);
  options.set(cm::group_id{3}, 8);
  options.set(cm::group_id{0}, 9);
  options.set(cm::group_id{3}, 10);
  CHECK(options.of(cm::group_id{3}) == 10);
  CHECK(options.of(cm::group_id{0}) == 9);
  CHECK(options.of(cm::group_id{1}) == 7);
  CHECK(options.common() == 7);
}

}  // namespace group_options_test

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace optimizer_kernel_test {

namespace cm = chunkmem;
using namespace cm::literals;
using support::any_backend;
using manager = cm::manager<any_backend, support::chosen_gradient>;

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

/// All optional members of a kernel.
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
  any_backend memory{cm::backend::host_arena_options{.device_capacity = 16_KiB, .host_capacity = 256_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
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

namespace {

/// An update function that a trainer had before it knew of chunks.
[[gnu::noinline]] void trainers_update(float* weight, const float* gradient, float* momentum, std::size_t count)
{
  for (std::size_t index = 0; index < count; ++index) {
    momentum[index] = 0.5F * momentum[index] + gradient[index];
    weight[index] += momentum[index];
  }
}

/// The same as a kernel.
template <bool AsCaller>
struct of_trainer {
  static constexpr std::string_view name = "trainer";
  static constexpr bool uses_callers_environment = AsCaller;
  [[nodiscard]] static std::span<const cm::list_spec> lists() noexcept
  {
    static constexpr cm::list_spec specs[] = {{"momentum"}};
    return specs;
  }
  void update(const cm::optimizer::update_spans& spans, const cm::optimizer::step_settings&) const noexcept
  {
    trainers_update(spans.parameter.data(), spans.gradient.data(), spans.lists[0].data(), spans.parameter.size());
  }
  cm::optimizer::step_progress progress;
};
static_assert(cm::uses_callers_environment<of_trainer<true>> && !cm::uses_callers_environment<of_trainer<false>>);
static_assert(!cm::uses_callers_environment<descend> && cm::names_settings<cm::optimizer::adam>);

#if defined(__SSE__)
constexpr unsigned standard_rules = 0x1f80;
constexpr unsigned flush_to_zero = standard_rules | 0x8040;  // what crtfastmath.o sets
constexpr unsigned towards_zero = standard_rules | 0x6000;

/// The caller's floating-point mode, during the life of this object.
struct caller_with {
  explicit caller_with(unsigned rules) : before{_mm_getcsr()} { _mm_setcsr(rules); }
  ~caller_with() { _mm_setcsr(before); }
  unsigned before;
};

/// Denormals come up in the momentum after some steps, and as gradients.
float slope(int step, std::size_t index)
{
  const std::uint32_t bits = step == 0 ? 0x01000000U + static_cast<std::uint32_t>(index % 8191)
                                       : static_cast<std::uint32_t>(index % 3) * 0x00012345U;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

enum class way { at_once, late, early };

/// Six steps by `rules`, on three threads. @return   weight and momentum
template <bool AsCaller>
std::vector<std::uint32_t> over_chunks(unsigned rules, way how, std::size_t count)
{
  any_backend memory{cm::backend::host_arena_options{.device_capacity = 1_MiB, .host_capacity = 4_MiB}};
  manager m{memory, {.chunk_bytes = 256_KiB}};
  of_trainer<AsCaller> kernel;
  m.use(kernel);
  const auto weight = m.add<float>({count}, cm::role::parameter);
  for (float& it : m.acquire(weight, cm::access::write).span()) it = 0;
  cm::optimizer::thread_pool workers{3};
  cm::optimizer::late_updates late{m, kernel, workers};
  cm::optimizer::early_updates early{m, kernel, 1_MiB, workers};
  const cm::optimizer::step_options options{.skip_nonfinite = how == way::early};
  for (int step = 0; step < 6; ++step) {
    const auto scope = m.iteration();
    {
      const auto gradient = m.gradient(weight);
      for (std::size_t index = 0; index < count; ++index) {
        const float value = slope(step, index);
        std::memcpy(gradient.data() + index, &value, sizeof value);
      }
    }
    {
      const caller_with own{rules};
      if (how == way::at_once) cm::optimizer::step(m, kernel, options, workers);
      if (how == way::late) late.step(options);
      if (how == way::early) early.step(options);
      CHECK(_mm_getcsr() >> 6 == rules >> 6);
    }
    late.finish();  // by whoever comes next
  }
  std::vector<std::uint32_t> bits(2 * count);
  const auto moved = m.acquire(weight, cm::access::read, cm::memory_location::host);
  const auto momentum = m.acquire<float>(weight, m.list("momentum"), cm::access::read, cm::memory_location::host);
  std::memcpy(bits.data(), moved.data(), 4 * count);
  std::memcpy(bits.data() + count, momentum.data(), 4 * count);
  return bits;
}

/// The same by the trainer itself. @param flushes   gradients that are denormals become zeros before
std::vector<std::uint32_t> by_trainer(unsigned rules, bool flushes, std::size_t count)
{
  std::vector<float> weight(count), momentum(count), gradient(count);
  for (int step = 0; step < 6; ++step) {
    for (std::size_t index = 0; index < count; ++index) {
      gradient[index] = slope(step, index);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &gradient[index], sizeof bits);
      if (flushes && (bits & 0x7f800000U) == 0) gradient[index] = 0;
    }
    const caller_with own{rules};
    trainers_update(weight.data(), gradient.data(), momentum.data(), count);
  }
  std::vector<std::uint32_t> bits(2 * count);
  std::memcpy(bits.data(), weight.data(), 4 * count);
  std::memcpy(bits.data() + count, momentum.data(), 4 * count);
  return bits;
}
#endif

}  // namespace

TEST_CASE("a kernel that asks for it computes by its caller's rules, whenever and wherever it runs", "[optimizer]")
{
#if defined(__SSE__)
  constexpr std::size_t count = 33'000;  // so many that threads share them
  std::vector<std::vector<std::uint32_t>> all;
  for (const unsigned rules : {standard_rules, flush_to_zero, towards_zero}) {
    INFO("rules " << rules);
    const auto own = by_trainer(rules, false, count);
    const auto standard = by_trainer(standard_rules, true, count);
    for (const way how : {way::at_once, way::late, way::early}) {
      const bool as_caller = over_chunks<true>(rules, how, count) == own;
      CHECK(as_caller);
      const bool by_default = over_chunks<false>(rules, how, count) == standard;
      CHECK(by_default);
    }
    all.push_back(own);
  }
  CHECK((all[0] != all[1] && all[0] != all[2] && all[1] != all[2]));  // else nothing was shown
#else
  SKIP("MXCSR is a register of x86");
#endif
}

namespace {

/// Takes its rate from a member that its owner may change. A copy can be forbidden.
template <bool Copies>
struct own_rate : descend {
  own_rate() = default;
  own_rate(const own_rate&)
    requires Copies
  = default;
  own_rate& operator=(const own_rate&)
    requires Copies
  = default;
  void update(const cm::optimizer::update_spans& spans, const cm::optimizer::step_settings&) const noexcept
  {
    for (float& it : spans.parameter) it -= rate;
  }
  float rate = 0.5F;
};
static_assert(std::copyable<own_rate<true>> && !std::copy_constructible<own_rate<false>>);

/// A late update after its kernel was changed. @return   the weight
template <class Kernel>
float changed_before_its_update()
{
  any_backend memory{cm::backend::host_arena_options{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  Kernel kernel;
  m.use(kernel);
  const auto weight = m.add<float>({8}, cm::role::parameter);
  for (float& it : m.acquire(weight, cm::access::write).span()) it = 2;
  cm::optimizer::late_updates late{m, kernel};
  for (float& it : m.gradient(weight).span()) it = 1;
  late.step();
  kernel.rate = 1.0F;
  return m.acquire(weight, cm::access::read).span()[7];
}

}  // namespace

TEST_CASE("a waiting update is that of its kernel when it was decided, if the kernel can be copied", "[optimizer]")
{
  CHECK(changed_before_its_update<own_rate<true>>() == 1.5F);
  CHECK(changed_before_its_update<own_rate<false>>() == 1.0F);
}

}  // namespace optimizer_kernel_test

namespace device_optimizer_kernel_test {

using namespace chunkmem;
using namespace chunkmem::optimizer;

namespace {

static_assert(device_optimizer_kernel<adam> && device_optimizer_kernel<sgd> && !device_optimizer_kernel<int>);

/// A kernel of a user, for the host alone.
struct descend {
  static constexpr std::string_view name = "descend";
  [[nodiscard]] static std::span<const list_spec> lists() noexcept { return {}; }
  void update(const update_spans&, const step_settings&) const noexcept {}
  step_progress progress;
};
static_assert(optimizer_kernel<descend> && !device_optimizer_kernel<descend>);

template <class Work, class Kernel>
bool works_by(const Kernel& kernel, group_id group = group_id{0})
{
  bool found = false;
  kernel.with_arithmetic(group,
                         [&]<class Chosen>(std::type_identity<Chosen>) { found = std::is_same_v<Chosen, Work>; });
  return found;
}

}  // namespace

TEST_CASE("the options of a group choose its arithmetic", "[optimizer]")
{
  adam with_adam;
  with_adam.group(group_id{1}, {.weight_decay = 0.1F, .decoupled = false});
  CHECK(works_by<optimizer::detail::adam_work<false>>(with_adam));
  CHECK(works_by<optimizer::detail::adam_work<true>>(with_adam, group_id{1}));
  sgd with_sgd;
  with_sgd.group(group_id{1}, {.nesterov = true});
  CHECK(works_by<optimizer::detail::momentum_sgd_work<false>>(with_sgd));
  CHECK(works_by<optimizer::detail::momentum_sgd_work<true>>(with_sgd, group_id{1}));
  CHECK(works_by<optimizer::detail::plain_sgd_work<>>(sgd{{.momentum = 0.0F}}));
}

}  // namespace device_optimizer_kernel_test
