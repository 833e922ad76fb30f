// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/strict_fp_compare.hpp>
#include <chunkmem/optimizer/element_blocks.hpp>
#include <chunkmem/tensor/half.hpp>
#include <chunkmem/tensor/philox.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace chunkmem::inline v0 {

namespace optimizer {

/// What happens to a gradient before a kernel sees it: widened, flushed, multiplied, flushed, cut.
///
///     const gradient_transform transform{.factor = 1.0F / 1'024, .limit = 1.0F};
struct gradient_transform {
  float factor = 1.0F;  ///< of the clipping and the loss scale
  float limit = 0.0F;   ///< cut to [-limit, limit]; 0: not at all. NaN stays NaN
};

namespace detail {

/// The gradient of one element as a kernel sees it.
template <bool Cuts, class Element>
[[nodiscard, gnu::always_inline]] CHUNKMEM_HOST_DEVICE inline float transformed(const gradient_transform& how,
                                                                                Element stored) noexcept
{
  const float scaled = flush(strict_fp::product(flush(to_float(stored)), how.factor));
  const float below = Cuts && strict_fp::is_less(how.limit, scaled) ? how.limit : scaled;
  return Cuts && strict_fp::is_less(below, strict_fp::negative(how.limit)) ? strict_fp::negative(how.limit) : below;
}

struct widen_work {
  template <std::size_t Count, class Element>
  [[gnu::always_inline]] void run(std::size_t first, float* wide, const Element* stored) const noexcept
  {
    for (std::size_t step = 0; step < Count; ++step) wide[first + step] = to_float(stored[first + step]);
  }
};

/// Cutting costs a tenth of a whole update: it is compiled in where it is asked for.
template <bool Cuts>
struct transform_work {
  template <std::size_t Count, class Element>
  [[gnu::always_inline]] void run(std::size_t first, float* wide, const Element* stored) const noexcept
  {
    for (std::size_t step = 0; step < Count; ++step) wide[first + step] = transformed<Cuts>(how, stored[first + step]);
  }

  gradient_transform how;
};

/// The gradient of `count` elements as a kernel sees it.
template <class Element>
void transform(instruction_set set, const gradient_transform& how, std::size_t count, float* wide,
               const Element* stored) noexcept
{
  if (how.limit > 0.0F)
    for_elements(set, transform_work<true>{how}, count, wide, stored);
  else
    for_elements(set, transform_work<false>{how}, count, wide, stored);
}

struct narrow_work {
  template <std::size_t Count, class Element>
  [[gnu::always_inline]] void run(std::size_t first, Element* stored, const float* wide) const noexcept
  {
    for (std::size_t step = 0; step < Count; ++step) stored[first + step] = round_to<Element>(wide[first + step]);
  }
};

struct stochastic_work {
  template <std::size_t Count, class Element>
  [[gnu::always_inline]] void run(std::size_t first, Element* stored, const float* wide,
                                  const std::uint16_t* random) const noexcept
  {
    for (std::size_t step = 0; step < Count; ++step)
      stored[first + step] = round_stochastic<Element>(wide[first + step], random[first + step]);
  }
};

/// Random bits of the elements from `element` on, a multiple of 128 as is every count.
struct random_work {
  template <std::size_t Count>
  [[gnu::always_inline]] void run(std::size_t first, std::uint16_t* random) const noexcept
  {
    random_bits(key, element + first, std::span{random + first, Count});
  }

  rounding_key key;
  std::uint64_t element;
};

/// Calls `work` with a pointer to `data` as elements of its type.
/// @pre the type is float32, bfloat16 or float16
template <class Byte, class Work>
[[gnu::always_inline]] inline void with_elements(Byte* data, dtype type, std::uint64_t first, const Work& work) noexcept
{
  const auto as = [&]<class Element>(Element) {
    using pointer = std::conditional_t<std::is_const_v<Byte>, const Element*, Element*>;
    work(reinterpret_cast<pointer>(data) + first);
  };
  if (type == dtype::bfloat16) return as(bf16{});
  if (type == dtype::float16) return as(fp16{});
  as(float{});
}

}  // namespace detail

}  // namespace optimizer

}  // namespace chunkmem::inline v0
