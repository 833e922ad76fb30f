// SPDX-License-Identifier: Apache-2.0
#include <gpt_cuda/attention_kernels.hpp>

#include <gpt_cuda/fake_math.hpp>
#include <gpt_cuda/random_numbers.hpp>

#include <algorithm>

namespace attention_kernels_test {

namespace {

using namespace gpt_cuda_test;
using gpt::cuda::score_stride;
using support::run_in_loops;

/// Causal softmax and its backward pass in float64; scores past the query are NaN, and must not be read.
struct reference {
  std::vector<double> weights, d_scores;

  reference(numbers<float>& scores, numbers<float>& d_weights, std::uint32_t heads, std::uint32_t context, double scale)
      : weights(scores.size()), d_scores(scores.size())
  {
    const std::size_t stride = score_stride(context);
    for (std::size_t row = 0; row < std::size_t{heads} * context; ++row) {
      const std::size_t begin = row * stride;
      const std::size_t seen = row % context + 1;
      double highest = scores[begin], sum = 0.0, mean = 0.0;
      for (std::size_t i = 0; i < seen; ++i) highest = std::max(highest, scores[begin + i]);
      for (std::size_t i = 0; i < seen; ++i) sum += std::exp(scores[begin + i] - highest);
      for (std::size_t i = 0; i < seen; ++i) weights[begin + i] = std::exp(scores[begin + i] - highest) / sum;
      for (std::size_t i = 0; i < seen; ++i) mean += weights[begin + i] * d_weights[begin + i];
      for (std::size_t i = 0; i < seen; ++i)
        d_scores[begin + i] = weights[begin + i] * (d_weights[begin + i] - mean) * scale;
    }
  }
};

/// Numbers where a query sees its key, NaN elsewhere.
void draw_seen(numbers<float>& all, std::uint64_t stream, std::uint32_t context, float size)
{
  const std::size_t stride = score_stride(context);
  const gpt::counter_random random{fresh_seed(), stream};
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i % stride <= i / stride % context) all.set(i, (random.uniform(i) - 0.5F) * size);
}

}  // namespace

TEST_CASE("causal softmax and its way back are those of float64, and never look ahead", "[gpt_cuda]")
{
  for (const auto& [heads, context] : {std::pair{1U, 1U}, std::pair{3U, 33U}, std::pair{2U, 300U}}) {
    const std::size_t size = std::size_t{heads} * context * score_stride(context);
    numbers<float> scores{size}, d_weights{size};
    numbers<bf16> weights{size}, d_scores{size};
    draw_seen(scores, 1, context, 12.0F);
    draw_seen(d_weights, 2, context, 1.0F);
    const reference expected{scores, d_weights, heads, context, 0.25};
    run_in_loops(gpt::cuda::softmax_forward_kernel{scores.data(), weights.data(), heads, context});
    check_near(weights, expected.weights, bf16_bound);
    run_in_loops(
        gpt::cuda::softmax_backward_kernel{weights.data(), d_weights.data(), d_scores.data(), heads, context, 0.25F});
    if (context == 1) {
      CHECK(d_scores[0] == 0.0);  // one key has all the weight
    } else {
      check_near(d_scores, expected.d_scores, 2 * bf16_bound);  // from weights that were rounded
    }
  }
}

}  // namespace attention_kernels_test
