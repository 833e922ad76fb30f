// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "walk.hpp"

#include <support/managed_parameters.hpp>
#include <support/trainer_calls.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace divergence {

namespace cm = chunkmem;

/// The same loop out of a manager, with weights of `Element`. An iteration that reads a weight whose bytes a gradient
/// has taken is refused; it is forgotten and taken again, as the documentation says. No other refusal is.
template <class Manager, class Backend, class Element, class Net = uneven_blocks>
class managed_walk : support::trainer_calls<Manager, Backend> {
  using calls = support::trainer_calls<Manager, Backend>;

 public:
  managed_walk(Manager& manager, Backend& backend, const mixed::recipe& how, cm::agent stream)
      : calls{manager, backend, {.main = stream}}, weights_{manager, backend, how, Net::parameters()}
  {
    x_ = m_.template add_stacked<Element>(Net::most_visits + 1, {batch, width}, cm::role::activation);
    h_ = m_.template add_stacked<Element>(Net::most_visits, {batch, Net::widest}, cm::role::activation);
    flow_ = m_.template add<float>({batch, width}, cm::role::activation);
    loss_ = m_.template add<float>({1}, cm::role::buffer);
  }

  /// The bytes that a regular iteration needs.
  cm::memory_requirement rehearse()
  {
    return m_.rehearse([this] { iterate(regular<Net>(), 0); });
  }

  mixed::outcome train(const std::vector<turn>& turns)
  {
    initialise();
    for (std::size_t index = 0; index < turns.size(); ++index) take(turns[index], index);
    return collect();
  }
  void initialise() { weights_.initialise(); }
  /// One iteration, the `number`th.
  void take(const turn& it, std::uint64_t number)
  {
    strayed_ = strayed_ || !is_regular<Net>(it);
    for (const std::uint32_t index : it.rewritten)
      weights_.rewrite(index, [index, number](std::uint64_t i) { return rewritten(index, number, i); });
    if (it.finishes) m_.updates().finish_updates();
    if (it.rehearses) rehearse();
    const std::size_t noted = losses_.size();
    for (std::size_t tries = 0;; ++tries) {
      try {
        return iterate(it, number);
      } catch (const cm::usage_error& refused) {
        const bool is_expected = std::string_view{refused.what()}.find(
                                     "its gradient has its bytes: release the gradient") != std::string_view::npos;
        if (!is_expected || updating_ || tries == parameters_in<Net>) throw;
        ++retried_;
        losses_.resize(noted);
        forget_iteration();
      }
    }
  }
  [[nodiscard]] mixed::outcome collect()
  {
    mixed::outcome result;
    result.add("losses", losses_);
    weights_.add_numbers_to(result);
    weights_.add_weights_to(result);
    return result;
  }

  [[nodiscard]] std::size_t retried() const noexcept { return retried_; }  ///< iterations
  /// Something was not the regular iteration that a rehearsal proves.
  [[nodiscard]] bool strayed() const noexcept { return strayed_; }

 private:
  using calls::m_, calls::crew_, calls::use, calls::make, calls::workspace, calls::numbers, calls::launch,
      calls::forget;

  [[nodiscard]] auto weight(std::size_t index) { return use(weights_.template as<Element>(index)); }

  void iterate(const turn& it, std::uint64_t number)
  {
    auto scope = m_.iteration(it.name, static_cast<std::uint32_t>(it.passes.size()));
    updating_ = false;
    left_ = gradients_of<Net>(it);
    if (it.evaluates) return go(scope, it, number, 0, false);
    if (it.false_start) {
      std::vector<std::uint32_t> all = std::exchange(left_, std::vector<std::uint32_t>(parameters_in<Net>, 0));
      go(scope, it, number, 0, true);
      m_.drop_gradients();
      left_ = std::move(all);
    }
    for (std::size_t pass = 0; pass < it.passes.size(); ++pass) go(scope, it, number, pass, true);
    for (const std::uint32_t index : it.dropped) m_.drop_gradient(weights_.template as<Element>(index));
    if (it.abandoned) return m_.drop_gradients();
    updating_ = true;
    weights_.update();
    updating_ = false;
  }

  template <class Scope>
  void go(Scope& scope, const turn& it, std::uint64_t number, std::size_t pass, bool trains)
  {
    const std::vector<std::uint32_t>& visits = it.passes[pass];
    const auto top = static_cast<std::uint32_t>(visits.size());
    scope.pass(cm::pass::forward, static_cast<std::uint32_t>(pass));
    float seen = 0;
    {
      const auto x = make(x_.slice(0));
      launch([out = mixed::view(x), key = key_of(number, pass)] { mixed::draw_input(out, key); });
    }
    for (std::uint32_t index = 0; index < top; ++index) {
      if (pass == 0) seen += sum_before(it, index);
      forward(index, visits[index], it.extra);
    }
    head(key_of(number, pass), top, trains ? weights_.loss_factor() : 1.0F, it.spoilt, trains);
    if (trains) scope.pass(cm::pass::backward, static_cast<std::uint32_t>(pass));
    for (std::uint32_t index = top; index-- > 0;) {
      if (trains) backward(index, visits[index]);
      m_.drop(x_.slice(index + 1));
      m_.drop(h_.slice(index));
    }
    m_.drop(x_.slice(0));
    if (trains) m_.drop(flow_);
    const auto loss = m_.acquire(loss_, cm::access::read, cm::memory_location::host);
    if (!m_.rehearsing()) losses_.push_back(loss.span()[0] + seen);
  }

  void forward(std::uint32_t index, std::uint32_t block, std::uint64_t extra)
  {
    const std::uint64_t inner = Net::inner_of(block);
    const auto wide = workspace(batch * Net::widest + extra);
    const auto narrow = workspace(batch * width);
    const auto x = use(x_.slice(index));
    const auto h = make(h_.slice(index));
    {
      const auto up = weight(Net::up_of(block));
      const auto bias = use(weights_.template as<float>(Net::bias_of(block)));
      launch([out = numbers(wide), x = mixed::view(x), up = mixed::view(up), bias = mixed::view(bias),
              h = mixed::view(h), inner] {
        mixed::multiply(out, x, up, width, inner);
        mixed::add_bias(out, bias, inner);
        mixed::store_softsign(h, out, batch * inner);
      });
    }
    const auto down = weight(Net::down_of(block));
    const auto next = make(x_.slice(index + 1));
    launch([out = numbers(narrow), h = mixed::view(h), down = mixed::view(down), x = mixed::view(x),
            next = mixed::view(next), inner] {
      mixed::multiply(out, h, down, inner, width);
      mixed::residual(next, x, out);
    });
  }

  void head(std::uint64_t key, std::uint32_t top, float factor, bool spoilt, bool trains)
  {
    const auto y = workspace(batch * width);
    auto head = weight(0);
    const auto x = use(x_.slice(top));
    {
      const auto loss = make(loss_);
      launch([y = numbers(y), x = mixed::view(x), head = mixed::view(head), loss = loss.data(), key, factor, spoilt] {
        mixed::multiply(y, x, head, width, width);
        mixed::regression_loss(loss, y, key, factor, spoilt);
      });
    }
    if (!trains) return;
    {
      const auto flow = make(flow_);
      launch([y = mixed::floats{numbers(y)}, head = mixed::view(head), flow = flow.data()] {
        mixed::multiply_transposed(flow, y, head, width, width, false);
      });
    }
    weights_.differentiate(std::move(head), 0, is_last(0),
                           [x = mixed::view(x), slope = mixed::floats{numbers(y)}](auto out, float beta) {
                             mixed::outer(out, x, slope, width, width, beta);
                           });
  }

  void backward(std::uint32_t index, std::uint32_t block)
  {
    const std::uint64_t inner = Net::inner_of(block);
    const auto wide = workspace(batch * inner);
    const auto h = use(h_.slice(index));
    const auto x = use(x_.slice(index));
    const auto flow = m_.acquire(flow_, cm::access::read_write, crew_.main);
    auto down = weight(Net::down_of(block));
    launch([wide = numbers(wide), flow = mixed::floats{flow.data()}, down = mixed::view(down), inner] {
      mixed::multiply_transposed(wide, flow, down, inner, width, false);
    });
    weights_.differentiate(std::move(down), Net::down_of(block), is_last(Net::down_of(block)),
                           [h = mixed::view(h), in = mixed::floats{flow.data()}, inner](auto out, float beta) {
                             mixed::outer(out, h, in, inner, width, beta);
                           });
    weights_.differentiate(Net::bias_of(block), crew_.main, is_last(Net::bias_of(block)),
                           [wide = numbers(wide), h = mixed::view(h), inner](auto out, float beta) {
                             mixed::softsign_backward(wide, h, batch * inner);
                             mixed::sum_rows(out, wide, inner, beta);
                           });
    auto up = weight(Net::up_of(block));
    launch([flow = flow.data(), wide = mixed::floats{numbers(wide)}, up = mixed::view(up), inner] {
      mixed::multiply_transposed(flow, wide, up, width, inner, true);
    });
    weights_.differentiate(std::move(up), Net::up_of(block), is_last(Net::up_of(block)),
                           [x = mixed::view(x), wide = mixed::floats{numbers(wide)}, inner](auto out, float beta) {
                             mixed::outer(out, x, wide, width, inner, beta);
                           });
  }

  /// Nothing is added to this gradient in the iteration.
  [[nodiscard]] bool is_last(std::size_t parameter) noexcept { return left_[parameter] > 0 && --left_[parameter] == 0; }

  [[nodiscard]] float sum_before(const turn& it, std::uint32_t visit)
  {
    float sum = 0;
    for (const look& each : it.looks) {
      if (each.visit != visit) continue;
      const bool single = each.parameter % 3 == 2;
      sum += single ? sum_on_host<float>(each.parameter) : sum_on_host<Element>(each.parameter);
    }
    return sum;
  }
  template <class Kind>
  [[nodiscard]] float sum_on_host(std::uint32_t parameter)
  {
    const auto pin = m_.acquire(weights_.template as<Kind>(parameter), cm::access::read, cm::memory_location::host);
    return m_.rehearsing() ? 0.0F : mixed::sum_of(mixed::view(pin), pin.size());
  }

  void forget_iteration()
  {
    m_.drop_gradients();
    for (std::uint32_t index = 0; index < Net::most_visits; ++index) {
      forget(x_.slice(index));
      forget(h_.slice(index));
    }
    forget(x_.slice(Net::most_visits));
    forget(flow_);
  }

  mixed::managed_parameters<Manager, Backend, Element> weights_;
  cm::stacked<Element> x_, h_;
  cm::tensor<float> flow_{}, loss_{};
  std::vector<std::uint32_t> left_;  // gradients of each parameter that are still to come
  std::vector<float> losses_;
  std::size_t retried_ = 0;
  bool strayed_ = false;
  bool updating_ = false;
};

}  // namespace divergence
