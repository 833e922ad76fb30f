// SPDX-License-Identifier: Apache-2.0
#include <gpu/kernel_runner.hpp>

#include <chunkmem/activation/row_choice.hpp>
#include <chunkmem/activation/sampled_input.hpp>
#include <chunkmem/optimizer/update_kernel.hpp>
#include <gpu/machine.hpp>
#include <kernels/stored_parameter.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

using namespace kernels;
namespace act = chunkmem::activation;

namespace {

/// How many elements of what kernels wrote have the bits that the host gives them.
class tally {
 public:
  void compare(const std::byte* host, const std::byte* device, std::size_t size, std::size_t unit)
  {
    for (std::size_t index = 0; index < size; index += unit)
      equal_ += std::memcmp(host + index, device + index, unit) == 0 ? 1U : 0U;
    all_ += size / unit;
  }
  void compare(const stored_parameter& host, const stored_parameter& device)
  {
    compare(host.value.data(), device.value.data(), host.value.size(), cm::size_of(host.how.value));
    for (std::size_t index = 0; index < host.lists.size(); ++index)
      compare(host.lists[index].data(), device.lists[index].data(), host.lists[index].size(),
              cm::size_of(host.specs[index].type));
  }
  void add(const tally& other)
  {
    equal_ += other.equal_;
    all_ += other.all_;
  }
  [[nodiscard]] double percent() const
  {
    return all_ == equal_ ? 100.0 : 100.0 * static_cast<double>(equal_) / static_cast<double>(all_);
  }
  [[nodiscard]] std::uint64_t all() const noexcept { return all_; }

 private:
  std::uint64_t equal_ = 0;
  std::uint64_t all_ = 0;
};

/// Four steps on the host and on the GPU.
template <class Kernel>
void update_on_both(gpu::kernel_runner& runner, tally& result, const Kernel& kernel, const parameter_case& what,
                    std::size_t elements, std::size_t distance = 0)
{
  kernels::update_on_both(
      kernel, what, elements, distance, [&](const auto&... of) { runner.update(of...); },
      [&](const stored_parameter& host, const stored_parameter& device, std::uint64_t) {
        result.compare(host, device);
      });
}

void update_all_on_both(gpu::kernel_runner& runner, tally& result, std::size_t elements, std::size_t distance = 0)
{
  for_each_kernel([&](const char* name, const auto& kernel, bool masters) {
    for (const parameter_case& what : parameter_cases(masters)) {
      tally mine;
      update_on_both(runner, mine, kernel, what, elements, distance);
      result.add(mine);
      INFO(name << (masters ? ", masters, " : ", no masters, ") << name_of(what) << ", " << elements << " elements");
      CHECK(mine.percent() == 100.0);
    }
  });
}

constexpr cm::dtype types[] = {cm::dtype::float32, cm::dtype::bfloat16, cm::dtype::float16};

[[nodiscard]] placed_bytes numbers_of(cm::dtype type, std::size_t elements, std::uint64_t key, bool all_hostile)
{
  placed_bytes all{elements * cm::size_of(type), 0};
  fill(all, type, key, all_hostile);
  return all;
}

[[nodiscard]] cm::gradient_measure measure_on_host(const placed_bytes& numbers, cm::dtype type, std::size_t elements)
{
  const auto of = [&]<class Element>(const Element* first) { return cm::measure(std::span{first, elements}); };
  if (type == cm::dtype::bfloat16) return of(reinterpret_cast<const cm::bf16*>(numbers.data()));
  if (type == cm::dtype::float16) return of(reinterpret_cast<const cm::fp16*>(numbers.data()));
  return of(reinterpret_cast<const float*>(numbers.data()));
}

/// Sets every number that is not finite to one.
void make_finite(placed_bytes& numbers, cm::dtype type)
{
  const std::uint32_t exponent = type == cm::dtype::float32    ? 0x7f800000U
                                 : type == cm::dtype::bfloat16 ? 0x7f80U
                                                               : 0x7c00U;
  for (std::size_t index = 0; index < numbers.size(); index += cm::size_of(type)) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, numbers.data() + index, cm::size_of(type));
    if ((bits & exponent) == exponent) bits &= ~(exponent & (exponent >> 1U));
    std::memcpy(numbers.data() + index, &bits, cm::size_of(type));
  }
}

}  // namespace

TEST_CASE("kernels on a GPU give the bits of the host", "[gpu][kernels]")
{
  if (const std::string why = gpu::why_not(); !why.empty()) SKIP(why);
  gpu::kernel_runner runner;
  tally updates;
  update_all_on_both(runner, updates, 8'011);
  for (const std::size_t elements : {1U, 7U, 8U, 9U, 129U}) update_all_on_both(runner, updates, elements);
  for (const std::size_t distance : {4U, 8U, 12U}) update_all_on_both(runner, updates, 150, distance);
  const opt::adam adam{{.weight_decay = 0.1F}};
  for (const parameter_case& what : parameter_cases(true)) update_on_both(runner, updates, adam, what, 1'000'003);

  tally measures;
  for (const cm::dtype type : types)
    for (const std::size_t elements : {1U, 31U, 4'096U, 4'097U, 1'000'003U})
      for (const bool finite : {true, false}) {
        placed_bytes numbers = numbers_of(type, elements, 7, elements < 5'000);
        if (finite) make_finite(numbers, type);
        const cm::gradient_measure host = measure_on_host(numbers, type, elements);
        const cm::gradient_measure device = runner.measure({numbers.data(), type, elements});
        INFO(cm::name_of(type) << ", " << elements << " elements, finite: " << finite);
        CHECK(device.finite == host.finite);
        for (const auto& [left, right] :
             {std::pair{host.squares, device.squares}, std::pair{host.magnitudes, device.magnitudes},
              std::pair{double{host.largest}, double{device.largest}}})
          measures.compare(reinterpret_cast<const std::byte*>(&left), reinterpret_cast<const std::byte*>(&right),
                           sizeof left, sizeof left);
      }

  tally casts;
  const cm::rounding_key key{.seed = 5, .step = 6, .tensor = 7, .list = 8};
  for (const cm::dtype from : types)
    for (const cm::dtype to : types)
      for (const cm::rounding_key* const how : {static_cast<const cm::rounding_key*>(nullptr), &key}) {
        constexpr std::size_t elements = 200'003;
        placed_bytes source = numbers_of(from, elements, 9, true);
        placed_bytes host{elements * cm::size_of(to), 0};
        placed_bytes device{elements * cm::size_of(to), 0};
        const opt::cast_kernel::run_of_elements target{host.data(), to};
        const opt::cast_kernel::run_of_elements origin{source.data(), from};
        opt::loop_launcher::run(how == nullptr ? opt::cast_kernel{target, origin, elements}
                                               : opt::cast_kernel{target, origin, elements, *how, 7});
        runner.cast({device.data(), to, elements}, {source.data(), from, elements}, how);
        casts.compare(host.data(), device.data(), host.size(), cm::size_of(to));
      }

  CHECK(updates.percent() == 100.0);
  CHECK(measures.percent() == 100.0);
  CHECK(casts.percent() == 100.0);
  gpu::figures figures{"test_gpu"};
  figures.add("cuda.kernels_bit_equal_percent", std::min({updates.percent(), measures.percent(), casts.percent()}), "%",
              "==", 100);
  CHECK(figures.write());
  CHECK(updates.all() > 20'000'000);
}

TEST_CASE("a step that the GPU skips makes masters and overwritten weights, and nothing else", "[gpu][kernels]")
{
  if (const std::string why = gpu::why_not(); !why.empty()) SKIP(why);
  gpu::kernel_runner runner;
  const opt::adam kernel{};
  for (const parameter_case& what : parameter_cases(true)) {
    stored_parameter host{kernel, what, 1'003};
    stored_parameter device{kernel, what, 1'003};
    for (std::uint64_t step = 1; step <= 2; ++step) {
      for (stored_parameter* each : {&host, &device}) each->differentiate(step);
      const opt::step_settings settings{0.01F, step};
      update_by_kernel(kernel, host.describe(step), {}, settings, 42, host.is_over(step), opt::step_decision::skip);
      runner.update(kernel, device.describe(step), {}, settings, 42, device.is_over(step), opt::step_decision::skip);
      INFO(name_of(what) << ", step " << step);
      CHECK(host == device);
    }
  }
}

TEST_CASE("flags found on a GPU are those of the numbers", "[gpu][kernels]")
{
  if (const std::string why = gpu::why_not(); !why.empty()) SKIP(why);
  gpu::kernel_runner runner;
  for (const cm::dtype type : types)
    for (const std::size_t elements : {1U, 1'000U, 300'007U})
      for (const bool finite : {true, false}) {
        placed_bytes numbers = numbers_of(type, elements, 3, true);
        if (finite) make_finite(numbers, type);
        const cm::gradient_measure expected = measure_on_host(numbers, type, elements);
        const auto found = runner.find_flags({numbers.data(), type, elements});
        INFO(cm::name_of(type) << ", " << elements << " elements, finite: " << finite);
        CHECK(found.are_finite == expected.finite);
        if (expected.finite) CHECK(found.largest == expected.largest);
      }
}

TEST_CASE("a GPU keeps the rows that the host keeps, with the sort and the sum of CUB", "[gpu][kernels]")
{
  if (const std::string why = gpu::why_not(); !why.empty()) SKIP(why);
  gpu::kernel_runner runner;
  struct extents {
    std::size_t rows, width, kept;
  };
  for (const cm::dtype type : types)
    for (const auto& [rows, width, kept] : {extents{1, 5, 1}, extents{96, 40, 29}, extents{96, 40, 96},
                                            extents{40, 9'000, 12}, extents{70'001, 3, 21'000}})
      for (const bool finite : {true, false}) {
        placed_bytes input = numbers_of(type, rows * width, rows + kept, false);
        if (finite) make_finite(input, type);
        const cm::rounding_key key{.seed = 5, .step = kept, .tensor = 7, .list = 8};
        std::vector<double> weights(rows);
        const auto weigh = [&]<class Element>(const Element* first) {
          act::detail::add_squares(cm::on_this_thread, std::span{first, rows * width}, std::span{weights});
        };
        if (type == cm::dtype::bfloat16)
          weigh(reinterpret_cast<const cm::bf16*>(input.data()));
        else if (type == cm::dtype::float16)
          weigh(reinterpret_cast<const cm::fp16*>(input.data()));
        else
          weigh(reinterpret_cast<const float*>(input.data()));
        for (double& each : weights) each = std::sqrt(each);
        std::vector<std::int32_t> indices(kept);
        std::vector<float> scales(kept);
        (void)act::row_choice{rows}.choose(weights, indices, scales, key);
        const auto found = runner.keep({input.data(), type, rows * width}, rows, kept, key);
        INFO(cm::name_of(type) << ", " << rows << " rows of " << width << ", finite: " << finite);
        const bool same_rows = found.indices == indices;
        CHECK(same_rows);
        CHECK(std::memcmp(found.scales.data(), scales.data(), kept * sizeof(float)) == 0);
        const std::size_t size = width * cm::size_of(type);
        bool same_bytes = same_rows;
        for (std::size_t at = 0; at < kept && same_bytes; ++at)
          same_bytes = std::memcmp(found.rows.data() + at * size,
                                   input.data() + static_cast<std::size_t>(indices[at]) * size, size) == 0;
        CHECK(same_bytes);
      }
}

TEST_CASE("tensors packed and unpacked on a GPU are the same tensors", "[gpu][kernels]")
{
  if (const std::string why = gpu::why_not(); !why.empty()) SKIP(why);
  gpu::kernel_runner runner;
  std::vector<std::vector<std::byte>> tensors;
  std::vector<std::byte> run;
  for (std::uint64_t index = 0; index < 100; ++index) {
    std::vector<std::byte> one(index % 10 == 0 ? index * 5'000 : support::scrambled(index) % 300);
    for (std::size_t each = 0; each < one.size(); ++each)
      one[each] = static_cast<std::byte>(support::scrambled(index * 1'000'003 + each));
    run.insert(run.end(), one.begin(), one.end());
    tensors.push_back(std::move(one));
  }
  const auto result = runner.pack_and_unpack(tensors);
  CHECK(result.run == run);
  CHECK(result.tensors == tensors);
}
