// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "words.hpp"

#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/manager/chunk_mover.hpp>
#include <support/every_policy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

/// Policies that forward everything to the chosen ones, and make one mistake where a setting plants it.
namespace differential {
namespace {  // each kind of manager has its own, since one is compiled with other headers

namespace cm = chunkmem;

using every_layout = cm::any_layout<cm::append_layout, cm::best_fit_layout, cm::size_class_layout>;

/// `bug::overlap`: a used hole is taken for free, so that two tensors share bytes (as PatrickStar's reuse of
/// holes).
class breakable_layout {
 public:
  using policy_kind = cm::layout_kind;
  static constexpr std::string_view name = "breakable_layout";

  breakable_layout() = default;
  breakable_layout(std::string_view chosen, bug planted) : inner_{chosen}, planted_{planted} {}

  void reset(cm::bytes frame) { inner_.reset(frame); }
  cm::chunk_place place(cm::bytes size) { return inner_.place(size); }
  void arrange(std::span<const cm::bytes> sizes, std::span<cm::chunk_place> places)
  {
    cm::place_all(inner_, sizes, places);
    if (planted_ != bug::overlap) return;
    for (std::size_t index = 1; index < places.size(); ++index)
      if (places[index].chunk == places[index - 1].chunk && sizes[index] <= sizes[index - 1])
        places[index].offset = places[index - 1].offset;
  }

 private:
  every_layout inner_;
  bug planted_ = bug::none;
};

/// `bug::gives_up`: every third time nothing is named although something could leave (as PatrickStar's "no value",
/// taken for a failure).
class breakable_eviction {
 public:
  using policy_kind = cm::eviction_kind;
  static constexpr std::string_view name = "breakable_eviction";

  breakable_eviction() = default;
  breakable_eviction(std::string_view chosen, bug planted) : inner_{chosen}, planted_{planted} {}

  void reset(std::uint32_t chunks) { inner_.reset(chunks); }
  void on_profile(const cm::access_record& record) { inner_.on_profile(record); }
  void enter(const cm::eviction::candidate& item) noexcept { inner_.enter(item); }
  void leave(const cm::eviction::candidate& item) noexcept { inner_.leave(item); }
  [[nodiscard]] cm::chunk_id victim(cm::access_index now) noexcept
  {
    if (planted_ == bug::gives_up && ++asked_ % 3 == 0) return cm::chunk_id::none;
    return inner_.victim(now);
  }
  [[nodiscard]] std::uint32_t variants() const noexcept { return inner_.variants(); }
  void choose(std::uint32_t variant) noexcept { inner_.choose(variant); }

 private:
  support::every_eviction inner_;
  bug planted_ = bug::none;
  std::uint32_t asked_ = 0;
};

/// `bug::wrong_size`: a load takes the size of the last write-back (as PatrickStar's cache of buffers, which hands out
/// the last one it looked at). `bug::skipped_write_back`: every fifth write-back is forgotten, and a dirty chunk is
/// lost.
class breakable_mover {
 public:
  using policy_kind = cm::mover_kind;
  static constexpr std::string_view name = "breakable_mover";

  breakable_mover() = default;
  explicit breakable_mover(bug planted) : planted_{planted} {}

  template <class Backend>
  void bring(Backend& backend, std::byte* to, const std::byte* from, cm::bytes size, cm::agent stream)
  {
    if (planted_ == bug::wrong_size) size = std::min(size, last_);
    if (size > cm::bytes{}) backend.copy(to, from, size, stream);
  }
  template <class Backend>
  void take(Backend& backend, std::byte* to, const std::byte* from, cm::bytes size, cm::agent stream)
  {
    last_ = size;
    if (planted_ == bug::skipped_write_back && ++taken_ % 5 == 0) return;
    backend.copy(to, from, size, stream);
  }

 private:
  bug planted_ = bug::none;
  cm::bytes last_{};
  std::uint32_t taken_ = 0;
};

}  // namespace
}  // namespace differential
