// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/error.hpp>
#include <support/fault_control.hpp>

#include <cstddef>
#include <cstdint>

namespace support {

/// The clock of a backend.
enum class clock_kind : std::uint8_t { real, stands, jumps, runs_backwards };

/// A backend whose allocations and copies fail when `faults` says so, with nothing changed, and whose clock may be a
/// bad one.
///
/// Counts live allocations in `live_arenas`.
template <chunkmem::stream_backend Inner>
class faulty : public Inner {
 public:
  using Inner::Inner;

  [[nodiscard]] std::byte* allocate(chunkmem::tier where, chunkmem::bytes size)
  {
    if (faults.strikes(fault_source::arena))
      throw chunkmem::out_of_memory{{.where = where,
                                     .requested = size.count(),
                                     .capacity = this->capacity(where).count(),
                                     .needed = size.count(),
                                     .refused = true}};
    std::byte* const place = Inner::allocate(where, size);
    ++live_arenas;
    return place;
  }
  void release(chunkmem::tier where, std::byte* place) noexcept
  {
    live_arenas -= place != nullptr ? 1 : 0;
    Inner::release(where, place);
  }

  template <class... Agent>
  void copy(std::byte* to, const std::byte* from, chunkmem::bytes size, Agent... who)
  {
    fail_copy();
    Inner::copy(to, from, size, who...);
  }
  template <class... Agent>
  void fill(std::byte* to, std::byte value, chunkmem::bytes size, Agent... who)
  {
    fail_copy();
    Inner::fill(to, value, size, who...);
  }

  void set_clock(clock_kind kind) noexcept { clock_ = kind; }
  [[nodiscard]] std::uint64_t now() const noexcept
  {
    ++looks_;
    switch (clock_) {
      case clock_kind::real: break;
      case clock_kind::stands: return 1'000;
      case clock_kind::jumps: return looks_ % 3 == 0 ? looks_ : UINT64_MAX / 2 * (looks_ % 2) + looks_ * 1'000'000'007U;
      case clock_kind::runs_backwards: return UINT64_MAX - looks_;
    }
    return Inner::now();
  }
  [[nodiscard]] std::uint64_t looks_at_the_clock() const noexcept { return looks_; }

 private:
  static void fail_copy()
  {
    if (faults.strikes(fault_source::copy)) throw chunkmem::device_error{"a copy failed as planned (this is a test)"};
  }

  clock_kind clock_ = clock_kind::real;
  mutable std::uint64_t looks_ = 0;
};

}  // namespace support
