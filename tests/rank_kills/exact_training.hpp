// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace rank_kills {

namespace cm = chunkmem;

/// A training whose sums of gradients are exact: it has the same bits over any number of ranks that divides its rows.
template <class Model>
class exact_training {
 public:
  static constexpr std::uint32_t rows = 12;

  explicit exact_training(Model& m) : m_{m}
  {
    m_.use(adam_);
    for (const std::uint64_t size : {5000U, 300U, 9000U})
      weights_.push_back(m_.template add<float>({size}, cm::role::parameter));
    m_.state("step", std::as_writable_bytes(std::span{&done_, 1}));
  }
  exact_training(const exact_training&) = delete;

  /// Steps that are done.
  [[nodiscard]] std::uint64_t done() const noexcept { return done_; }

  void fill()
  {
    for (std::size_t index = 0; index < weights_.size(); ++index) {
      std::uint64_t next = index;
      for (float& it : m_.acquire(weights_[index], cm::access::write).span())
        it = static_cast<float>(word(next++, 1000) % 200) * 0.01F - 1.0F;
    }
  }
  /// @param first, end   rows of this rank
  void step(std::uint32_t first, std::uint32_t end)
  {
    {
      auto scope = m_.iteration();
      for (std::size_t index = 0; index < weights_.size(); ++index) {
        auto g = m_.gradient(m_.acquire(weights_[index], cm::access::read));
        std::uint64_t element = 0;
        for (float& it : g.span()) it = sum_of_rows(index, element++, first, end);
        if constexpr (is_over_ranks) m_.gradient_done(std::move(g));
      }
      if constexpr (is_over_ranks)
        (void)m_.step(adam_, {.learning_rate = 0.01F});
      else
        (void)cm::optimizer::step(m_, adam_, {.learning_rate = 0.01F});
    }
    ++done_;
  }
  /// Of all weights, byte by byte.
  [[nodiscard]] std::uint64_t hash()
  {
    std::uint64_t value = 0xcbf29ce484222325U;
    for (const auto& weight : weights_)
      for (const float it : m_.acquire(weight, cm::access::read).span()) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &it, sizeof bits);
        value = (value ^ bits) * 0x100000001b3U;
      }
    return value;
  }

 private:
  static constexpr bool is_over_ranks = requires(Model& m) { m.ranks(); };

  [[nodiscard]] static std::uint64_t word(std::uint64_t a, std::uint64_t b)
  {
    std::uint64_t x = a * 0x9e3779b97f4a7c15U + b * 0xbf58476d1ce4e5b9U + 1;
    x = (x ^ x >> 31U) * 0xd6e8feb86659fd93U;
    return x ^ x >> 29U;
  }
  [[nodiscard]] float sum_of_rows(std::size_t tensor, std::uint64_t element, std::uint32_t first,
                                  std::uint32_t end) const
  {
    std::int64_t sum = 0;
    for (std::uint32_t row = first; row < end; ++row)
      sum += static_cast<std::int64_t>(word(element * 8 + tensor, done_ * rows + row) % 16) - 8;
    return static_cast<float>(sum);
  }

  Model& m_;
  cm::optimizer::adam adam_{{.weight_decay = 0.01F}};
  std::vector<cm::tensor<float>> weights_;
  std::uint64_t done_ = 0;
};

}  // namespace rank_kills
