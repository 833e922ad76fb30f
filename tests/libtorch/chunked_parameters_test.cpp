// SPDX-License-Identifier: Apache-2.0
#include <chunked_parameters.hpp>

#include <chunkmem/manager/manager.hpp>
#include <support/adversarial.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace chunked_parameters_test {

namespace cm = chunkmem;
using namespace cm::literals;
using Catch::Matchers::ContainsSubstring;
using libtorch_gpt::layer;
using manager = cm::manager<support::adversarial>;
using parameters = libtorch_gpt::chunked_parameters<manager, float>;

namespace {

constexpr std::int64_t width = 16;  // a weight is one chunk of 1 KiB

at::Tensor first_values(std::size_t which)
{
  return at::arange(0, width * width, at::kFloat)
      .view({width, width})
      .mul(0.37 + 0.11 * static_cast<double>(which))
      .sin();
}
at::Tensor some_input()
{
  return at::arange(0, 4 * width, at::kFloat).view({4, width}).mul(0.21).cos();
}

/// Two weights on a device of eight chunks, and eight chunks of something else that push them out.
struct rig {
  explicit rig(support::schedule when = support::schedule::random, std::uint64_t seed = 1)
      : memory{{.device_capacity = 8_KiB, .host_capacity = 32_KiB, .when = when, .seed = seed}}
  {
    for (std::size_t index = 0; index < 2; ++index) chunks->add("w" + std::to_string(index), {width, width});
    for (int index = 0; index < 8; ++index) others.push_back(m.add<float>({256}, cm::role::buffer));
    for (std::size_t index = 0; index < 2; ++index)
      chunks->fill(index, [&](at::Tensor values) { values.copy_(first_values(index)); });
  }
  ~rig() { REQUIRE(memory.faults().empty()); }

  /// Nothing of the weights is on the device after this: all of it was pinned by others at once.
  void evict_weights()
  {
    std::vector<manager::pin_type<float>> pins;
    for (const auto& it : others) {
      pins.push_back(m.acquire(it, cm::access::write));
      std::ranges::fill(pins.back().span(), NAN);
    }
    const auto state = m.residency();
    for (const auto& it : state.tensors)
      if (it.name.starts_with("w") && it.list == 0) REQUIRE(!state.chunks[it.chunk].place.has_frames(cm::tier::device));
  }
  [[nodiscard]] std::uint32_t pins() const
  {
    std::uint32_t sum = 0;
    for (const auto& it : m.residency().tensors) sum += it.pins;
    return sum;
  }
  [[nodiscard]] at::Tensor gradient(std::size_t which)
  {
    const auto pin =
        m.acquire<float>(chunks->handle(which), cm::gradient_list, cm::access::read, cm::memory_location::host);
    return libtorch_gpt::view_of(pin.data_without_const(), {width, width}, at::kFloat, at::kCPU).clone();
  }
  /// A loss of both weights, each in a layer of its own; the first one is used again in the second layer where they are
  /// tied.
  [[nodiscard]] at::Tensor loss(bool again = false)
  {
    const auto one = [this](const at::Tensor& x) { return at::linear(x, chunks->tensor(0)).tanh(); };
    const auto two = [this](const at::Tensor& x) { return at::linear(x, chunks->tensor(1)).tanh().sum(); };
    const at::Tensor x = some_input().requires_grad_();
    between = again ? chunks->run_again(first, x, one) : chunks->run(first, x, one);
    return again ? chunks->run_again(second, between, two) : chunks->run(second, between, two);
  }

  support::adversarial memory;
  manager m{memory, {.chunk_bytes = 1_KiB}};
  std::optional<parameters> chunks{std::in_place, m, libtorch_gpt::torch_place{}};
  std::vector<cm::tensor<float>> others;
  layer first{0}, second{1};
  at::Tensor between;
};

/// The gradients that LibTorch finds alone. @param passes   backward passes that add up
std::vector<at::Tensor> plain_gradients(int passes = 1)
{
  std::vector<at::Tensor> weights;
  for (std::size_t index = 0; index < 2; ++index) weights.push_back(first_values(index).requires_grad_());
  for (int pass = 0; pass < passes; ++pass)
    torch::autograd::backward({at::linear(at::linear(some_input(), weights[0]).tanh(), weights[1]).tanh().sum()}, {});
  return {weights[0].grad(), weights[1].grad()};
}

}  // namespace

TEST_CASE("a parameter has bytes while a layer that reads it is held, and none in between", "[libtorch]")
{
  rig it;
  const at::Tensor weight = it.chunks->tensor(0);
  at::Tensor view;
  REQUIRE_THROWS(weight.data_ptr<float>());
  REQUIRE_THROWS(at::linear(some_input(), weight));  // a layer whose hold was forgotten
  {
    const layer both{0, 1};
    const parameters::hold outer{*it.chunks, both};
    {
      const parameters::hold inner{*it.chunks, it.first};
      REQUIRE(at::equal(weight, first_values(0)));
      view = weight.detach().t();
    }
    REQUIRE(at::equal(view, first_values(0).t()));
    REQUIRE(it.pins() == 2);
  }
  REQUIRE(it.pins() == 0);
  REQUIRE_THROWS(weight.data_ptr<float>());
  REQUIRE_THROWS(view.data_ptr<float>());
  REQUIRE_THROWS(at::mm(some_input(), view));
  REQUIRE(at::equal(it.chunks->values(0), first_values(0)));
}

TEST_CASE("what autograd saved is read where the bytes are in the backward pass, and nothing of it is freed before",
          "[libtorch]")
{
  const bool again = GENERATE(false, true);
  const auto when = GENERATE(support::schedule::latest, support::schedule::earliest, support::schedule::random);
  const auto seed = GENERATE(range(1, 6));
  rig it{when, static_cast<std::uint64_t>(seed)};
  const at::Tensor weight = it.chunks->tensor(1);
  const auto holders = weight.storage().use_count();
  const auto scope = it.m.iteration();
  {
    const at::Tensor loss = it.loss(again);
    if (!again) REQUIRE(weight.storage().use_count() > holders);  // autograd holds a view of it
    it.evict_weights();
    it.chunks->backward(loss);
    it.evict_weights();
  }
  it.between.reset();
  REQUIRE(weight.storage().use_count() == holders);
  const auto expected = plain_gradients();
  for (std::size_t index = 0; index < 2; ++index) {
    REQUIRE(at::equal(it.gradient(index), expected[index]));
    REQUIRE(!it.chunks->tensor(index).grad().defined());
    REQUIRE(at::equal(it.chunks->values(index), first_values(index)));
  }
  REQUIRE(it.pins() == 0);
}

TEST_CASE("gradients of several backward passes add up in the manager as they do in LibTorch", "[libtorch]")
{
  rig it;
  auto scope = it.m.iteration(3);
  for (std::uint32_t pass = 0; pass < 3; ++pass) {
    scope.pass(cm::pass::backward, pass);
    it.chunks->backward(it.loss(pass == 1));
    it.evict_weights();
  }
  const auto expected = plain_gradients(3);
  for (std::size_t index = 0; index < 2; ++index) REQUIRE(at::equal(it.gradient(index), expected[index]));
}

TEST_CASE("a parameter of two layers gets one gradient, the sum", "[libtorch]")
{
  rig it;
  const layer both{0, 1};
  const auto tied = [](const at::Tensor& x, const at::Tensor& w0, const at::Tensor& w1) {
    return at::linear(at::linear(x, w1).tanh(), w0).sum();
  };
  const auto scope = it.m.iteration();
  const at::Tensor x = it.chunks->run(it.first, some_input(),
                                      [&](const at::Tensor& in) { return at::linear(in, it.chunks->tensor(0)); });
  const at::Tensor loss = it.chunks->run(
      both, x, [&](const at::Tensor& in) { return tied(in, it.chunks->tensor(0), it.chunks->tensor(1)); });
  it.evict_weights();
  it.chunks->backward(loss);

  const at::Tensor w0 = first_values(0).requires_grad_(), w1 = first_values(1).requires_grad_();
  torch::autograd::backward({tied(at::linear(some_input(), w0), w0, w1)}, {});
  REQUIRE(at::equal(it.gradient(0), w0.grad()));
  REQUIRE(at::equal(it.gradient(1), w1.grad()));
}

TEST_CASE("no room for a layer in the backward pass arrives as the manager's error, and the step can be taken again",
          "[libtorch]")
{
  rig it;
  const auto expected = plain_gradients();
  {
    const auto scope = it.m.iteration();
    const at::Tensor loss = it.loss(GENERATE(false, true));
    {
      std::vector<manager::pin_type<float>> pins;
      for (const auto& other : it.others) pins.push_back(it.m.acquire(other, cm::access::write));
      REQUIRE_THROWS_AS(it.chunks->backward(loss), cm::out_of_memory);
    }
    REQUIRE(it.pins() == 0);
    it.chunks->forget_gradients();
  }
  const auto scope = it.m.iteration();
  it.chunks->backward(it.loss());
  for (std::size_t index = 0; index < 2; ++index) REQUIRE(at::equal(it.gradient(index), expected[index]));
}

TEST_CASE("an exception between two layers of the backward pass leaves no pin and no half of a step", "[libtorch]")
{
  rig it;
  const auto scope = it.m.iteration();
  {
    const at::Tensor loss = it.loss();
    it.between.register_hook([](const at::Tensor&) { throw std::range_error{"between"}; });
    REQUIRE_THROWS_WITH(it.chunks->backward(loss), ContainsSubstring("between"));
  }
  REQUIRE(it.m.has_gradient(it.chunks->handle(1)));
  REQUIRE(it.pins() == 0);
  it.chunks->forget_gradients();
  REQUIRE(!it.m.has_gradient(it.chunks->handle(1)));
  it.chunks->backward(it.loss());
  const auto expected = plain_gradients();
  for (std::size_t index = 0; index < 2; ++index) REQUIRE(at::equal(it.gradient(index), expected[index]));
}

TEST_CASE("a graph from before an update, or of parameters that are gone, is refused", "[libtorch]")
{
  rig it;
  const at::Tensor old = it.loss();
  it.chunks->weights_changed();
  REQUIRE_THROWS_WITH(it.chunks->backward(old), ContainsSubstring("modified by an inplace operation"));
  REQUIRE(it.pins() == 0);
  it.chunks->forget_gradients();

  const at::Tensor orphan = it.loss();
  it.chunks.reset();
  REQUIRE_THROWS_WITH(torch::autograd::backward({orphan}, {}), ContainsSubstring("was used after"));
}

TEST_CASE("a leaf of a module keeps its identity when its bytes move into chunks", "[libtorch]")
{
  support::adversarial memory{{.device_capacity = 8_KiB, .host_capacity = 32_KiB}};
  manager m{memory, {.chunk_bytes = 1_KiB}};
  parameters chunks{m, {}};
  const at::Tensor weight = first_values(0).requires_grad_();  // what a module registered
  const at::Tensor values = weight.detach().clone();
  chunks.adopt("weight", weight);
  REQUIRE_THROWS(weight.data_ptr<float>());
  chunks.fill(0, [&](at::Tensor into) { into.copy_(values); });
  const layer all{0};
  const at::Tensor loss =
      chunks.run(all, some_input(), [&](const at::Tensor& x) { return at::linear(x, weight).sum(); });
  chunks.backward(loss);
  REQUIRE(m.has_gradient(chunks.handle(0)));
  REQUIRE_THROWS(chunks.adopt("no leaf", weight.t()));
  REQUIRE_THROWS(chunks.adopt("of another type", at::zeros({2}, at::kDouble).requires_grad_()));
}

TEST_CASE("a leaf that was adopted under another number is refused, and so is another leaf over its bytes",
          "[libtorch]")
{
  support::adversarial memory{{.device_capacity = 8_KiB, .host_capacity = 32_KiB}};
  manager m{memory, {.chunk_bytes = 1_KiB}};
  parameters chunks{m, {}};
  const at::Tensor weight = first_values(0).requires_grad_();
  chunks.adopt("embedding", weight);
  REQUIRE_THROWS_WITH(chunks.adopt("head", weight), ContainsSubstring("adopted before"));
  REQUIRE_THROWS_WITH(chunks.adopt("a slice", weight.detach().requires_grad_()), ContainsSubstring("adopted before"));
  REQUIRE(chunks.size() == 1);
}

TEST_CASE("a layer that is computed again and whose input has no gradient is refused unless none is wanted",
          "[libtorch]")
{
  rig it;
  const auto one = [&](const at::Tensor& x) { return at::linear(x, it.chunks->tensor(0)); };
  REQUIRE_THROWS_WITH(it.chunks->run_again(it.first, some_input(), one),
                      ContainsSubstring("use run for a first layer"));
  const at::NoGradGuard without_graph;
  REQUIRE(at::equal(it.chunks->run_again(it.first, some_input(), one), at::linear(some_input(), first_values(0))));
}

TEST_CASE("a layer that gives its input back is none, and one that writes it in place is one", "[libtorch]")
{
  rig it;
  const auto scope = it.m.iteration();
  const auto one = [&](const at::Tensor& x) { return at::linear(x, it.chunks->tensor(0)); };
  // so that its backward pass reads the weight
  at::Tensor x = it.chunks->run(it.first, some_input().requires_grad_(), one);
  const bool last = GENERATE(false, true);
  if (!last) x = it.chunks->run(it.second, x, [&](at::Tensor in) { return in.mul_(it.chunks->tensor(1).sum()); });
  x = it.chunks->run(it.second, x, [](const at::Tensor& in) { return in; });
  it.evict_weights();
  it.chunks->backward(x.sum());

  const at::Tensor w0 = first_values(0).requires_grad_(), w1 = first_values(1).requires_grad_();
  const at::Tensor y = at::linear(some_input(), w0);
  torch::autograd::backward({last ? y.sum() : y.mul_(w1.sum()).sum()}, {});
  REQUIRE(at::equal(it.gradient(0), w0.grad()));
  if (!last) REQUIRE(at::equal(it.gradient(1), w1.grad()));
  REQUIRE(it.pins() == 0);
}

TEST_CASE(
    "a backward pass of LibTorch's own leaves the last layer held, until gradients are forgotten or the graph's layers "
    "are gone",
    "[libtorch]")
{
  rig it;
  const auto scope = it.m.iteration();
  torch::autograd::backward({it.loss()}, {});
  REQUIRE(it.pins() == 1);
  it.chunks->forget_gradients();
  REQUIRE(it.pins() == 0);
  {
    const auto passing = std::make_unique<layer>(layer{0});
    const at::Tensor x = it.chunks->run(
        *passing, some_input(), [&](const at::Tensor& in) { return at::linear(in, it.chunks->tensor(0)).sum(); });
    torch::autograd::backward({x}, {});
  }
  REQUIRE(it.pins() == 1);
  it.chunks.reset();
  REQUIRE(it.pins() == 0);
}

}  // namespace chunked_parameters_test
