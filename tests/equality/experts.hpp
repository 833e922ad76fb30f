// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/managed_parameters.hpp>
#include <support/mixed_model.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

/// A mixture of experts whose steps use another subset in another order each time, in a manager and on plain vectors.
namespace experts {

namespace cm = chunkmem;
namespace mixed = support::mixed;
using mixed::batch;
using mixed::width;

inline constexpr std::uint32_t count = 6;
inline constexpr std::uint64_t inner = 56;

/// Parameters: a head, then a stack of one layer for each expert of ups, biases and downs.
[[nodiscard]] inline std::vector<mixed::parameter> parameters()
{
  std::vector<mixed::parameter> all{{width, width}};
  for (const mixed::parameter& it :
       {mixed::parameter{width, inner}, mixed::parameter{1, inner, true, 1}, mixed::parameter{inner, width}})
    for (std::uint32_t expert = 0; expert < count; ++expert) {
      all.push_back(it);
      all.back().stack = expert == 0 ? count : 0;
    }
  return all;
}
[[nodiscard]] constexpr std::size_t up_of(std::uint32_t expert) noexcept
{
  return 1 + std::size_t{expert};
}
[[nodiscard]] constexpr std::size_t bias_of(std::uint32_t expert) noexcept
{
  return 1 + std::size_t{count} + expert;
}
[[nodiscard]] constexpr std::size_t down_of(std::uint32_t expert) noexcept
{
  return 1 + std::size_t{2 * count} + expert;
}

/// Which experts a step uses, and in which order: at least one. The same on every machine.
[[nodiscard]] inline std::vector<std::uint32_t> order_of(std::uint64_t seed, std::uint32_t step)
{
  std::vector<std::uint32_t> all;
  for (std::uint32_t expert = 0; expert < count; ++expert) all.push_back(expert);
  const auto random = [&](std::uint64_t turn, std::uint64_t below) {
    return static_cast<std::uint64_t>((mixed::noise(seed * 1'000'003 + step * 131 + turn) + 0.5F) * 4096.0F) % below;
  };
  for (std::uint64_t index = count; index > 1; --index) std::swap(all[index - 1], all[random(index, index)]);
  all.resize(1 + random(0, count));
  return all;
}
[[nodiscard]] inline std::vector<std::uint32_t> all_of_them()
{
  std::vector<std::uint32_t> all;
  for (std::uint32_t expert = 0; expert < count; ++expert) all.push_back(expert);
  return all;
}

/// The reference.
class plain {
 public:
  explicit plain(const mixed::recipe& how) : how_{how}, weights_{how, parameters()} {}

  void step(std::uint32_t now, std::span<const std::uint32_t> order)
  {
    std::vector<std::vector<float>> x(order.size() + 1, std::vector<float>(batch * width));
    std::vector<std::vector<float>> h(order.size(), std::vector<float>(batch * inner));
    std::vector<float> wide(batch * inner);
    std::vector<float> narrow(batch * width);
    std::vector<float> flow(batch * width);
    mixed::draw_input(act(x[0]), now);
    for (std::size_t index = 0; index < order.size(); ++index) {
      mixed::multiply(wide.data(), act(x[index]), weights_.value(up_of(order[index])), width, inner);
      mixed::add_bias(wide.data(), weights_.value(bias_of(order[index])), inner);
      mixed::store_softsign(act(h[index]), wide.data(), batch * inner);
      mixed::multiply(narrow.data(), act(h[index]), weights_.value(down_of(order[index])), inner, width);
      mixed::residual(act(x[index + 1]), act(x[index]), narrow.data());
    }
    mixed::multiply(narrow.data(), act(x.back()), weights_.value(0), width, width);
    float loss = 0;
    mixed::regression_loss(&loss, narrow.data(), now, weights_.loss_factor(), how_.is_spoilt(now, 0));
    losses_.push_back(loss);
    const mixed::floats slope{narrow.data()};
    mixed::multiply_transposed(flow.data(), slope, weights_.value(0), width, width, false);
    mixed::outer(weights_.gradient(0), act(x.back()), slope, width, width, weights_.beta(0));
    for (std::size_t index = order.size(); index-- > 0;)
      backward(order[index], act(x[index]), act(h[index]), flow, wide);
    weights_.update();
  }

  [[nodiscard]] mixed::outcome collect() const
  {
    mixed::outcome result;
    result.add("losses", losses_);
    weights_.add_numbers_to(result);
    weights_.add_weights_to(result);
    return result;
  }

 private:
  [[nodiscard]] mixed::rounded act(std::vector<float>& values) const noexcept { return {values.data(), how_.kind}; }

  void backward(std::uint32_t expert, mixed::rounded x, mixed::rounded h, std::vector<float>& flow,
                std::vector<float>& wide)
  {
    const mixed::floats in{flow.data()};
    mixed::multiply_transposed(wide.data(), in, weights_.value(down_of(expert)), inner, width, false);
    mixed::outer(weights_.gradient(down_of(expert)), h, in, inner, width, weights_.beta(down_of(expert)));
    mixed::softsign_backward(wide.data(), h, batch * inner);
    mixed::sum_rows(weights_.gradient(bias_of(expert)), wide.data(), inner, weights_.beta(bias_of(expert)));
    mixed::outer(weights_.gradient(up_of(expert)), x, mixed::floats{wide.data()}, width, inner,
                 weights_.beta(up_of(expert)));
    mixed::multiply_transposed(flow.data(), mixed::floats{wide.data()}, weights_.value(up_of(expert)), width, inner,
                               true);
  }

  mixed::recipe how_;
  mixed::plain_parameters weights_;
  std::vector<float> losses_;
};

/// The same out of a manager. The weights of the experts are stacked tensors, sliced per expert.
template <class Manager, class Backend, class Element>
class managed {
 public:
  managed(Manager& manager, Backend& backend, const mixed::recipe& how, cm::agent stream = cm::agent::host)
      : m_{manager}, backend_{backend}, how_{how}, stream_{stream}, weights_{manager, backend, how, parameters()}
  {
    x_ = m_.template add_stacked<Element>(count + 1, {batch, width}, cm::role::activation);
    h_ = m_.template add_stacked<Element>(count, {batch, inner}, cm::role::activation);
    flow_ = m_.template add<float>({batch, width}, cm::role::activation);
    loss_ = m_.template add<float>({1}, cm::role::buffer);
  }

  cm::memory_requirement rehearse()
  {
    return m_.rehearse([this] { step(0, all_of_them()); });
  }
  void initialise() { weights_.initialise(); }

  void step(std::uint32_t now, const std::vector<std::uint32_t>& order, std::string_view loop = "train")
  {
    auto scope = m_.iteration(loop);
    scope.pass(cm::pass::forward);
    {
      const auto x = make(x_.slice(0));
      launch([out = mixed::view(x), now] { mixed::draw_input(out, now); });
    }
    for (std::uint32_t index = 0; index < order.size(); ++index) forward(index, order[index]);
    head(now, static_cast<std::uint32_t>(order.size()));
    scope.pass(cm::pass::backward);
    for (auto at = static_cast<std::uint32_t>(order.size()); at-- > 0;) backward(at, order[at]);
    m_.drop(x_.slice(0));
    m_.drop(flow_);
    weights_.update();
    const auto loss = m_.acquire(loss_, cm::access::read, cm::memory_location::host);
    if (!m_.rehearsing()) losses_.push_back(loss.span()[0]);
  }

  [[nodiscard]] mixed::outcome collect()
  {
    mixed::outcome result;
    result.add("losses", losses_);
    weights_.add_numbers_to(result);
    weights_.add_weights_to(result);
    return result;
  }

 private:
  template <class Kind>
  [[nodiscard]] auto use(cm::tensor<Kind> it)
  {
    return m_.acquire(it, cm::access::read, stream_);
  }
  template <class Kind>
  [[nodiscard]] auto make(cm::tensor<Kind> it)
  {
    return m_.acquire(it, cm::access::write, stream_);
  }
  [[nodiscard]] auto weight(std::size_t index) { return use(weights_.template as<Element>(index)); }
  [[nodiscard]] auto workspace(std::uint64_t elements)
  {
    return m_.lease(cm::tier::device, cm::bytes{elements * sizeof(float)}, stream_);
  }
  template <class Lease>
  [[nodiscard]] static float* numbers(const Lease& it)
  {
    return reinterpret_cast<float*>(it.data());
  }
  template <class Kernel>
  void launch(Kernel work)
  {
    if (!m_.rehearsing()) backend_.launch(stream_, work);
  }

  void forward(std::uint32_t index, std::uint32_t expert)
  {
    const auto wide = workspace(batch * inner);
    const auto narrow = workspace(batch * width);
    const auto x = use(x_.slice(index));
    const auto h = make(h_.slice(index));
    {
      const auto up = weight(up_of(expert));
      const auto bias = use(weights_.template as<float>(bias_of(expert)));
      launch([out = numbers(wide), x = mixed::view(x), up = mixed::view(up), bias = mixed::view(bias),
              h = mixed::view(h)] {
        mixed::multiply(out, x, up, width, inner);
        mixed::add_bias(out, bias, inner);
        mixed::store_softsign(h, out, batch * inner);
      });
    }
    const auto down = weight(down_of(expert));
    const auto next = make(x_.slice(index + 1));
    launch([out = numbers(narrow), h = mixed::view(h), down = mixed::view(down), x = mixed::view(x),
            next = mixed::view(next)] {
      mixed::multiply(out, h, down, inner, width);
      mixed::residual(next, x, out);
    });
  }

  void head(std::uint32_t now, std::uint32_t top)
  {
    const auto y = workspace(batch * width);
    auto head = weight(0);
    const auto x = use(x_.slice(top));
    {
      const auto loss = make(loss_);
      const auto flow = make(flow_);
      launch([y = numbers(y), x = mixed::view(x), head = mixed::view(head), loss = loss.data(), flow = flow.data(), now,
              factor = weights_.loss_factor(), spoilt = how_.is_spoilt(now, 0)] {
        mixed::multiply(y, x, head, width, width);
        mixed::regression_loss(loss, y, now, factor, spoilt);
        mixed::multiply_transposed(flow, mixed::floats{y}, head, width, width, false);
      });
    }
    weights_.differentiate(std::move(head), 0, true,
                           [x = mixed::view(x), slope = mixed::floats{numbers(y)}](auto out, float beta) {
                             mixed::outer(out, x, slope, width, width, beta);
                           });
  }

  void backward(std::uint32_t index, std::uint32_t expert)
  {
    {
      const auto wide = workspace(batch * inner);
      const auto h = use(h_.slice(index));
      const auto x = use(x_.slice(index));
      const auto flow = m_.acquire(flow_, cm::access::read_write, stream_);
      auto down = weight(down_of(expert));
      launch([wide = numbers(wide), flow = mixed::floats{flow.data()}, down = mixed::view(down)] {
        mixed::multiply_transposed(wide, flow, down, inner, width, false);
      });
      weights_.differentiate(std::move(down), down_of(expert), true,
                             [h = mixed::view(h), in = mixed::floats{flow.data()}](auto out, float beta) {
                               mixed::outer(out, h, in, inner, width, beta);
                             });
      weights_.differentiate(bias_of(expert), stream_, true,
                             [wide = numbers(wide), h = mixed::view(h)](auto out, float beta) {
                               mixed::softsign_backward(wide, h, batch * inner);
                               mixed::sum_rows(out, wide, inner, beta);
                             });
      auto up = weight(up_of(expert));
      // The old flow is not needed any more: the weight is read for the last time before its gradient takes its bytes.
      launch([flow = flow.data(), wide = mixed::floats{numbers(wide)}, up = mixed::view(up)] {
        mixed::multiply_transposed(flow, wide, up, width, inner, true);
      });
      weights_.differentiate(std::move(up), up_of(expert), true,
                             [x = mixed::view(x), wide = mixed::floats{numbers(wide)}](auto out, float beta) {
                               mixed::outer(out, x, wide, width, inner, beta);
                             });
    }
    m_.drop(x_.slice(index + 1));
    m_.drop(h_.slice(index));
  }

  Manager& m_;
  Backend& backend_;
  mixed::recipe how_;
  cm::agent stream_;
  mixed::managed_parameters<Manager, Backend, Element> weights_;
  cm::stacked<Element> x_, h_;
  cm::tensor<float> flow_{}, loss_{};
  std::vector<float> losses_;
};

}  // namespace experts
