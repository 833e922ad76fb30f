// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/norm_cache.hpp>
#include <chunkmem/activation/row_choice.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/host_device.hpp>
#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/tensor/philox.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace activation {

namespace detail {

/// Stands for any backend when a launcher's concept is checked.
struct some_backend {
  void copy(std::byte* to, const std::byte* from, bytes size, agent stream);
  void fill(std::byte* to, std::byte value, bytes size, agent stream);
  template <class Work>
  void launch(agent stream, Work&& work);
  template <class Backend>
  operator Backend&();
};

}  // namespace detail

/// Starts the kernels of sampled inputs on the streams of a backend, and sorts and adds up there.
///
///     struct my_sampling : my_launcher {                                     // my_launcher(backend, stream, kernel)
///       std::uint64_t temporary_bytes(std::uint64_t count) const;
///       void sort_down(backend&, agent, const std::uint64_t* from, std::uint64_t* to, std::uint64_t count,
///                      std::byte* temporary, std::uint64_t size) const;      // all distinct, or alike in every bit
///       void add_up(backend&, agent, std::uint64_t* sums, std::uint64_t count, std::byte* temporary,
///                   std::uint64_t size) const;                               // sums[i] += sums[i - 1], exact
///     };
///
/// `launcher(backend, stream, kernel)` is the call by which `optimizer::device_step` starts kernels, see
/// optimizer::device_kernel. No order of the work changes a bit of the other two. Models: loop_sampling, cub_sampling.
/// Laws: calls enqueue, wait for nothing and allocate nothing. Where they throw, a part of the work may be enqueued,
/// such as one kernel of a sort. That part reads and writes only the memory that the call was given, and is ordered on
/// its stream as any work. The content of `to` and `sums` is then unspecified: `sampled_input` keeps no rows.
template <class Launcher>
concept sampling_launcher = std::copy_constructible<Launcher> && requires(const Launcher& launcher) {
  {
    launcher.temporary_bytes(std::uint64_t{})
  } -> std::convertible_to<std::uint64_t>;
} && requires(const Launcher& launcher, detail::some_backend& backend, std::uint64_t* numbers, std::byte* temporary) {
  launcher.sort_down(backend, agent{}, static_cast<const std::uint64_t*>(numbers), numbers, std::uint64_t{}, temporary,
                     std::uint64_t{});
  launcher.add_up(backend, agent{}, numbers, std::uint64_t{}, temporary, std::uint64_t{});
};

namespace detail {

/// Intermediate results of a choice in device memory.
struct choice_state {
  std::uint64_t largest;  ///< bits of a weight, or of a gradient's square
  std::uint64_t always;   ///< c
};

/// The sums of squares of rows, as `measure` has them: one for each 4,096 elements of a row.
/// Cost: one pass, a lane reads every 32nd element.
template <real_element Element>
class row_squares_kernel {
 public:
  struct sums_type {
    double squares = 0;
    double magnitudes = 0;
    std::int32_t largest = 0;
  };

  row_squares_kernel(const Element* matrix, std::uint64_t rows, std::uint64_t width, double* sums) noexcept
      : matrix_{matrix}, sums_{sums}, rows_{rows}, width_{width}, parts_{parts_of(width)}
  {
  }
  /// The number of sums of one row.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE static constexpr std::uint64_t parts_of(std::uint64_t width) noexcept
  {
    return (width + measure_block - 1) / measure_block;
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return rows_ * parts_; }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE sums_type lane(std::uint64_t block, std::uint32_t index) const noexcept
  {
    constexpr std::uint32_t lanes = chunkmem::detail::measure_lanes, loads = 8;  // that do not wait for each other
    const std::uint64_t row = block / parts_, first = block % parts_ * measure_block;
    const std::uint64_t length = width_ - first < measure_block ? width_ - first : measure_block;
    const Element* const from = matrix_ + row * width_ + first;
    sums_type sums;
    std::uint64_t next = index;
    for (; next + (loads - 1) * lanes < length; next += loads * lanes) {
      Element loaded[loads];
      for (std::uint32_t each = 0; each < loads; ++each) loaded[each] = from[next + each * lanes];
      for (std::uint32_t each = 0; each < loads; ++each) view(sums).add(loaded[each]);
    }
    for (; next < length; next += lanes) view(sums).add(from[next]);
    return sums;
  }
  CHUNKMEM_HOST_DEVICE static void combine(sums_type& into, sums_type other) noexcept { view(into).add(view(other)); }
  CHUNKMEM_HOST_DEVICE void store(std::uint64_t block, sums_type sums) const noexcept
  {
    sums_[block] = view(sums).measure().squares;
  }

 private:
  [[nodiscard]] CHUNKMEM_HOST_DEVICE static chunkmem::detail::measure_lane view(sums_type& sums) noexcept
  {
    return {sums.squares, sums.magnitudes, sums.largest};
  }

  const Element* matrix_;
  double* sums_;
  std::uint64_t rows_, width_, parts_;
};

/// An element kernel without values that all threads share.
template <class Work>
struct element_work {
  [[nodiscard]] CHUNKMEM_HOST_DEVICE const Work& prepared() const noexcept { return static_cast<const Work&>(*this); }
};

/// Adds the sums of each row's parts, in their order, to the bits of a number of the row.
struct add_squares_kernel : element_work<add_squares_kernel> {
  const double* sums;
  std::uint64_t* numbers;
  std::uint64_t rows, parts;
  bool is_first;  ///< of the row: nothing is there yet

  CHUNKMEM_HOST_DEVICE add_squares_kernel(const double* from, std::uint64_t* to, std::uint64_t count_of_rows,
                                          std::uint64_t parts_of_row, bool begins) noexcept
      : sums{from}, numbers{to}, rows{count_of_rows}, parts{parts_of_row}, is_first{begins}
  {
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return rows; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t row) const noexcept
  {
    double total = sums[row * parts];
    for (std::uint64_t part = 1; part < parts; ++part) total = strict_fp::sum(total, sums[row * parts + part]);
    numbers[row] = bits_as<std::uint64_t>(is_first ? total : strict_fp::sum(bits_as<double>(numbers[row]), total));
  }
};

/// Turns squares into weights, both as bits: the root, times the norm that the row's gradient is expected to have.
struct weigh_kernel : element_work<weigh_kernel> {
  std::uint64_t* numbers;
  const std::uint16_t* norms;
  std::uint64_t rows;
  expected_norms expected;

  CHUNKMEM_HOST_DEVICE weigh_kernel(std::uint64_t* of_rows, const std::uint16_t* of_gradients,
                                    std::uint64_t count_of_rows, const expected_norms& how) noexcept
      : numbers{of_rows}, norms{of_gradients}, rows{count_of_rows}, expected{how}
  {
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return rows; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t row) const noexcept
  {
    double weight = strict_fp::root(bits_as<double>(numbers[row]));
    if (expected.are_known) weight = strict_fp::product(weight, expected.of(norms[row]));
    numbers[row] = row_keys::bits_of(weight);
  }
};

/// The largest bits among numbers: one result for each 1,024 numbers. A second call on the results makes one.
class largest_number_kernel {
 public:
  static constexpr std::uint64_t block_size = 1024;
  using sums_type = std::uint64_t;

  largest_number_kernel(const std::uint64_t* numbers, std::uint64_t count_of_numbers, std::uint64_t* found,
                        bool is_one_block = false) noexcept
      : numbers_{numbers}, found_{found}, count_{count_of_numbers}, block_{is_one_block ? count_of_numbers : block_size}
  {
  }
  [[nodiscard]] static constexpr std::uint64_t blocks_of(std::uint64_t count) noexcept
  {
    return (count + block_size - 1) / block_size;
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return (count_ + block_ - 1) / block_; }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE sums_type lane(std::uint64_t block, std::uint32_t index) const noexcept
  {
    constexpr std::uint32_t lanes = chunkmem::detail::measure_lanes;
    const std::uint64_t end = (block + 1) * block_ < count_ ? (block + 1) * block_ : count_;
    sums_type largest = 0;
    for (std::uint64_t at = block * block_ + index; at < end; at += lanes) combine(largest, numbers_[at]);
    return largest;
  }
  CHUNKMEM_HOST_DEVICE static void combine(sums_type& into, sums_type other) noexcept
  {
    into = into < other ? other : into;
  }
  CHUNKMEM_HOST_DEVICE void store(std::uint64_t block, sums_type largest) const noexcept { found_[block] = largest; }

 private:
  const std::uint64_t* numbers_;
  std::uint64_t* found_;
  std::uint64_t count_, block_;
};

/// The key of each row; 0 where a weight is not a number.
class keys_kernel {
 public:
  struct prepared_type {
    row_keys by;
    const std::uint64_t* weights;
    std::uint64_t* keys;
    bool are_numbers;

    CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t row) const noexcept
    {
      keys[row] = are_numbers ? by.key_of(weights[row], row) : 0;
    }
  };

  keys_kernel(const std::uint64_t* weights, std::uint64_t* keys, std::uint64_t rows, const choice_state* state) noexcept
      : weights_{weights}, keys_{keys}, state_{state}, rows_{rows}
  {
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return rows_; }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE prepared_type prepared() const noexcept
  {
    const bool are_numbers = state_->largest < row_keys::no_weight;
    return {row_keys{are_numbers ? state_->largest : 0, rows_}, weights_, keys_, are_numbers};
  }

 private:
  const std::uint64_t* weights_;
  std::uint64_t* keys_;
  const choice_state* state_;
  std::uint64_t rows_;
};

/// The units of each key in their order, one place later, so that their prefix sums are the units before each.
struct units_kernel : element_work<units_kernel> {
  const std::uint64_t* keys;
  std::uint64_t* sums;
  std::uint64_t rows;
  row_keys by;  ///< its unit is not used

  CHUNKMEM_HOST_DEVICE units_kernel(const std::uint64_t* from, std::uint64_t* to, std::uint64_t count_of_rows) noexcept
      : keys{from}, sums{to}, rows{count_of_rows}, by{0, count_of_rows}
  {
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return rows + 1; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t at) const noexcept
  {
    sums[at] = at == 0 ? 0 : by.units_of(keys[at - 1]);
  }
};

/// How many rows are kept for certain.
class always_kernel {
 public:
  using sums_type = division_score;

  always_kernel(const row_line& line, choice_state* state) noexcept : line_{line}, state_{state} {}

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return 1; }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE sums_type lane(std::uint64_t, std::uint32_t index) const noexcept
  {
    sums_type best{bits_as<double>(row_keys::no_weight), line_.rows};
    for (std::uint64_t always = index; always <= line_.kept; always += chunkmem::detail::measure_lanes)
      combine(best, line_.score_of(always));
    return best;
  }
  CHUNKMEM_HOST_DEVICE static void combine(sums_type& into, sums_type other) noexcept
  {
    if (other.is_before(into)) into = other;
  }
  CHUNKMEM_HOST_DEVICE void store(std::uint64_t, sums_type best) const noexcept { state_->always = best.always; }

 private:
  row_line line_;
  choice_state* state_;
};

/// The rows that are kept, in the order in which they were drawn.
class places_kernel {
 public:
  struct prepared_type {
    row_keys by;
    chunkmem::detail::rounding_stream random;
    row_line line;
    std::uint64_t* places;
    std::uint64_t always;
    bool are_numbers;

    CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t at) const noexcept { places[at] = place(at).word; }
    [[nodiscard]] CHUNKMEM_HOST_DEVICE kept_place place(std::uint64_t at) const noexcept
    {
      if (!are_numbers) return {at, bits_as<float>(chunkmem::detail::nan_bits)};
      if (line.kept == line.rows) return {at, 1.0F};
      return line.place(at, always, by, random);
    }
  };

  places_kernel(const row_line& line, const choice_state* state, std::uint64_t* places,
                const rounding_key& key) noexcept
      : line_{line}, key_{key}, state_{state}, places_{places}
  {
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return line_.kept; }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE prepared_type prepared() const noexcept
  {
    const bool are_numbers = state_->largest < row_keys::no_weight;
    return {row_keys{are_numbers ? state_->largest : 0, line_.rows},
            chunkmem::detail::rounding_stream{key_},
            line_,
            places_,
            state_->always,
            are_numbers};
  }

 private:
  row_line line_;
  rounding_key key_;
  const choice_state* state_;
  std::uint64_t* places_;
};

/// Copies the kept rows, and splits their places into indices and scales.
template <element Element>
struct keep_rows_kernel : element_work<keep_rows_kernel<Element>> {
  const std::uint64_t* places;
  const Element* from;
  Element* rows;
  std::int32_t* indices;
  float* scales;
  std::uint64_t kept, width;

  CHUNKMEM_HOST_DEVICE keep_rows_kernel(const std::uint64_t* of_rows, const Element* input, Element* to,
                                        std::int32_t* indices_to, float* scales_to, std::uint64_t count_of_places,
                                        std::uint64_t elements_of_row) noexcept
      : places{of_rows},
        from{input},
        rows{to},
        indices{indices_to},
        scales{scales_to},
        kept{count_of_places},
        width{elements_of_row}
  {
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return kept * width; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const noexcept
  {
    const std::uint64_t at = index / width, column = index % width;
    const kept_place place{places[at]};
    rows[index] = from[static_cast<std::uint64_t>(place.row()) * width + column];
    if (column != 0) return;
    indices[at] = place.row();
    scales[at] = place.scale();
  }
};

[[nodiscard]] CHUNKMEM_HOST_DEVICE inline bool is_number(float scale) noexcept
{
  return (bits_as<std::uint32_t>(scale) & ~chunkmem::detail::sign_bit) <= chunkmem::detail::infinity_bits;
}
/// A number of a gradient times its row's scale. One NaN for all, on every machine.
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline float scaled_by(float scale, float number) noexcept
{
  return is_number(scale) ? strict_fp::product(scale, number) : bits_as<float>(chunkmem::detail::nan_bits);
}

/// Kept rows of a gradient times their scales; NaN where any row of it has an infinity or NaN.
template <real_element Slope>
struct scale_rows_kernel : element_work<scale_rows_kernel<Slope>> {
  const Slope* slope;
  const std::int32_t* indices;
  const float* scales;
  float* scaled;
  const choice_state* state;
  std::uint64_t kept, width;

  CHUNKMEM_HOST_DEVICE scale_rows_kernel(const Slope* of_all, const std::int32_t* of_kept, const float* by, float* to,
                                         const choice_state* seen, std::uint64_t count_of_places,
                                         std::uint64_t elements_of_row) noexcept
      : slope{of_all},
        indices{of_kept},
        scales{by},
        scaled{to},
        state{seen},
        kept{count_of_places},
        width{elements_of_row}
  {
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return kept * width; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const noexcept
  {
    const std::uint64_t at = index / width, row = static_cast<std::uint64_t>(indices[at]);
    const bool is_finite = state->largest < row_keys::no_weight;
    const float scale = is_finite ? scales[at] : bits_as<float>(chunkmem::detail::nan_bits);
    scaled[index] = scaled_by(scale, to_float(slope[row * width + index % width]));
  }
};

/// Norms of gradients as a cache keeps them.
struct norms_kernel : element_work<norms_kernel> {
  const std::uint64_t* squares;
  std::uint16_t* norms;
  std::uint64_t rows;
  float loss_scale;

  CHUNKMEM_HOST_DEVICE norms_kernel(const std::uint64_t* from, std::uint16_t* to, std::uint64_t count_of_rows,
                                    float by) noexcept
      : squares{from}, norms{to}, rows{count_of_rows}, loss_scale{by}
  {
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return rows; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t row) const noexcept
  {
    norms[row] = kept_norm_of(bits_as<double>(squares[row]), loss_scale);
  }
};

}  // namespace detail

}  // namespace activation

}  // namespace chunkmem::inline v0
