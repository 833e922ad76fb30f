// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace chunkmem::inline v0 {

namespace activation {

namespace detail {

/// Work of one thread: a sort and a sum, in plain loops.
struct sort_down_kernel {
  const std::uint64_t* from;
  std::uint64_t* to;
  std::uint64_t size;

  [[nodiscard]] std::uint64_t count() const noexcept { return size == 0 ? 0 : 1; }
  [[nodiscard]] const sort_down_kernel& prepared() const noexcept { return *this; }
  void operator()(std::uint64_t) const noexcept
  {
    std::copy(from, from + size, to);
    std::sort(to, to + size, std::greater<>{});
  }
};
struct add_up_kernel {
  std::uint64_t* sums;
  std::uint64_t size;

  [[nodiscard]] std::uint64_t count() const noexcept { return size == 0 ? 0 : 1; }
  [[nodiscard]] const add_up_kernel& prepared() const noexcept { return *this; }
  void operator()(std::uint64_t) const noexcept
  {
    for (std::uint64_t at = 1; at < size; ++at) sums[at] += sums[at - 1];
  }
};

}  // namespace detail

/// Samples on streams whose kernels run on the host: those of host_arena, and of backends in tests.
///
///     sampled_input<manager, float, loop_sampling<optimizer::loop_launcher>> kept{m, norms, site, how, {weight}};
///
/// @tparam Launcher   `launcher(backend, stream, kernel)` enqueues, as `optimizer::loop_launcher` does
template <class Launcher>
struct loop_sampling : Launcher {
  /// Nothing.
  [[nodiscard]] static constexpr std::uint64_t temporary_bytes(std::uint64_t) noexcept { return 0; }

  template <class Backend>
  void sort_down(Backend& backend, agent stream, const std::uint64_t* from, std::uint64_t* to, std::uint64_t count,
                 std::byte*, std::uint64_t) const
  {
    static_cast<const Launcher&>(*this)(backend, stream, detail::sort_down_kernel{from, to, count});
  }
  template <class Backend>
  void add_up(Backend& backend, agent stream, std::uint64_t* sums, std::uint64_t count, std::byte*, std::uint64_t) const
  {
    static_cast<const Launcher&>(*this)(backend, stream, detail::add_up_kernel{sums, count});
  }
};

}  // namespace activation

}  // namespace chunkmem::inline v0
