// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "extents.hpp"
#include "team.hpp"

#include <cstdint>

namespace gpt::cuda {

/// The windows of a micro-batch in device memory: for each, `context` bytes and the byte after them.
struct token_windows {
  const unsigned char* bytes;
  std::uint32_t context, windows;

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint32_t rows() const noexcept { return context * windows; }
  /// @param row   counted over all windows
  [[nodiscard]] CHUNKMEM_HOST_DEVICE unsigned char token(std::uint64_t row) const noexcept
  {
    return bytes[row / context * (context + 1) + row % context];
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE unsigned char target(std::uint64_t row) const noexcept
  {
    return bytes[row / context * (context + 1) + row % context + 1];
  }
};

/// Writes bytes that are passed as kernel arguments: without pinned memory and without a copy to wait for.
struct write_bytes_kernel {
  static constexpr std::uint32_t most = 3072;  // of the 4 KiB of arguments that every architecture allows
  unsigned char* to;
  std::uint32_t size;
  unsigned char values[most];

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return size; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const { to[index] = values[index]; }
};

/// x[row] = token_table[token] + position_table[position], rounded once.
struct embed_kernel {
  token_windows text;
  const bf16* token_table;     ///< [vocabulary, width]
  const bf16* position_table;  ///< [context, width]
  bf16* x;                     ///< [rows, width]
  std::uint32_t width;

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept
  {
    return std::uint64_t{text.rows()} * (width / pack);
  }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const
  {
    const std::uint64_t row = index / (width / pack);
    const std::uint64_t column = index % (width / pack) * pack;
    const eight token = load(token_table + std::uint64_t{text.token(row)} * width + column);
    store(x + row * width + column, token + load(position_table + row % text.context * width + column));
  }
};

/// Rows in the order of their tokens: begins[v] to begins[v + 1] are those of token v, in ascending order. A team takes
/// a token.
struct sort_rows_kernel {
  token_windows text;
  std::uint32_t* order;   ///< [rows]
  std::uint32_t* begins;  ///< [vocabulary + 1]

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return vocabulary; }
  template <class Team>
  CHUNKMEM_HOST_DEVICE void operator()(const Team& team, std::uint64_t token) const
  {
    const std::uint32_t rows = text.rows();
    const std::uint32_t part = (rows + lanes - 1) / lanes;  // rows of a lane
    const auto begin_of = [=](std::uint32_t lane) { return lane * part < rows ? lane * part : rows; };
    const std::uint32_t below = team.sum([&](std::uint32_t lane) {
      std::uint32_t found = 0;
      for (std::uint32_t row = begin_of(lane); row < begin_of(lane + 1); ++row)
        found += text.token(row) < token ? 1U : 0U;
      return found;
    });
    const auto equal = [&](std::uint32_t lane) {
      std::uint32_t found = 0;
      for (std::uint32_t row = begin_of(lane); row < begin_of(lane + 1); ++row)
        found += text.token(row) == token ? 1U : 0U;
      return found;
    };
    team.after_lower(equal, [&](std::uint32_t lane, std::uint32_t before) {
      std::uint32_t index = below + before;
      for (std::uint32_t row = begin_of(lane); row < begin_of(lane + 1); ++row)
        if (text.token(row) == token) order[index++] = row;
      if (lane == 0) begins[token] = below;
      if (lane == 0 && token + 1 == vocabulary) begins[vocabulary] = rows;
    });
  }
};

/// gradient = beta * gradient + the gradients of the rows with each token, rounded once: added by lanes in the order of
/// rows, then over the lanes, so no two threads add to the same number.
struct token_gradient_kernel {
  const bf16* slope;           ///< [rows, width]
  const std::uint32_t* order;  ///< of sort_rows_kernel
  const std::uint32_t* begins;
  bf16* gradient;  ///< [vocabulary, width]
  std::uint32_t width;
  float beta;

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept
  {
    return vocabulary * std::uint64_t{width / pack};
  }
  template <class Team>
  CHUNKMEM_HOST_DEVICE void operator()(const Team& team, std::uint64_t index) const
  {
    const std::uint64_t token = index / (width / pack);
    const std::uint64_t column = index % (width / pack) * pack;
    const eight total = team.sum([&](std::uint32_t lane) {
      eight sum{};
      for (std::uint32_t position = begins[token] + lane; position < begins[token + 1]; position += lanes) {
        sum = sum + load(slope + std::uint64_t{order[position]} * width + column);
      }
      return sum;
    });
    team.each([&](std::uint32_t lane) {
      if (lane != 0) return;
      bf16* const to = gradient + token * width + column;
      store(to, beta != 0.0F ? load(to) + total : total);
    });
  }
};

/// gradient = beta * gradient + the sum over the windows, rounded once.
struct position_gradient_kernel {
  const bf16* slope;  ///< [windows, context, width]
  bf16* gradient;     ///< [context, width]
  std::uint32_t windows, context, width;
  float beta;

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept
  {
    return std::uint64_t{context} * (width / pack);
  }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const
  {
    eight sum{};
    for (std::uint64_t window = 0; window < windows; ++window)
      sum = sum + load(slope + window * context * width + index * pack);
    store(gradient + index * pack, beta != 0.0F ? load(gradient + index * pack) + sum : sum);
  }
};

}  // namespace gpt::cuda
