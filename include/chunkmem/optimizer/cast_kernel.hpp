// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/element_rows.hpp>

#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Elements in another type: between float32, bfloat16 and float16, to nearest, or by the random bits of a key.
///
///     loop_launcher::run(cast_kernel{{master, dtype::float32}, {weight, dtype::bfloat16}, elements});
///
/// The bits of `to_float`, `round_to` and `round_stochastic`; from float32 to float32 it copies. Good for masters from
/// weights and weights from masters. The two may be the same bytes where their types have the same size.
class cast_kernel {
 public:
  struct run_of_elements {
    std::byte* data = nullptr;
    dtype type = dtype::float32;
  };

  cast_kernel(run_of_elements to, run_of_elements from, std::uint64_t elements) noexcept
      : cast_kernel{to, from, elements, {}, 0}
  {
    is_random_ = false;
  }

  /// @param first   number of the first element in its tensor
  cast_kernel(run_of_elements to, run_of_elements from, std::uint64_t elements, const rounding_key& key,
              std::uint64_t first) noexcept
      : to_{to.data},
        from_{from.data},
        elements_{elements},
        first_{first},
        key_{key},
        to_type_{to.type},
        from_type_{from.type}
  {
    is_aligned_ = (reinterpret_cast<std::uintptr_t>(to_) | reinterpret_cast<std::uintptr_t>(from_)) % 16 == 0;
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return place_type::rows_of(elements_); }

  /// To be used while this kernel lives.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE const cast_kernel& prepared() const noexcept { return *this; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const noexcept
  {
    const place_type place{index, elements_};
    const bool is_wide = is_aligned_ && place.count == detail::row_length<row_order::neighbours>;
    const auto values = detail::widened(detail::load_row(from_, from_type_, place, is_wide), from_type_, is_wide);
    if (!is_random_) return detail::store_row(to_, to_type_, place, is_wide, values, detail::nearest_rounding{});
    const chunkmem::detail::rounding_stream stream{key_};
    place_type numbered = place;
    numbered.first += first_;
    detail::store_row(to_, to_type_, place, is_wide, values,
                      detail::stochastic_rounding<row_order::neighbours>{stream, numbered});
  }

 private:
  using place_type = detail::row_place<row_order::neighbours>;

  std::byte* to_;
  const std::byte* from_;
  std::uint64_t elements_;
  std::uint64_t first_;
  rounding_key key_;
  dtype to_type_;
  dtype from_type_;
  bool is_random_ = true;
  bool is_aligned_ = false;
};

static_assert(element_kernel<cast_kernel>);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
