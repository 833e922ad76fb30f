// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/update_parameter.hpp>

#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>

#include <support/catch.hpp>
#include <support/hostile.hpp>

#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace cache_size_test {

TEST_CASE("the second cache is as large as the system says, or a megabyte", "[optimizer]")
{
  const std::uint64_t bytes = chunkmem::detail::second_cache_bytes();
  CHECK(bytes >= 64 << 10);
  CHECK(bytes <= std::uint64_t{1} << 30);
  CHECK(bytes == chunkmem::detail::second_cache_bytes());
  const long said = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
  CHECK(bytes == (said > 0 ? static_cast<std::uint64_t>(said) : std::uint64_t{1} << 20));
}

}  // namespace cache_size_test

namespace update_parameter_test {

namespace cm = chunkmem;
using cm::dtype;
using namespace cm::optimizer;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::size_t count = 1'500;  // several blocks and a rest
constexpr dtype real_types[] = {dtype::float32, dtype::bfloat16, dtype::float16};

float number_at(const std::vector<std::byte>& bytes, dtype type, std::size_t index)
{
  float wide = 0;
  std::uint16_t half = 0;
  if (type == dtype::float32) return std::memcpy(&wide, bytes.data() + 4 * index, 4), wide;
  std::memcpy(&half, bytes.data() + 2 * index, 2);
  return type == dtype::bfloat16 ? cm::to_float(cm::bf16::from_bits(half)) : cm::to_float(cm::fp16::from_bits(half));
}
void put_half(std::vector<std::byte>& bytes, std::size_t index, std::uint16_t half)
{
  std::memcpy(bytes.data() + 2 * index, &half, 2);
}
void put(std::vector<std::byte>& bytes, dtype type, std::size_t index, float value)
{
  if (type == dtype::float32) return static_cast<void>(std::memcpy(bytes.data() + 4 * index, &value, 4));
  put_half(bytes, index,
           type == dtype::bfloat16 ? cm::round_to<cm::bf16>(value).bits() : cm::round_to<cm::fp16>(value).bits());
}
void put_stochastic(std::vector<std::byte>& bytes, dtype type, std::size_t index, float value, std::uint16_t random)
{
  put_half(bytes, index,
           type == dtype::bfloat16 ? cm::round_stochastic<cm::bf16>(value, random).bits()
                                   : cm::round_stochastic<cm::fp16>(value, random).bits());
}

/// One parameter with all its lists, as plain bytes.
template <class Kernel>
struct plain_parameter {
  plain_parameter(const Kernel& of, dtype value, dtype slope, bool takes_slot, std::size_t elements = count)
      : kernel{of}, value_type{value}, gradient_type{slope}, in_place{takes_slot}, size{elements}
  {
    values.resize(size * cm::size_of(value_type));
    gradients.resize(size * cm::size_of(gradient_type));
    for (std::size_t index = 0; index < size; ++index) put(values, value_type, index, support::tame(index));
    for (const cm::list_spec& spec : kernel.lists()) lists.emplace_back(size * cm::size_of(spec.type), std::byte{0});
  }
  [[nodiscard]] std::size_t master() const
  {
    for (std::size_t index = 0; index < lists.size(); ++index)
      if (kernel.lists()[index].use == cm::list_use::master && cm::is_16_bit(value_type)) return index;
    return lists.size();
  }
  void differentiate(std::uint64_t step)
  {
    for (std::size_t index = 0; index < size; ++index)
      put(gradients, gradient_type, index, support::hostile(1000 * step + index));
  }
  [[nodiscard]] parameter_bytes describe(bool fresh)
  {
    parameter_bytes all;
    if (in_place && !fresh) values = gradients;
    all.value = values.data();
    all.value_type = value_type;
    all.gradient = in_place && !fresh ? values.data() : gradients.data();
    all.gradient_type = gradient_type;
    for (std::size_t index = 0; index < lists.size(); ++index) {
      const cm::list_spec& spec = kernel.lists()[index];
      const bool is_absent = spec.use == cm::list_use::master && index != master();
      all.lists[all.list_count++] = {is_absent ? nullptr : lists[index].data(), spec.type, spec.use};
    }
    all.fresh_master = fresh && master() < lists.size();
    all.elements = size;
    all.tensor = 9;
    return all;
  }

  const Kernel& kernel;
  dtype value_type, gradient_type;
  bool in_place;
  std::size_t size;
  std::vector<std::byte> values, gradients;
  std::vector<std::vector<std::byte>> lists;
};

/// The documented behaviour of update_parameter, in the plainest way: everything widened, one call of the kernel, all
/// rounded.
template <class Kernel>
void update_plainly(plain_parameter<Kernel>& it, const gradient_transform& how, const step_settings& settings,
                    std::uint64_t seed, bool fresh)
{
  const bool has_master = it.master() < it.lists.size();
  std::vector<float> gradient(it.size);
  std::vector<float> parameter(it.size);
  std::vector<std::vector<float>> wide;
  for (std::size_t index = 0; index < it.size; ++index) {
    const volatile float scaled = cm::flush(number_at(it.gradients, it.gradient_type, index)) * how.factor;
    gradient[index] = cm::flush(scaled);
    if (how.limit > 0.0F && !std::isnan(gradient[index]))
      gradient[index] = std::fmax(-how.limit, std::fmin(how.limit, gradient[index]));
    parameter[index] = has_master && !fresh ? number_at(it.lists[it.master()], dtype::float32, index)
                                            : number_at(it.values, it.value_type, index);
  }
  update_spans spans{parameter, gradient, {}};
  for (std::size_t list = 0; list < it.lists.size(); ++list) {
    if (it.kernel.lists()[list].use == cm::list_use::master) continue;
    wide.emplace_back(it.size);
    for (std::size_t index = 0; index < it.size; ++index)
      wide.back()[index] = number_at(it.lists[list], it.kernel.lists()[list].type, index);
  }
  for (std::size_t list = 0; list < wide.size(); ++list) spans.lists[list] = wide[list];
  it.kernel.update(spans, settings);
  for (std::size_t index = 0; index < it.size; ++index) {
    const auto random = [&](std::uint32_t stream) {
      return cm::rounding_bits({seed, settings.number, 9, stream}, index);
    };
    std::size_t state = 0;
    for (std::uint32_t list = 0; list < it.lists.size(); ++list) {
      if (it.kernel.lists()[list].use == cm::list_use::master) continue;
      const dtype type = it.kernel.lists()[list].type;
      const float now = wide[state++][index];
      if (type == dtype::float32)
        put(it.lists[list], type, index, now);
      else
        put_stochastic(it.lists[list], type, index, now, random(list));
    }
    if (has_master) put(it.lists[it.master()], dtype::float32, index, parameter[index]);
    if (has_master || it.value_type == dtype::float32)
      put(it.values, it.value_type, index, parameter[index]);
    else
      put_stochastic(it.values, it.value_type, index, parameter[index], random(max_lists));
  }
}

/// Four steps against the plain twin, with all that a trainer may do to gradients.
template <class Kernel, class Executor>
void equals_its_twin(const Kernel& kernel, dtype value, dtype slope, bool in_place, Executor& workers)
{
  INFO(name_of(value) << " " << name_of(slope) << (in_place ? " in place" : ""));
  plain_parameter<Kernel> fused{kernel, value, slope, in_place};
  plain_parameter<Kernel> plain{kernel, value, slope, in_place};
  for (std::uint64_t step = 1; step <= 4; ++step) {
    const bool fresh = step == 1;
    const gradient_transform how{step == 2 ? 0.37F : 1.0F, step >= 3 ? 0.5F : 0.0F};
    fused.differentiate(step);
    plain.differentiate(step);
    update_parameter(kernel, fused.describe(fresh), how, {0.05F, step}, 77, workers);
    update_plainly(plain, how, {0.05F, step}, 77, fresh);
    REQUIRE(support::same_bits(fused.values, plain.values));
    for (std::size_t index = 0; index < fused.lists.size(); ++index)
      REQUIRE(support::same_bits(fused.lists[index], plain.lists[index]));
  }
}

template <class Kernel>
void every_kind_equals_its_twin(const Kernel& kernel)
{
  chunkmem::serial alone;
  const bool has_masters = std::ranges::count(kernel.lists(), cm::list_use::master, &cm::list_spec::use) > 0;
  for (const dtype value : real_types) {
    equals_its_twin(kernel, value, value, false, alone);
    if (value == dtype::float32) continue;
    equals_its_twin(kernel, value, dtype::float32, false, alone);
    if (has_masters) equals_its_twin(kernel, value, value, true, alone);
  }
}

/// The smallest kernel that a user may write.
struct descend {
  static constexpr std::string_view name = "descend";
  [[nodiscard]] static std::span<const cm::list_spec> lists() noexcept { return {}; }
  void update(const update_spans& spans, const step_settings& settings) const noexcept
  {
    for (std::size_t index = 0; index < spans.parameter.size(); ++index)
      spans.parameter[index] = std::fma(-settings.learning_rate, spans.gradient[index], spans.parameter[index]);
  }
  step_progress progress;
};

/// Has its master between states of two types.
struct mixed_lists : descend {
  static constexpr cm::list_spec all[] = {
      {"mixed/first", dtype::float16}, cm::master_list, {"mixed/second", dtype::bfloat16}, {"mixed/third"}};
  [[nodiscard]] static std::span<const cm::list_spec> lists() noexcept { return all; }
  void update(const update_spans& spans, const step_settings& settings) const noexcept
  {
    descend::update(spans, settings);
    for (std::size_t list = 0; list < 3; ++list)
      for (std::size_t index = 0; index < spans.parameter.size(); ++index)
        spans.lists[list][index] = std::fma(0.3F, spans.lists[list][index], spans.gradient[index]);
  }
};

/// Says that it has three threads, counts parts, and does the last one first.
struct counting_executor {
  [[nodiscard]] static unsigned threads() { return 3; }
  template <class Work>
  void run(unsigned wanted, Work&& work)
  {
    parts += wanted;
    for (unsigned part = wanted; part-- > 0;) work(part);
  }
  unsigned parts = 0;
};

}  // namespace

TEST_CASE("one fused pass gives the bits of widening, updating and rounding one after another", "[optimizer]")
{
  every_kind_equals_its_twin(adam{{.weight_decay = 0.01F}});
  every_kind_equals_its_twin(adam{{}, {.moments = dtype::bfloat16}});
  every_kind_equals_its_twin(adam{{}, {.moments = dtype::bfloat16, .masters = false}});
  every_kind_equals_its_twin(sgd{{.weight_decay = 0.01F}});
  every_kind_equals_its_twin(sgd{{.nesterov = true}, {.momentum = dtype::bfloat16, .masters = false}});
  every_kind_equals_its_twin(sgd{{.momentum = 0.0F}});
  every_kind_equals_its_twin(descend{});
  every_kind_equals_its_twin(mixed_lists{});
}

TEST_CASE("the bits of an update do not depend on threads", "[optimizer]")
{
  const adam kernel{{}, {.moments = dtype::bfloat16}};
  constexpr std::size_t large = 3 * 32768 + 4096 + 77;
  chunkmem::serial alone;
  plain_parameter<adam> first{kernel, dtype::bfloat16, dtype::bfloat16, false, large};
  first.differentiate(1);
  update_parameter(kernel, first.describe(true), {}, {0.05F, 1}, 5, alone);
  for (const unsigned threads : {1U, 2U, 3U}) {
    thread_pool pool{threads};
    plain_parameter<adam> other{kernel, dtype::bfloat16, dtype::bfloat16, false, large};
    other.differentiate(1);
    update_parameter(kernel, other.describe(true), {}, {0.05F, 1}, 5, pool);
    REQUIRE(support::same_bits(first.values, other.values));
    for (std::size_t index = 0; index < first.lists.size(); ++index)
      REQUIRE(support::same_bits(first.lists[index], other.lists[index]));
  }
}

TEST_CASE("parts cover a parameter once, in multiples of 4096 elements; small ones are not shared out", "[optimizer]")
{
  const descend kernel;
  const std::size_t cache = chunkmem::detail::second_cache_bytes();  // a part has 8 B for each element
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{32767}, std::size_t{32768}, std::size_t{50000}, cache / 2 + 1}) {
    counting_executor workers;
    plain_parameter<descend> it{kernel, dtype::float32, dtype::float32, false, size};
    for (std::size_t index = 0; index < size; ++index) {
      put(it.values, dtype::float32, index, 0.0F);
      put(it.gradients, dtype::float32, index, -1.0F);
    }
    update_parameter(kernel, it.describe(false), {}, {1.0F, 1}, 0, workers);
    std::size_t wrong = 0;
    for (std::size_t index = 0; index < size; ++index)
      wrong += number_at(it.values, dtype::float32, index) == 1.0F ? 0 : 1;
    CHECK(wrong == 0);
    if (size <= 50000)
      CHECK(workers.parts == (size < 32768 ? 0U : 3U));  // of 8 and of 13 multiples, in threes and in fives
    else
      CHECK(workers.parts == 5U);  // two for two of the threads, one for the third
  }
}

TEST_CASE("a part of a large parameter is what the second cache holds, and each thread gets one", "[optimizer]")
{
  const std::uint64_t cache = chunkmem::detail::second_cache_bytes();
  cm::optimizer::parameter_bytes bytes{};
  std::byte anything{};
  bytes.value_type = bytes.gradient_type = dtype::bfloat16;
  bytes.lists[0].data = bytes.lists[1].data = &anything;  // of 4 bytes
  bytes.list_count = 3;                                   // one is a master that has no bytes
  for (const std::uint64_t elements : {std::uint64_t{32768}, std::uint64_t{1} << 20, std::uint64_t{1} << 34})
    for (const std::uint64_t threads : {2U, 3U, 64U}) {
      bytes.elements = elements;
      const std::uint64_t part = cm::optimizer::detail::elements_of_part(bytes, threads);
      INFO(elements << " elements, " << threads << " threads, parts of " << part);
      CHECK(part % 4096 == 0);
      CHECK((part == 4096 || part * 12 <= cache));
      CHECK(part <= std::max<std::uint64_t>(4096, (elements / threads + 4096)));
      if (elements / threads > cache / 12 + 4096) CHECK((part + 4096) * 12 > cache);
    }
}

TEST_CASE("without a master, stochastic rounding keeps the mean that rounding to nearest would lose", "[optimizer]")
{
  const descend kernel;
  chunkmem::serial alone;
  plain_parameter<descend> it{kernel, dtype::bfloat16, dtype::float32, false, 4096};
  for (std::size_t index = 0; index < it.size; ++index) {
    put(it.values, dtype::bfloat16, index, 1.0F);
    put(it.gradients, dtype::float32, index, -1.0F);
  }
  for (std::uint64_t step = 1; step <= 64; ++step)
    update_parameter(kernel, it.describe(false), {}, {0x1p-12F, step}, 3, alone);
  double sum = 0;
  for (std::size_t index = 0; index < it.size; ++index)
    sum += static_cast<double>(number_at(it.values, dtype::bfloat16, index));
  // 64 steps of 1/32 ulp: two ulps of 2^-7; the deviation of the mean is sqrt(64 * 1/32) / sqrt(4096) = 0.022 ulp
  CHECK(std::abs(sum / 4096 - (1.0 + 0x1p-6)) < 5 * 0.022 * 0x1p-7);
}

TEST_CASE("an update refuses bytes that do not fit the kernel", "[optimizer]")
{
  const adam kernel;
  chunkmem::serial alone;
  plain_parameter<adam> it{kernel, dtype::bfloat16, dtype::bfloat16, false};
  const auto refused = [&](auto change, const char* why) {
    parameter_bytes bytes = it.describe(true);
    change(bytes);
    CHECK_THROWS_WITH(update_parameter(kernel, bytes, {}, {}, 0, alone), ContainsSubstring(why));
  };
  const std::vector<std::byte> before = it.values;
  refused([](parameter_bytes& all) { all.list_count = 1; }, "other lists");
  refused([](parameter_bytes& all) { all.list_count = max_lists + 1; }, "more lists");
  refused([](parameter_bytes& all) { all.gradient_type = dtype::float16; }, "neither of its type nor float32");
  refused([](parameter_bytes& all) { all.value_type = all.gradient_type = dtype::int32; }, "gradient");
  refused([](parameter_bytes& all) { all.lists[0].type = dtype::uint8; }, "no real numbers");
  refused([](parameter_bytes& all) { all.lists[2].type = dtype::bfloat16; }, "master");
  refused([](parameter_bytes& all) { all.value_type = all.gradient_type = dtype::float32; }, "master");
  refused([](parameter_bytes& all) { std::swap(all.lists[0], all.lists[2]); }, "before a state");
  refused([](parameter_bytes& all) { all.gradient = all.value; }, "overwritten");
  refused(
      [](parameter_bytes& all) {
        all.gradient = all.value;
        all.fresh_master = false;
        all.lists[2].data = nullptr;
      },
      "overwritten");
  CHECK(support::same_bits(it.values, before));
}

}  // namespace update_parameter_test
