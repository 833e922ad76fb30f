// SPDX-License-Identifier: Apache-2.0
#include <chunked_parameters.hpp>
#include <chunked_saved_tensors.hpp>

#include <chunkmem/manager/manager.hpp>
#include <support/adversarial.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace chunked_saved_tensors_test {

namespace cm = chunkmem;
using namespace cm::literals;
using namespace libtorch_gpt;
using Catch::Matchers::ContainsSubstring;
using manager = cm::manager<support::adversarial>;
using saved_tensors = chunked_saved_tensors<manager>;

namespace {

constexpr std::int64_t width = 16;

at::Tensor wave(at::IntArrayRef sizes, double by)
{
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return at::arange(0, count, at::kFloat).mul(by).sin().view(sizes).clone();
}

/// Eight layers with weights of LibTorch's own: only activations are in chunks.
struct layers {
  layers()
  {
    for (int index = 0; index < 8; ++index)
      weights.push_back(wave({width, width}, 0.37 + 0.1 * static_cast<double>(index)).requires_grad_());
  }
  /// @param between   called with the number of each layer, before it
  [[nodiscard]] at::Tensor loss(at::Tensor x, const std::function<void(std::size_t)>& between = {}) const
  {
    for (std::size_t index = 0; index < weights.size(); ++index) {
      if (between) between(index);
      x = at::linear(x, weights[index]).tanh();
    }
    return x.sum();
  }
  /// Gradients since the last call.
  [[nodiscard]] std::vector<at::Tensor> gradients() const
  {
    std::vector<at::Tensor> result;
    for (const at::Tensor& weight : weights) result.push_back(std::exchange(weight.mutable_grad(), at::Tensor{}));
    return result;
  }
  std::vector<at::Tensor> weights{};
};

at::Tensor some_input(std::int64_t rows = 16)
{
  return wave({rows, width}, 0.21);
}

saved_sizes sizes_of(const std::function<void()>& pass, const saving_rules& rules = {})
{
  saved_size_list list{rules};
  const saving looked_at{&list};
  pass();
  return list.sizes();
}

bool identical(const std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right)
{
  bool same = left.size() == right.size();
  for (std::size_t index = 0; same && index < left.size(); ++index) same = at::equal(left[index], right[index]);
  return same;
}

/// A device for three saved tensors of 1 KiB.
struct rig {
  explicit rig(const saved_sizes& sizes, const saving_rules& rules = {},
               support::schedule when = support::schedule::random)
      : memory{{.device_capacity = 3_KiB, .host_capacity = 32_KiB, .when = when}},
        saved{std::in_place, m, at::kCPU, rules, sizes}
  {
  }
  ~rig() { REQUIRE(memory.faults().empty()); }

  /// A forward pass whose saved tensors go into chunks.
  [[nodiscard]] at::Tensor forward(const std::function<at::Tensor()>& pass)
  {
    const saving into{&*saved};
    return pass();
  }
  [[nodiscard]] std::uint32_t pins() const
  {
    std::uint32_t sum = 0;
    for (const auto& it : m.residency().tensors) sum += it.pins;
    return sum;
  }
  /// No place is taken, and no tensor of the manager has bytes.
  [[nodiscard]] bool is_empty() const
  {
    const auto tensors = m.residency().tensors;
    return saved->in_use() == 0 &&
           std::ranges::all_of(tensors, [](const auto& it) { return it.state == cm::tensor_state::free; });
  }

  support::adversarial memory;
  manager m{memory, {.chunk_bytes = 1_KiB}};
  std::optional<saved_tensors> saved;
};

std::vector<at::Tensor> plain_gradients(const layers& model, const at::Tensor& input)
{
  torch::autograd::backward({model.loss(input)}, {});
  return model.gradients();
}

}  // namespace

TEST_CASE("saved tensors leave the device and return, and gradients are those of plain LibTorch", "[libtorch]")
{
  const layers model;
  const auto expected = plain_gradients(model, some_input());
  const saved_sizes sizes = sizes_of([&] { (void)model.loss(some_input()); });
  REQUIRE(sizes == saved_sizes(9, 1024));  // the input, and what each layer gives
  rig it{sizes, {}, GENERATE(support::schedule::latest, support::schedule::earliest, support::schedule::random)};
  for (int step = 0; step < 4; ++step) {
    const auto iteration = it.m.iteration();
    const at::Tensor loss = it.forward([&] { return model.loss(some_input()); });
    REQUIRE(it.saved->in_use() == 9);
    REQUIRE(it.pins() == 0);
    torch::autograd::backward({loss}, {});
    REQUIRE(it.is_empty());
    REQUIRE(identical(model.gradients(), expected));
  }
  const auto report = it.m.report();
  REQUIRE(report.written_back >= cm::bytes{4 * 6 * 1024});
  REQUIRE(report.loaded >= cm::bytes{4 * 6 * 1024});
  REQUIRE(report.peak[cm::tier::device] <= 3_KiB);
  REQUIRE(report.divergences == 0);
  REQUIRE(it.saved->saved_bytes() == 4 * 9 * 1024);
  REQUIRE(it.saved->unplaced_bytes() == 0);
}

TEST_CASE("what lives anyway has no place", "[libtorch]")
{
  const layers model;
  const at::Tensor input = some_input();
  storage_set known;
  known.add(input);
  REQUIRE(sizes_of([&] { (void)model.loss(input.view({16, width})); }, {.elsewhere = &known}).size() == 8);
}

TEST_CASE("LibTorch's own bytes are free as soon as the forward pass has no more use for them", "[libtorch]")
{
  const at::Tensor weight = wave({width, width}, 0.3).requires_grad_();
  const bool is_in_chunks = GENERATE(false, true);
  rig it{{1024, 1024, 1024}};
  const saving into{is_in_chunks ? &*it.saved : nullptr};
  at::Tensor between = at::linear(some_input(), weight).tanh();
  const auto bytes = between.storage().getWeakStorageImpl();
  const at::Tensor loss = between.tanh().sum();
  REQUIRE(!bytes.expired());
  between.reset();
  REQUIRE(bytes.expired() == is_in_chunks);
  torch::autograd::backward({loss}, {});
}

TEST_CASE("a graph that is dropped without a backward pass leaves nothing behind, in chunks or with LibTorch",
          "[libtorch]")
{
  const at::Tensor weight = wave({width, width}, 0.3).requires_grad_();
  const std::int64_t rows = GENERATE(4, 16);  // less than is worth a place, and enough
  rig it{{1024, 1024, 1024}};
  std::optional<at::Tensor> result = it.forward([&] { return at::linear(some_input(rows), weight).tanh(); });
  REQUIRE(it.saved->in_use() == (rows == 4 ? 0U : 2U));
  const auto bytes = result->storage().getWeakStorageImpl();
  result.reset();
  REQUIRE(bytes.expired());
  REQUIRE(it.is_empty());
}

TEST_CASE("what a kernel of the backward pass reads is pinned until it has run", "[libtorch]")
{
  const at::Tensor left = some_input().requires_grad_(), right = wave({16, width}, 0.3).requires_grad_();
  rig it{{1024, 1024}};
  const at::Tensor product = it.forward([&] { return (left.sin() * right.cos()).sum(); });
  REQUIRE(it.saved->in_use() == 2);
  const auto most = it.m.lease(cm::tier::device, 2_KiB);  // room for one of the two
  REQUIRE_THROWS_AS(torch::autograd::backward({product}, {}), cm::out_of_memory);
}

TEST_CASE("an exception in a forward or in a backward pass leaves nothing in chunks, and the pass can be repeated",
          "[libtorch]")
{
  const layers model;
  const auto expected = plain_gradients(model, some_input());
  const bool is_backward = GENERATE(false, true);
  rig it{sizes_of([&] { (void)model.loss(some_input()); })};
  const auto fail = [&](std::size_t layer) {
    if (layer == 4) throw std::range_error{"in between"};
  };
  const auto failing = [&] {
    const at::Tensor loss = it.forward([&] {
      at::Tensor x = some_input().requires_grad_().clone();
      if (is_backward) x.register_hook([&](const at::Tensor&) { fail(4); });
      return model.loss(x, [&](std::size_t layer) {
        if (!is_backward) fail(layer);
      });
    });
    REQUIRE(it.saved->in_use() > 0);
    torch::autograd::backward({loss}, {});
  };
  for (int step = 0; step < 3; ++step) {
    {
      const auto iteration = it.m.iteration();
      REQUIRE_THROWS_WITH(failing(), ContainsSubstring("in between"));
      REQUIRE(it.is_empty());
      (void)model.gradients();
    }
    const auto iteration = it.m.iteration();
    torch::autograd::backward({it.forward([&] { return model.loss(some_input()); })}, {});
    REQUIRE(identical(model.gradients(), expected));
  }
}

TEST_CASE("no room for a saved tensor arrives as the manager's error from the forward and from the backward pass",
          "[libtorch]")
{
  const layers model;
  const auto expected = plain_gradients(model, some_input());
  rig it{sizes_of([&] { (void)model.loss(some_input()); })};
  const auto pass = [&] { return it.forward([&] { return model.loss(some_input()); }); };
  {
    const auto all = it.m.lease(cm::tier::device, 3_KiB);
    REQUIRE_THROWS_AS(pass(), cm::out_of_memory);
  }
  REQUIRE(it.is_empty());
  {
    const at::Tensor loss = pass();
    const auto all = it.m.lease(cm::tier::device, 3_KiB);
    REQUIRE_THROWS_AS(torch::autograd::backward({loss}, {}), cm::out_of_memory);
  }
  REQUIRE(it.is_empty());
  (void)model.gradients();
  torch::autograd::backward({pass()}, {});
  REQUIRE(identical(model.gradients(), expected));
}

TEST_CASE("views of one storage lie in one place, whatever their strides and types are", "[libtorch]")
{
  const at::Tensor weight = wave({3 * width, width}, 0.3).requires_grad_();
  const auto pass = [&] {
    const auto parts = at::linear(some_input(), weight).view({16, 3, width}).unbind(1);
    const at::Tensor later = at::ones({40, 40}, at::kBool).triu(1).narrow(0, 3, 16).narrow(1, 5, width);
    return (parts[0] * parts[1].t() * parts[2]).masked_fill(later, 0.5).sum();
  };
  torch::autograd::backward({pass()}, {});
  const at::Tensor expected = std::exchange(weight.mutable_grad(), at::Tensor{});
  const saved_sizes sizes = sizes_of([&] { (void)pass(); });
  REQUIRE(sizes == saved_sizes{1024, 3072, 1024, 1600});  // the input, all parts, the product of two, the mask
  support::adversarial memory{{.device_capacity = 8_KiB, .host_capacity = 16_KiB}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  saved_tensors saved{m, at::kCPU, {}, sizes};
  at::Tensor loss;
  {
    const saving into{&saved};
    loss = pass();
  }
  REQUIRE(saved.in_use() == 4);
  torch::autograd::backward({loss}, {});
  REQUIRE(at::equal(weight.grad(), expected));
  REQUIRE(saved.unplaced_bytes() == 0);
}

TEST_CASE("a smaller batch uses the places of a larger one, and what finds no place stays with LibTorch", "[libtorch]")
{
  const layers model;
  rig it{sizes_of([&] { (void)model.loss(some_input()); }), {.least_bytes = 512}};
  for (const std::int64_t rows : {8, 16}) {
    const auto expected = plain_gradients(model, some_input(rows));
    torch::autograd::backward({it.forward([&] { return model.loss(some_input(rows)); })}, {});
    REQUIRE(identical(model.gradients(), expected));
    REQUIRE(it.saved->unplaced_bytes() == 0);
  }
  const auto expected = plain_gradients(model, some_input(17));
  torch::autograd::backward({it.forward([&] { return model.loss(some_input(17)); })}, {});
  REQUIRE(identical(model.gradients(), expected));
  REQUIRE(it.saved->unplaced_bytes() >= 9 * 17 * width * 4);
}

TEST_CASE("what was copied is as it was when it was saved; what stayed is refused where it was written since",
          "[libtorch]")
{
  const at::Tensor weight = wave({width, width}, 0.3).requires_grad_();
  const auto pass = [&](std::int64_t rows) {
    at::Tensor x = at::linear(some_input(rows), weight);
    const at::Tensor y = x.sin();
    x.mul_(2);  // and what it becomes is saved too
    return (y * x.cos()).sum();
  };
  rig it{{1024, 1024, 1024, 1024, 1024}};
  const auto loss = it.forward([&] { return pass(16); });
  const at::Tensor other = at::linear(some_input(), weight);
  torch::autograd::backward({loss}, {});
  const at::Tensor gradient = std::exchange(weight.mutable_grad(), at::Tensor{});
  torch::autograd::backward({(other.sin() * other.mul(2).cos()).sum()}, {});
  REQUIRE(at::allclose(gradient, weight.grad()));
  REQUIRE(it.saved->unplaced_bytes() == 0);
  const auto small = it.forward([&] { return pass(4); });
  REQUIRE_THROWS_WITH(torch::autograd::backward({small}, {}), ContainsSubstring("modified by an inplace operation"));
}

TEST_CASE("parameters in chunks have no second place, and a graph from before an update is refused", "[libtorch]")
{
  support::adversarial memory{{.device_capacity = 4_KiB, .host_capacity = 16_KiB}};
  manager m{memory, {.chunk_bytes = 1_KiB}};
  chunked_parameters<manager, float> parameters{m, {}};
  parameters.add("w", {width, width});
  saved_tensors saved{m, at::kCPU, {}, {1024, 1024, 1024}};
  parameters.fill(0, [](at::Tensor values) { values.copy_(wave({width, width}, 0.3)); });
  const layer all{0};
  const auto pass = [&] {
    const saving into{&saved};
    return parameters.run(all, some_input().requires_grad_(),
                          [&](const at::Tensor& x) { return at::linear(x, parameters.tensor(0)).tanh().sum(); });
  };
  {
    const at::Tensor old = pass();
    REQUIRE(saved.in_use() == 1);  // of tanh: the input is a leaf that somebody holds, the weight has its place
    parameters.weights_changed();
    REQUIRE_THROWS_WITH(parameters.backward(old), ContainsSubstring("modified by an inplace operation"));
    parameters.forget_gradients();
  }
  parameters.backward(pass());
  REQUIRE(m.has_gradient(parameters.handle(0)));
  REQUIRE(saved.in_use() == 0);
}

TEST_CASE("a graph that outlives the object that saved it throws where it is used, and may be dropped", "[libtorch]")
{
  const layers model;
  rig it{saved_sizes(9, 1024)};
  std::optional<at::Tensor> orphan = it.forward([&] { return model.loss(some_input()); });
  const bool is_used = GENERATE(false, true);
  it.saved.reset();
  if (is_used) REQUIRE_THROWS_WITH(torch::autograd::backward({*orphan}, {}), ContainsSubstring("was used after"));
  orphan.reset();
}

}  // namespace chunked_saved_tensors_test
