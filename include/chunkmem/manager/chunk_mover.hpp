// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/policy.hpp>

#include <cstddef>
#include <string_view>

namespace chunkmem::inline v0 {

struct mover_kind {};

/// Fills a chunk's frames from its host window, and the other way: a copy by default, a gather where a chunk is
/// sharded.
///
/// Laws: both enqueue on `who` alone and return; they throw `device_error` with nothing enqueued; `take` after `bring`
/// leaves the host window as it was. Taken bytes come back by the next `bring`; bytes outside of the window stay as
/// they were.
template <class Mover, class Backend>
concept chunk_mover =
    names_itself<Mover> && std::same_as<typename Mover::policy_kind, mover_kind> &&
    requires(Mover mover, Backend& backend, std::byte* to, const std::byte* from, bytes size, agent who) {
      mover.bring(backend, to, from, size, who);
      mover.take(backend, to, from, size, who);
    };

/// One copy each way; the default.
struct copy_mover {
  using policy_kind = mover_kind;
  static constexpr std::string_view name = "copy_mover";

  template <class Backend>
  void bring(Backend& backend, std::byte* to, const std::byte* from, bytes size, agent who)
  {
    backend.copy(to, from, size, who);
  }
  template <class Backend>
  void take(Backend& backend, std::byte* to, const std::byte* from, bytes size, agent who)
  {
    backend.copy(to, from, size, who);
  }
};

}  // namespace chunkmem::inline v0
