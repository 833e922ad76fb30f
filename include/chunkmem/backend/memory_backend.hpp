// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/tier.hpp>

#include <concepts>
#include <cstddef>

namespace chunkmem::inline v0 {

/// Names its tiers' limits.
template <class Backend>
concept limits_tiers = requires(const Backend& backend, tier where) {
  {
    backend.capacity(where)
  } -> std::same_as<bytes>;
};

/// Hands out the memory of a tier. Called at set-up only: a manager cuts its own frames.
template <class Backend>
concept allocates_tiers = requires(Backend& backend, tier where, std::byte* place, bytes size) {
  {
    backend.allocate(where, size)
  } -> std::same_as<std::byte*>;
  {
    backend.release(where, place)
  } noexcept;
};

/// Copies and fills, done when the call returns.
template <class Backend>
concept copies_bytes = requires(Backend& backend, std::byte* to, const std::byte* from, bytes size) {
  backend.copy(to, from, size);
  backend.fill(to, std::byte{}, size);
};

/// Where bytes live.
///
/// Laws: `allocate` gives memory aligned to `tensor_alignment`, or throws `out_of_memory` with nothing changed, and
/// never lets a tier hold more than `capacity`; `release` takes back exactly what `allocate` gave; the contents of
/// fresh memory are unspecified; `host_addressable` says whether the calling thread may read and write the device tier.
template <class Backend>
concept memory_backend = limits_tiers<Backend> && allocates_tiers<Backend> && copies_bytes<Backend> && requires {
  {
    Backend::host_addressable
  } -> std::convertible_to<bool>;
};

/// Copies carry bytes. A backend without any says `static constexpr bool has_bytes = false`: then nothing may be
/// computed.
template <class Backend>
[[nodiscard]] consteval bool has_bytes() noexcept
{
  if constexpr (requires { Backend::has_bytes; })
    return Backend::has_bytes;
  else
    return true;
}

}  // namespace chunkmem::inline v0
