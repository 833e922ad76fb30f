// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checks/byte_poison.hpp>
#include <chunkmem/checks/call_place.hpp>
#include <chunkmem/checks/caller_guard.hpp>
#include <chunkmem/checks/check_policy.hpp>
#include <chunkmem/checks/gradient_watch.hpp>
#include <chunkmem/checks/guarded_bytes.hpp>
#include <chunkmem/checks/mistake_note.hpp>
#include <chunkmem/checks/pinned_cells.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/error_text.hpp>
#include <chunkmem/core/policy.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {

namespace checks {

/// Looks for the mistakes of a trainer that neither the compiler nor a usage_error finds. See checks::full.
///
///     full_checks checks;
///     checks.attach(about);
///     const auto inside = checks.enter("acquire", call_place{});  // throws what was noted since the last call
///
/// A mistake that shows where nothing may be thrown, at the end of a pin or while a chunk leaves, is noted; the next
/// call of the manager throws it. It names the tensor, its list and the line that asked for the last pin.
class full_checks {
 public:
  using place_type = call_place;

  void attach(const surroundings& about) noexcept { about_ = about; }

  /// A public call begins, on whatever thread. @throws usage_error   a mistake was noted, or another thread is inside
  [[nodiscard]] caller_guard::scope enter(const char* call, const call_place& from)
  {
    caller_guard::scope inside = callers_.enter(call);
    if (inside.is_outermost()) {  // a call within a call is the library's own
      now_ = from;
      mistakes_.raise();
    }
    return inside;
  }
  /// The end of a pin or lease, which may be within a call. Waits for a thread that is inside, and notes that it had
  /// to.
  [[nodiscard]] caller_guard::scope enter_release() noexcept
  {
    bool waited = false;
    caller_guard::scope inside = callers_.wait_to_enter("the end of a pin", waited);
    if (waited)
      mistakes_.add(error_text{} << "chunkmem: a pin ended on one thread while another was inside of the manager"
                                    " (one caller at a time: guard the manager and its pins with a mutex)");
    return inside;
  }
  /// @throws usage_error   a mistake was noted
  void expect_no_mistake() { mistakes_.raise(); }
  /// For the details of an error that leaves a call.
  static void tell_place(error_text& text, const call_place& from) noexcept { text << "called at " << from; }

  // Bytes.

  void reset(std::uint32_t slots, std::uint32_t parameters)
  {
    cells_.reset(slots);
    gradients_.reset(parameters);
  }
  void add_arena(std::span<std::byte> arena) { guarded_.add_arena(arena); }
  void forget_arenas() noexcept { guarded_.forget(); }

  /// A pin begins. What it may not rely on is poison. @throws std::bad_alloc   nothing was changed
  void pinned(const pin_event& pin)
  {
    settle();
    guarded_.open(pin.content);
    if (pin.how == access::write && !cells_.is_pinned(pin.cell)) fill_with_poison(pin.content);
    cells_.pinned(pin.cell, pin.content, writes(pin.how), now_);
  }
  void released(const pin_event& pin) noexcept
  {
    settle();
    if (cells_.released(pin.cell, pin.content, pin.retained) == pinned_cells::finding::written_through_read) {
      error_text text = begin_with("a pin that reads ");
      describe(pin.slot, text);
      mistakes_.add(text << " was written through; the last pin was acquired at " << cells_.last_pin(pin.cell)
                         << " (acquire it with access::read_write)");
    }
    guarded_.close(pin.content);
  }
  [[nodiscard]] bool is_watched(std::uint32_t cell) const noexcept { return cells_.is_watched(cell); }
  /// Looks at a valid copy of a cell that nobody holds.
  void compare(const pin_event& copy) noexcept
  {
    settle();
    if (cells_.compare(copy.cell, copy.content) == pinned_cells::finding::fine) return;
    error_text text = begin_with("bytes of ");
    describe(copy.slot, text);
    mistakes_.add(
        text << " changed while no pin held them; the last pin was acquired at " << cells_.last_pin(copy.cell)
             << " (keep the pin as long as its pointer is used, and write no element past the end of a tensor)");
  }
  void forget(std::uint32_t cell) noexcept { cells_.forget(cell); }
  void forget_all() noexcept { cells_.forget_all(); }

  /// Nobody has written these bytes yet, or nobody needs them any more.
  void fresh(std::span<std::byte> content) noexcept
  {
    settle();
    fill_with_poison(content);
  }
  void leased(std::span<std::byte> content)
  {
    guarded_.open(content);
    fresh(content);
  }
  void lease_ended(std::span<std::byte> content) noexcept
  {
    fresh(content);
    guarded_.close(content);
  }
  /// The manager's own copies go over these bytes until `take_back`, which waits for them.
  void lend(std::span<std::byte> content) noexcept { guarded_.lend(content); }
  void take_back(std::span<std::byte> content) noexcept
  {
    settle();
    guarded_.take_back(content);
  }

  // Gradients.

  void gradient_opened(const gradient_event& of, bool first, bool has_beta) noexcept
  {
    if (!of.content.empty()) settle();
    gradients_.opened(of.parameter, of.content, of.type, first, has_beta);
  }
  void beta_read(std::uint32_t parameter) noexcept { gradients_.asked(parameter); }
  /// @param before   what is about to be done with it
  /// @throws usage_error   its beta was not read, or elements were not written
  void expect_written(const gradient_event& of, std::string_view before)
  {
    if (!gradients_.was_asked(of.parameter)) {
      error_text text = begin_with(before);
      text << ": the beta() of ";
      describe(of.slot, text);
      throw usage_error{text << " was not read (beta 0: overwrite every element; beta 1: add to it)"};
    }
    if (!of.content.empty()) settle();
    const unwritten_count found = gradients_.unwritten(of.parameter, of.content, of.type);
    if (found.elements == 0) return;
    error_text text = begin_with(before);
    text << ": " << found.elements << " of " << std::uint64_t{of.content.size() / size_of(of.type)} << " elements of ";
    describe(of.slot, text);
    throw usage_error{text << " were never written, the first one is " << found.first
                           << " (where beta is 0 write every element, zeros too)"};
  }
  void gradient_gone(std::uint32_t parameter) noexcept { gradients_.forget(parameter); }
  void allow_no_gradient(std::uint32_t tensor) { gradients_.allow_none(tensor); }
  [[nodiscard]] bool may_lack_gradient(std::uint32_t tensor) const noexcept { return gradients_.may_lack(tensor); }

  /// Mistakes that the next call will throw.
  [[nodiscard]] std::uint64_t noted() const noexcept { return mistakes_.count(); }
  [[nodiscard]] const guarded_bytes& guarded() const noexcept { return guarded_; }

 private:
  [[nodiscard]] static error_text begin_with(std::string_view words) noexcept
  {
    return error_text{} << "chunkmem: " << words;
  }
  void describe(std::uint32_t slot, error_text& text) const noexcept
  {
    if (about_.describe != nullptr)
      about_.describe(about_.manager, slot, text);
    else
      text << "slot " << std::uint64_t{slot};
  }
  void settle() const noexcept
  {
    if (about_.settle != nullptr) about_.settle(about_.manager);
  }

  surroundings about_;
  caller_guard callers_;
  mistake_note mistakes_;
  call_place now_{"", 0};  // of the call that is going on
  pinned_cells cells_;
  guarded_bytes guarded_;
  gradient_watch gradients_;
};

/// For debugging: finds the mistakes of a trainer that would otherwise be silent, and names tensor, place and remedy.
///
///     manager<backend::host_arena, checks::full> m{memory};
///     m.verify();  // throws what was found
///
/// Finds: writes through a pin that reads; bytes that change while no pin holds them; elements of a gradient that were
/// never written; a beta that was never read; parameters without a gradient at an optimizer's step; a second thread
/// inside of the manager. Bytes that nobody has written, leases that ended and bytes that were dropped are NaN. With
/// the address sanitizer every touch of bytes that no pin or lease holds is reported where it happens. Good while a
/// trainer is written, and in its tests. Poor for training: copies overlap nothing, and each pin costs two passes over
/// its bytes. Bits are the same as without it. Bytes are looked at where the calling thread can read the device tier.
struct full {
  using policy_kind = checks_kind;
  static constexpr std::string_view name = "full";
  static constexpr bool is_on = true;
  using part = full_checks;
};

static_assert(check_policy<full>);

}  // namespace checks

}  // namespace chunkmem::inline v0
