// SPDX-License-Identifier: Apache-2.0
#include <sampled_inputs.hpp>
#include <saved_sizes.hpp>

#include <chunkmem/manager/manager.hpp>
#include <support/adversarial.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace sampled_linear_test {

namespace cm = chunkmem;
using namespace cm::literals;
using namespace libtorch_gpt;
using Catch::Matchers::ContainsSubstring;
using manager = cm::manager<support::adversarial>;

namespace {

constexpr std::int64_t samples = 2, positions = 20, width = 16, outputs = 24;

at::Tensor wave(at::IntArrayRef sizes, double by)
{
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return at::arange(0, count, at::kFloat).mul(by).sin().view(sizes).clone();
}

/// A linear layer whose weight is LibTorch's own. The manager has the rows that are kept.
struct rig {
  explicit rig(double ratio, std::uint64_t lasting = samples)
      : memory{{.device_capacity = 8_KiB, .host_capacity = 32_KiB}}
  {
    declared = m.add<float>({outputs, width}, cm::role::parameter);
    inputs.emplace(m, cm::activation::norm_cache::options{.name = "sampling", .samples = lasting, .seed = 7});
    keeper = &inputs->add("first", positions, {.rows = samples * positions, .width = width, .ratio = ratio}, declared);
    inputs->use();
  }
  ~rig() { REQUIRE(memory.faults().empty()); }

  void begin(std::uint64_t step) { inputs->begin(step, {0, 1}); }
  [[nodiscard]] at::Tensor output() const { return sampled_linear::run(input, weight, bias, keeper); }
  /// No tensor of the manager has bytes.
  [[nodiscard]] bool is_empty() const
  {
    const auto tensors = m.residency().tensors;
    return std::ranges::all_of(tensors, [](const auto& it) { return it.state == cm::tensor_state::free; });
  }

  support::adversarial memory;
  manager m{memory, {.chunk_bytes = 1_KiB}};
  cm::tensor<float> declared;
  std::optional<sampled_inputs<manager>> inputs;
  row_keeper* keeper = nullptr;
  at::Tensor input =  // some rows are larger than others
      (wave({samples, positions, width}, 0.21) * wave({samples, positions, 1}, 0.7).exp()).requires_grad_();
  at::Tensor weight = wave({outputs, width}, 0.37).requires_grad_();
  optional_tensor bias = wave({outputs}, 0.5).requires_grad_();
};

at::Tensor taken(const at::Tensor& from)
{
  return std::exchange(from.mutable_grad(), at::Tensor{});
}

/// Gradients of input, weight and bias, of a loss whose slope has the size of the output.
std::vector<at::Tensor> gradients(const rig& it, const at::Tensor& output)
{
  torch::autograd::backward({(output * output).sum()}, {});
  std::vector<at::Tensor> all{taken(it.input), taken(it.weight)};
  if (it.bias) all.push_back(taken(*it.bias));
  return all;
}

}  // namespace

TEST_CASE("a sampled linear layer with all of its rows has the bits of LibTorch's", "[libtorch]")
{
  rig it{1.0};
  if (GENERATE(false, true)) it.bias.reset();
  const int form = GENERATE(0, 1, 2);
  if (form == 1) it.input = wave({samples * positions, width}, 0.21).requires_grad_();
  if (form == 2)
    it.input = wave({width, positions, samples}, 0.21).transpose(0, 2).detach().requires_grad_();  // strided
  const at::Tensor exact = at::linear(it.input, it.weight, it.bias);
  const auto expected = gradients(it, exact);
  for (std::uint64_t step = 0; step < 2; ++step) {
    it.begin(step);
    const at::Tensor output = it.output();
    REQUIRE(at::equal(output, exact));
    const auto found = gradients(it, output);
    REQUIRE(found.size() == expected.size());
    for (std::size_t index = 0; index < found.size(); ++index) REQUIRE(at::equal(found[index], expected[index]));
    REQUIRE(it.is_empty());
    it.inputs->commit();
  }
}

TEST_CASE("a sampled linear layer has an unbiased gradient of its weight, and exact ones of its input and bias",
          "[libtorch]")
{
  const std::uint64_t lasting = GENERATE(0, samples);  // norms of earlier steps are unknown, or known
  rig it{0.3, lasting};
  const auto exact = gradients(it, at::linear(it.input, it.weight, it.bias));
  const std::vector<at::Tensor> directions{exact[1], wave({outputs, width}, 1.7), wave({outputs, width}, 2.9)};
  constexpr int draws = 1000;
  std::vector<double> sums(directions.size()), squares(directions.size());
  for (std::uint64_t step = 0; step < draws; ++step) {
    it.begin(step);
    const auto found = gradients(it, it.output());
    REQUIRE(at::equal(found[0], exact[0]));
    REQUIRE(at::equal(found[2], exact[2]));
    for (std::size_t each = 0; each < directions.size(); ++each) {
      const double off = ((found[1] - exact[1]) * directions[each]).sum().item<double>();
      sums[each] += off;
      squares[each] += off * off;
    }
    it.inputs->commit();
  }
  for (std::size_t each = 0; each < directions.size(); ++each) {
    const double mean = sums[each] / draws, deviation = std::sqrt((squares[each] / draws - mean * mean) / draws);
    REQUIRE(std::fabs(mean) <= 4.8 * deviation);  // of a right estimator more in one of 600,000 trials
    REQUIRE(deviation > 0);
    // so that a bias of a thirtieth of the gradient is above the threshold
    if (each == 0) REQUIRE(9.6 * deviation < 0.033 * (exact[1] * exact[1]).sum().item<double>());
  }
}

TEST_CASE("the input of a sampled linear layer is not kept, but for its sampled rows", "[libtorch]")
{
  const bool is_sampled = GENERATE(false, true);
  rig it{0.3};
  it.begin(0);
  row_keeper* const keeper = is_sampled ? it.keeper : nullptr;
  const auto layer = [&](const at::Tensor& x) { return sampled_linear::run(x, it.weight, it.bias, keeper).sum(); };
  at::Tensor between = it.input.tanh();  // which saves what it gives
  saved_size_list list;
  {
    const saving looked_at{&list};
    (void)layer(between.detach());
  }
  constexpr std::size_t all = samples * positions * width * sizeof(float);
  REQUIRE(list.sizes() == (is_sampled ? saved_sizes{} : saved_sizes{all}));

  between = wave({samples, positions, width}, 0.21);
  const auto bytes = between.storage().getWeakStorageImpl();
  const at::Tensor loss = layer(between);
  between.reset();
  REQUIRE(bytes.expired() == is_sampled);
  REQUIRE(it.is_empty() != is_sampled);
  constexpr std::size_t rows = 12;
  REQUIRE(it.inputs->kept_bytes() == cm::bytes{rows * width * 4 + 256 + 256});
  REQUIRE(it.inputs->bytes_of_all_rows() == cm::bytes{all});
  torch::autograd::backward({loss}, {});
  REQUIRE(it.is_empty());
}

TEST_CASE("sampled rows end with their graph, and not with that of an earlier pass", "[libtorch]")
{
  rig it{0.3};
  it.begin(0);
  std::optional<at::Tensor> first = it.output();
  REQUIRE(!it.is_empty());
  first.reset();
  REQUIRE(it.is_empty());

  first = it.output();
  it.begin(1);
  const at::Tensor second = it.output();
  REQUIRE_THROWS_WITH(torch::autograd::backward({first->sum()}, {}),
                      ContainsSubstring("\"first\" has lost the rows of this graph"));
  first.reset();
  const auto once = gradients(it, second);
  REQUIRE(it.is_empty());
  rig again{0.3};
  again.begin(1);
  REQUIRE(at::equal(gradients(again, again.output())[1], once[1]));
}

TEST_CASE("a step that is tried again with another input forgets what was kept, though its graph is there",
          "[libtorch]")
{
  rig it{0.3};
  it.begin(0);
  const at::Tensor old = it.output();
  (void)gradients(it, it.output());  // its norms are noted
  const at::Tensor kept = it.output();
  it.inputs->forget();
  REQUIRE(it.is_empty());
  rig fresh{0.3};
  for (rig* const each : {&it, &fresh}) {
    each->input = wave({samples, positions, width}, 0.9).requires_grad_();
    each->begin(0);
  }
  const at::Tensor now = it.output();
  for (const at::Tensor& gone : {old, kept})
    REQUIRE_THROWS_WITH(torch::autograd::backward({gone.sum()}, {}), ContainsSubstring("has lost the rows"));
  for (const std::uint64_t step : {1U, 2U}) {
    const auto found = gradients(it, step == 1 ? now : it.output());
    REQUIRE(at::equal(found[1], gradients(fresh, fresh.output())[1]));
    for (rig* const each : {&it, &fresh}) {
      each->inputs->commit();
      each->begin(step);
    }
  }
}

TEST_CASE("nothing is sampled where no gradient of the weight is wanted", "[libtorch]")
{
  rig it{0.3};
  const bool is_frozen = GENERATE(false, true);
  if (is_frozen) it.weight = it.weight.detach();
  const at::AutoGradMode graph{is_frozen};
  REQUIRE(at::equal(it.output(), at::linear(it.input, it.weight, it.bias)));  // no batch was begun
  REQUIRE(it.is_empty());
}

TEST_CASE("bad input of a sampled linear layer is refused with a sentence", "[libtorch]")
{
  for (const double ratio : {0.0, 1.5}) REQUIRE_THROWS_WITH(rig{ratio}, ContainsSubstring("has a ratio of"));
  rig it{0.3};
  REQUIRE_THROWS_WITH(it.output(), ContainsSubstring("\"first\" was given no step"));
  it.inputs->begin(0, {});
  REQUIRE_THROWS_WITH(it.output(), ContainsSubstring("was given rows of samples without numbers"));
  it.inputs->begin(0, {0, samples});
  REQUIRE_THROWS_WITH(it.output(), ContainsSubstring("was given sample 2"));
  it.begin(0);
  REQUIRE_THROWS_WITH(sampled_linear::run(it.input.detach().to(at::kDouble), it.weight, it.bias, it.keeper),
                      ContainsSubstring("reads float on the CPU"));
  REQUIRE_THROWS_WITH(sampled_linear::run(it.input, wave({width}, 1).requires_grad_(), {}, it.keeper),
                      ContainsSubstring("has a weight of [outputs, width]"));
  const at::Tensor twice = it.output();
  const at::Tensor other = it.input.detach() * 2;
  REQUIRE_THROWS_WITH(sampled_linear::run(other, it.weight, it.bias, it.keeper),
                      ContainsSubstring("keeps other rows for this batch"));
  REQUIRE_THROWS_WITH(torch::autograd::grad({twice.sum()}, {it.weight}, {}, true, true),
                      ContainsSubstring("has no second derivative"));
  torch::autograd::backward({twice.sum()}, {}, true);
  REQUIRE_THROWS_WITH(torch::autograd::backward({twice.sum()}, {}), ContainsSubstring("no rows of it are kept"));

  support::adversarial memory{{.device_capacity = 8_KiB, .host_capacity = 32_KiB}};
  manager m{memory, {.chunk_bytes = 1_KiB}};
  const auto norm = m.add<float>({width}, cm::role::parameter);
  sampled_inputs<manager> inputs{m, {.name = "sampling"}};
  REQUIRE_THROWS_WITH(inputs.add("gain", 1, {.rows = 4, .width = width, .ratio = 0.3}, norm),
                      ContainsSubstring("no weight of a linear layer"));
}

TEST_CASE("a graph that outlives its sampled inputs throws where it is used, and may be dropped", "[libtorch]")
{
  rig it{0.3};
  it.begin(0);
  std::optional<at::Tensor> orphan = it.output();
  it.inputs.reset();
  if (GENERATE(false, true))
    REQUIRE_THROWS_WITH(torch::autograd::backward({orphan->sum()}, {}), ContainsSubstring("was used after"));
  orphan.reset();
}

}  // namespace sampled_linear_test
