// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/agreed_measure.hpp>

#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/optimizer/update_site.hpp>
#include <chunkmem/sharding/gathered_units.hpp>
#include <chunkmem/sharding/unit_plan.hpp>

#include <support/catch.hpp>
#include <support/count_allocations.hpp>
#include <support/rank_threads.hpp>
#include <support/refusal.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace agreed_measure_test {

using namespace chunkmem;
using sharding::agreed_measure;
using sharding::unit_plan;

template <class Element>
struct gradients {
  std::vector<std::vector<Element>> of_tensor;
  std::vector<bool> is_there;

  gradients(std::uint64_t seed, bool breaks)
  {
    std::mt19937_64 random{seed};
    std::normal_distribution<float> numbers;
    for (const std::uint64_t size : {1U, 4095U, 4096U, 4097U, 200'000U, 777U, 20'000U}) {
      of_tensor.emplace_back(size);
      for (Element& it : of_tensor.back()) it = round_to<Element>(numbers(random));
      is_there.push_back(random() % 4 != 0);
    }
    if (breaks)
      of_tensor[4][150'000] = round_to<Element>(seed % 2 == 0 ? std::numeric_limits<float>::infinity()
                                                              : std::numeric_limits<float>::quiet_NaN());
  }
  [[nodiscard]] gradient_measure plain() const
  {
    gradient_measure all;
    for (std::size_t index = 0; index < of_tensor.size(); ++index)
      if (is_there[index])
        all.add(optimizer::measure_parameter(reinterpret_cast<const std::byte*>(of_tensor[index].data()),
                                             dtype_of<Element>, of_tensor[index].size(), on_this_thread));
    return all;
  }
  /// Of all tensors together, unit by unit, as rank `rank` has it behind the sum; padding is full of what must not
  /// count.
  [[nodiscard]] std::vector<std::vector<Element>> shares(const unit_plan<append_layout>& plan, rank_id rank) const
  {
    std::vector<std::vector<Element>> result;
    for (std::uint32_t index = 0; index < plan.units().size(); ++index) {
      const std::uint64_t begin = plan.share_begin(index, rank);
      result.emplace_back(plan.share_end(index, rank) - begin, round_to<Element>(1e4F));
      for (const auto& part : plan.parts(index, rank))
        std::copy_n(of_tensor[part.tensor].begin() + static_cast<std::ptrdiff_t>(part.first), part.elements,
                    result.back().begin() + static_cast<std::ptrdiff_t>(part.begin - begin));
    }
    return result;
  }
};

/// The difference of a rank's measure from that of one rank, or nothing.
std::string difference(const gradient_measure& found, const gradient_measure& wanted)
{
  std::string result;
  if (std::bit_cast<std::uint64_t>(found.squares) != std::bit_cast<std::uint64_t>(wanted.squares)) result += "squares ";
  if (std::bit_cast<std::uint64_t>(found.magnitudes) != std::bit_cast<std::uint64_t>(wanted.magnitudes))
    result += "magnitudes ";
  if (std::bit_cast<std::uint32_t>(found.largest) != std::bit_cast<std::uint32_t>(wanted.largest)) result += "largest ";
  if (found.finite != wanted.finite) result += "finite ";
  return result;
}
/// Runs `work(rank, its communicator)` on ranks that are threads. @return   the complaints of all ranks, joined
template <class Work>
std::string of_all_ranks(std::uint32_t ranks, Work work)
{
  std::vector<std::string> complaints(ranks);
  const collective::thread_group group{ranks, {}};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    complaints[rank] = support::complaint_of([&] {
      collective::local_threads here{group, rank_id{rank}};
      return work(rank, here);
    });
  });
  return std::accumulate(complaints.begin(), complaints.end(), std::string{});
}

template <class Element>
std::string complaint(const gradients<Element>& all, std::uint32_t ranks)
{
  const gradient_measure wanted = all.plain();
  return of_all_ranks(ranks, [&](std::uint32_t rank, collective::local_threads& here) {
    unit_plan<append_layout> plan;
    for (const auto& it : all.of_tensor) plan.add(dtype_of<Element>, group_id{0}, true, it.size());
    plan.seal(bytes{std::uint64_t{ranks} * 4096 * 4 * 2}, ranks);
    auto own = all.shares(plan, rank_id{rank});
    agreed_measure measure;
    std::string result;
    for (int again = 0; again < 2; ++again) {
      measure.begin(here, plan.tensors(), [&](std::uint32_t index) { return all.is_there[index]; });
      for (std::uint32_t index = 0; index < plan.units().size(); ++index) {
        auto& share = own[index];
        measure.take(plan, here.rank(), index, dtype_of<Element>, reinterpret_cast<const std::byte*>(share.data()),
                     on_this_thread);
        if (again != 0) std::ranges::fill(share, round_to<Element>(3.0F));  // as an early update in place
        measure.add(here, plan, index);
      }
      result += difference(measure.total(), wanted);
    }
    return result;
  });
}

TEST_CASE("ranks measure what one rank measures, bit by bit", "[sharding]")
{
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    for (std::uint32_t ranks = 1; ranks <= 8; ++ranks) {
      INFO("seed " << seed << ", " << ranks << " ranks");
      CHECK(complaint(gradients<float>{seed, seed > 2}, ranks) == "");
      CHECK(complaint(gradients<bf16>{seed, seed > 2}, ranks) == "");
      CHECK(complaint(gradients<fp16>{seed, seed > 2}, ranks) == "");
    }
}

namespace {

/// Of a model of several element types and groups, whose units are not in the order of its tensors.
struct mixed {
  struct one {
    dtype type;
    group_id group;
    std::uint64_t size;
    bool is_there;
  };
  std::vector<one> tensors;
  std::vector<std::vector<float>> values;  ///< gradients, as floats of that type

  explicit mixed(std::uint64_t seed)
  {
    std::mt19937_64 random{seed};
    std::normal_distribution<float> numbers;
    const dtype types[] = {dtype::float32, dtype::bfloat16, dtype::float16};
    const std::uint64_t sizes[] = {1, 4095, 4096, 4097, 70'000};
    for (std::uint64_t left = 4 + random() % 12; left > 0; --left) {
      const bool is_last_group = random() % 3 == 0;  // has no gradient at all in odd seeds
      tensors.push_back({types[random() % 3], group_id{is_last_group ? 1U : 0U},
                         random() % 2 == 0 ? sizes[random() % 5] : 1 + random() % 9'000,
                         random() % 4 != 0 && !(is_last_group && seed % 2 == 1)});
      values.emplace_back(tensors.back().size);
      const float scale = std::exp2(static_cast<float>(random() % 12));  // so that the order of sums shows
      for (float& it : values.back()) it = round(tensors.back().type, numbers(random) * scale);
    }
  }
  static float round(dtype type, float value)
  {
    return sharding::with_element(type, [&]<class Element>(Element) { return to_float(round_to<Element>(value)); });
  }
  static std::vector<std::byte> bytes_of(dtype type, const float* from, std::uint64_t count)
  {
    return sharding::with_element(type, [&]<class Element>(Element) {
      std::vector<std::byte> result(count * sizeof(Element));
      for (std::uint64_t index = 0; index < count; ++index) {
        const Element value = round_to<Element>(from[index]);
        std::memcpy(result.data() + index * sizeof(Element), &value, sizeof(Element));
      }
      return result;
    });
  }
  [[nodiscard]] gradient_measure plain() const
  {
    gradient_measure all;
    for (std::size_t index = 0; index < tensors.size(); ++index)
      if (tensors[index].is_there)
        all.add(optimizer::measure_parameter(
            bytes_of(tensors[index].type, values[index].data(), tensors[index].size).data(), tensors[index].type,
            tensors[index].size, on_this_thread));
    return all;
  }
};

/// As above: the difference of a rank's result from that of one rank, or nothing.
template <class Layout>
std::string complaint_of(const mixed& all, std::uint32_t ranks)
{
  const gradient_measure wanted = all.plain();
  return of_all_ranks(ranks, [&](std::uint32_t rank, collective::local_threads& here) {
    unit_plan<Layout> plan;
    for (const auto& it : all.tensors) plan.add(it.type, it.group, true, it.size);
    plan.seal(bytes{std::uint64_t{ranks} * 4096 * 4}, ranks);
    agreed_measure measure;
    measure.begin(here, plan.tensors(), [&](std::uint32_t index) { return all.tensors[index].is_there; });
    for (std::uint32_t index = 0; index < plan.units().size(); ++index) {
      const sharding::unit& unit = plan.units()[index];
      const std::uint64_t begin = plan.share_begin(index, rank_id{rank});
      // padding
      std::vector<float> own(plan.share_end(index, rank_id{rank}) - begin, std::numeric_limits<float>::quiet_NaN());
      for (const auto& part : plan.parts(index, rank_id{rank}))
        if (all.tensors[part.tensor].is_there)  // else it is undefined, too
          std::copy_n(all.values[part.tensor].begin() + static_cast<std::ptrdiff_t>(part.first), part.elements,
                      own.begin() + static_cast<std::ptrdiff_t>(part.begin - begin));
      const auto bytes_of_share = mixed::bytes_of(unit.type, own.data(), own.size());
      const bool has_any =
          std::ranges::any_of(unit.tensors, [&](std::uint32_t tensor) { return all.tensors[tensor].is_there; });
      measure.take(plan, here.rank(), index, unit.type, has_any ? bytes_of_share.data() : nullptr, on_this_thread);
      measure.add(here, plan, index);
    }
    return difference(measure.total(), wanted);
  });
}

}  // namespace

TEST_CASE("sums of ranks are in the order of tensors, whatever the order of their units", "[sharding]")
{
  for (std::uint64_t seed = 1; seed <= 6; ++seed)
    for (const std::uint32_t ranks : {1U, 2U, 3U, 4U, 8U}) {
      INFO("seed " << seed << ", " << ranks << " ranks");
      CHECK(complaint_of<append_layout>(mixed{seed}, ranks) == "");
      CHECK(complaint_of<best_fit_layout>(mixed{seed}, ranks) == "");
    }
}

TEST_CASE("ranks with gradients of different weights, or other settings, are told so, all of them", "[sharding]")
{
  for (const bool of_settings : {false, true}) {
    std::vector<int> refused(3, 0);
    const collective::thread_group group{3, {}};
    support::on_ranks(3, [&](std::uint32_t rank) {
      collective::local_threads here{group, rank_id{rank}};
      agreed_measure measure;
      try {
        measure.begin(
            here, 5, [&](std::uint32_t tensor) { return of_settings || tensor != 2 || rank != 1; },
            of_settings && rank == 2 ? 8U : 7U);
      } catch (const usage_error&) {
        refused[rank] = 1;
      }
    });
    CHECK(refused == std::vector<int>{1, 1, 1});
  }
}

TEST_CASE("a measure that is taken again for the same plan allocates nothing", "[sharding]")
{
  const gradients<bf16> all{7, false};
  unit_plan<append_layout> plan;
  for (const auto& it : all.of_tensor) plan.add(dtype::bfloat16, group_id{0}, true, it.size());
  plan.seal(bytes{4096 * 4 * 2}, 1);
  const auto own = all.shares(plan, rank_id{0});
  collective::self here;
  agreed_measure measure;
  const auto take = [&] {
    measure.begin(here, plan.tensors(), [](std::uint32_t) { return true; });
    for (std::uint32_t index = 0; index < plan.units().size(); ++index) {
      measure.take(plan, here.rank(), index, dtype::bfloat16, reinterpret_cast<const std::byte*>(own[index].data()),
                   on_this_thread);
      measure.add(here, plan, index);
    }
    return measure.total().squares;
  };
  const double first = take();
  const auto before = support::allocations_so_far();
  const bool same = take() == first;
  if (support::counts_allocations) CHECK((support::allocations_so_far() - before).all() == 0);
  CHECK(same);
}

}  // namespace agreed_measure_test
