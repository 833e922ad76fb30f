#include <chunkmem/sharding/agreed_measure.hpp>

#include <chunkmem/chunk/append_layout.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/optimizer/measure_parameter.hpp>
#include <chunkmem/sharding/unit_plan.hpp>

#include <support/catch.hpp>
#include <support/rank_threads.hpp>

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
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
    if (breaks) of_tensor[4][150'000] = round_to<Element>(seed % 2 == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN());
  }
  [[nodiscard]] gradient_measure plain() const
  {
    gradient_measure all;
    for (std::size_t at = 0; at < of_tensor.size(); ++at)
      if (is_there[at])
        all.add(optimizer::measure_parameter(reinterpret_cast<const std::byte*>(of_tensor[at].data()), dtype_of<Element>, of_tensor[at].size(),
                                             optimizer::on_this_thread));
    return all;
  }
  /// Of all tensors together, unit by unit, as rank `rank` has it behind the sum; padding is full of what must not count.
  [[nodiscard]] std::vector<std::vector<Element>> shares(const unit_plan<append_layout>& plan, rank_id rank) const
  {
    std::vector<std::vector<Element>> result;
    for (std::uint32_t at = 0; at < plan.units().size(); ++at) {
      const std::uint64_t begin = plan.share_begin(at, rank);
      result.emplace_back(plan.share_end(at, rank) - begin, round_to<Element>(1e4F));
      for (const auto& part : plan.parts(at, rank))
        std::copy_n(of_tensor[part.tensor].begin() + static_cast<std::ptrdiff_t>(part.first), part.elements,
                    result.back().begin() + static_cast<std::ptrdiff_t>(part.begin - begin));
    }
    return result;
  }
};

template <class Element>
std::string complaint(const gradients<Element>& all, std::uint32_t ranks)
{
  const gradient_measure wanted = all.plain();
  std::vector<std::string> complaints(ranks);
  const collective::thread_group group{ranks, {}};
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    try {
      collective::local_threads here{group, rank_id{rank}};
      unit_plan<append_layout> plan;
      for (const auto& it : all.of_tensor) plan.add(dtype_of<Element>, group_id{0}, true, it.size());
      plan.seal(bytes{std::uint64_t{ranks} * 4096 * 4 * 2}, ranks);
      const auto own = all.shares(plan, rank_id{rank});
      agreed_measure measure;
      for (int again = 0; again < 2; ++again) {
        measure.begin(here, plan.tensors(), [&](std::uint32_t at) { return all.is_there[at]; });
        for (std::uint32_t at = 0; at < plan.units().size(); ++at)
          measure.add(here, plan, at, dtype_of<Element>, reinterpret_cast<const std::byte*>(own[at].data()), optimizer::on_this_thread);
        const gradient_measure found = measure.total();
        if (std::bit_cast<std::uint64_t>(found.squares) != std::bit_cast<std::uint64_t>(wanted.squares)) complaints[rank] += "squares ";
        if (std::bit_cast<std::uint64_t>(found.magnitudes) != std::bit_cast<std::uint64_t>(wanted.magnitudes)) complaints[rank] += "magnitudes ";
        if (std::bit_cast<std::uint32_t>(found.largest) != std::bit_cast<std::uint32_t>(wanted.largest)) complaints[rank] += "largest ";
        if (found.finite != wanted.finite) complaints[rank] += "finite ";
      }
    } catch (const std::exception& failed) {
      complaints[rank] = failed.what();
    }
  });
  std::string result;
  for (const std::string& it : complaints) result += it;
  return result;
}

TEST_CASE("ranks measure what one rank measures, bit by bit", "[sharding]")
{
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    for (const std::uint32_t ranks : {1U, 2U, 3U, 5U, 8U}) {
      INFO("seed " << seed << ", " << ranks << " ranks");
      CHECK(complaint(gradients<float>{seed, seed > 2}, ranks) == "");
      CHECK(complaint(gradients<bf16>{seed, seed > 2}, ranks) == "");
      CHECK(complaint(gradients<fp16>{seed, seed > 2}, ranks) == "");
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
        measure.begin(here, 5, [&](std::uint32_t tensor) { return of_settings || tensor != 2 || rank != 1; }, of_settings && rank == 2 ? 8U : 7U);
      } catch (const usage_error&) {
        refused[rank] = 1;
      }
    });
    CHECK(refused == std::vector<int>{1, 1, 1});
  }
}

}  // namespace agreed_measure_test
