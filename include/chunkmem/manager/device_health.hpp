// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <utility>

namespace chunkmem::inline v0 {

/// Remembers the first error that a device does not recover from, and refuses everything after it.
///
/// A sticky fault ends a manager. So does every error of an event: a copy is on its way, nobody knows when it is done,
/// and the next use of its bytes could be wrong in silence. Cost: nothing until an error is thrown.
/// @code
/// device_health health;
/// health.starting([&] { backend.copy(to, from, size, who); });         // throws with nothing started
/// const event done = health.ordering([&] { return backend.record(who); });  // an error here ends the manager
/// health.expect_alive();
/// @endcode
class device_health {
 public:
  /// @param notice   called once, with `listener`, when the device is lost
  explicit device_health(void (*notice)(void*) noexcept = nullptr, void* listener = nullptr) noexcept
      : notice_{notice}, listener_{listener}
  {
  }
  device_health(const device_health&) = delete;

  [[nodiscard]] bool is_lost() const noexcept { return is_lost_; }

  /// @throws device_error   the first cause, if there was one
  void expect_alive() const
  {
    if (is_lost_) [[unlikely]]
      throw cause_;
  }

  /// Runs something that either starts work or throws with nothing started.
  template <class Work>
  decltype(auto) starting(Work&& work)
  {
    try {
      return std::forward<Work>(work)();
    } catch (const device_error& error) {
      if (error.fault().is_sticky) lose(error);
      throw;
    }
  }

  /// Runs something on which the order of other work depends: no failure of it can be taken back.
  template <class Work>
  decltype(auto) ordering(Work&& work)
  {
    try {
      return std::forward<Work>(work)();
    } catch (const device_error& error) {
      lose(error);
      throw device_error{cause_};
    }
  }

 private:
  /// An error that passes ends a manager all the same where it took the order of work away: then it says so.
  [[gnu::noinline, gnu::cold]] void lose(const device_error& error) noexcept
  {
    if (is_lost_) return;
    cause_ = error;
    if (!error.fault().is_sticky)
      cause_ = device_error{
          error_text{}
              << "chunkmem: the order of work on the device is lost (make the manager anew, from a checkpoint): "
              << error.what(),
          {.number = error.fault().number, .is_sticky = true, .call = error.fault().call}};
    is_lost_ = true;
    if (notice_ != nullptr) notice_(listener_);
  }

  void (*notice_)(void*) noexcept;
  void* listener_;
  bool is_lost_ = false;
  device_error cause_{error_text{}};
};

}  // namespace chunkmem::inline v0
