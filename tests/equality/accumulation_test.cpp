// SPDX-License-Identifier: Apache-2.0
#include <support/any_backend.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>
#include <support/managed_parameters.hpp>
#include <support/mixed_model.hpp>

#include <cstdint>
#include <limits>
#include <vector>

namespace accumulation_test {

namespace cm = chunkmem;
namespace mixed = support::mixed;
using namespace cm::literals;
using support::any_backend;
using support::chosen_gradient;

/// k micro-batches against one batch whose kernels add the same groups in the same order.

namespace {

constexpr std::uint32_t groups = 4;
constexpr std::uint64_t in = 24;
constexpr std::uint64_t inner = 200;  // 24 x 200: more than one block of a norm
constexpr std::uint64_t out = 6;
constexpr std::uint32_t steps = 5;

enum weights : std::size_t { first, bias, second };

std::vector<mixed::parameter> parameters()
{
  return {{in, inner}, {1, inner, true, 1}, {inner, out}};
}

/// The rows of one group in a batch: plain numbers, the same in both runs.
struct rows {
  std::vector<float> x = std::vector<float>(mixed::batch * in);
  std::vector<float> h = std::vector<float>(mixed::batch * inner);
  std::vector<float> y = std::vector<float>(mixed::batch * out);
  std::vector<float> slope = std::vector<float>(mixed::batch * inner);
};

/// A network of two layers, trained with groups as micro-batches or within one batch.
template <class Element>
class network {
 public:
  using manager = cm::manager<any_backend, chosen_gradient>;

  network(const mixed::recipe& how, bool in_place)
      : m_{memory_, {.chunk_bytes = 4_KiB}, chosen_gradient{in_place, how.wide}},
        how_{how},
        weights_{m_, memory_, how, parameters()}
  {
    weights_.initialise();
  }

  mixed::outcome train(bool micro_batches)
  {
    for (std::uint32_t now = 0; now < steps; ++now) {
      auto scope = m_.iteration(micro_batches ? groups : 1);
      const std::uint32_t together = micro_batches ? 1 : groups;
      for (std::uint32_t begin = 0; begin < groups; begin += together) {
        scope.pass(cm::pass::forward, micro_batches ? begin : 0);
        forward(now, begin, together);
        scope.pass(cm::pass::backward, micro_batches ? begin : 0);
        backward(begin, together);
      }
      weights_.update();
    }
    mixed::outcome result;
    weights_.add_numbers_to(result);
    weights_.add_weights_to(result);
    return result;
  }

 private:
  [[nodiscard]] auto use(std::size_t index)
  {
    return m_.acquire(weights_.template as<Element>(index), cm::access::read);
  }

  void forward(std::uint32_t now, std::uint32_t begin, std::uint32_t together)
  {
    const auto up = use(first);
    const auto down = use(second);
    const auto shift = m_.acquire(weights_.template as<float>(bias), cm::access::read);
    for (std::uint32_t group = begin; group < begin + together; ++group) {
      rows& it = rows_[group];
      for (std::size_t index = 0; index < it.x.size(); ++index)
        it.x[index] = mixed::noise((now * groups + group) * 4096 + index);
      mixed::multiply(it.h.data(), mixed::floats{it.x.data()}, mixed::view(up), in, inner);
      mixed::add_bias(it.h.data(), mixed::view(shift), inner);
      mixed::store_softsign(mixed::floats{it.h.data()}, it.h.data(), it.h.size());
      mixed::multiply(it.y.data(), mixed::floats{it.h.data()}, mixed::view(down), inner, out);
      for (std::size_t index = 0; index < it.y.size(); ++index)
        it.y[index] = (it.y[index] - 0.5F) * weights_.loss_factor();
      if (how_.is_spoilt(now, group)) it.y[1] = std::numeric_limits<float>::infinity();
    }
  }

  void backward(std::uint32_t begin, std::uint32_t together)
  {
    const bool over = begin + together == groups;
    const auto each = [this, begin, together](float beta, auto work) {
      for (std::uint32_t group = begin; group < begin + together; ++group)
        work(rows_[group], group == begin ? beta : 1.0F);
    };
    auto down = use(second);
    each(0, [&](rows& it, float) {
      mixed::multiply_transposed(it.slope.data(), mixed::floats{it.y.data()}, mixed::view(down), inner, out, false);
      mixed::softsign_backward(it.slope.data(), mixed::floats{it.h.data()}, it.h.size());
    });
    weights_.differentiate(std::move(down), second, over, [each](auto to, float beta) {
      each(beta, [to](rows& it, float b) {
        mixed::outer(to, mixed::floats{it.h.data()}, mixed::floats{it.y.data()}, inner, out, b);
      });
    });
    weights_.differentiate(bias, cm::agent::host, over, [each](auto to, float beta) {
      each(beta, [to](rows& it, float b) { mixed::sum_rows(to, it.slope.data(), inner, b); });
    });
    weights_.differentiate(use(first), first, over, [each](auto to, float beta) {
      each(beta, [to](rows& it, float b) {
        mixed::outer(to, mixed::floats{it.x.data()}, mixed::floats{it.slope.data()}, in, inner, b);
      });
    });
  }

  any_backend memory_{support::adversarial_options{
      .device_capacity = 512_KiB, .host_capacity = 512_KiB, .when = support::schedule::latest}};
  manager m_;
  mixed::recipe how_;
  mixed::managed_parameters<manager, any_backend, Element> weights_;
  rows rows_[groups];
};

template <class Element>
void compare(const mixed::recipe& how, bool can_be_in_place)
{
  network<Element> apart{how, false};
  network<Element> together{how, false};
  const mixed::outcome expected = apart.train(true);
  CHECK(expected.difference(together.train(false)) == "");
  if (!can_be_in_place) return;
  network<Element> in_place{how, true};
  CHECK(expected.difference(in_place.train(false)) == "");
}

}  // namespace

TEST_CASE("micro-batches give the bits of one batch that adds the same groups", "[equality]")
{
  const mixed::limits clips[] = {{},
                                 {.norm = 5.0F, .kind = mixed::norm_kind::l1},
                                 {.norm = 0.25F, .kind = mixed::norm_kind::l2},
                                 {.norm = 0.02F, .kind = mixed::norm_kind::linf},
                                 {.value = 0.003F}};
  for (const mixed::limits& clip : clips)
    for (const mixed::rule which : {mixed::rule::adam, mixed::rule::sgd})
      for (const bool wide : {false, true}) {
        INFO("clip " << clip.norm << " kind " << static_cast<int>(clip.kind) << " value " << clip.value << ", wide "
                     << wide);
        mixed::recipe how{.kind = mixed::precision::bf16,
                          .optimizer = which,
                          .micro_batches = groups,
                          .wide = wide,
                          .clip = clip,
                          .scale = {.scale = 64.0F, .window = 2},
                          .spoilt = {1, mixed::never}};  // infinity in the third group of the second step
        compare<cm::bf16>(how, !wide);
        how.kind = mixed::precision::fp16;
        compare<cm::fp16>(how, !wide);
        how.kind = mixed::precision::fp32;
        compare<float>(how, false);
      }
}

}  // namespace accumulation_test
