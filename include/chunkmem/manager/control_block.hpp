// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <cstdint>
#include <exception>
#include <utility>

namespace chunkmem::inline v0 {

/// Shared by a manager and its pins, leases and iterations. The last of them frees it.
///
///     if (link->engine == nullptr) throw usage_error{"the manager is gone"};
///
/// A pin that outlives its manager finds a null `engine`, and throws instead of reading freed memory. Not atomic: one
/// caller.
template <class Engine>
struct control_block {
  Engine* engine = nullptr;   ///< null once the manager is gone
  std::uint64_t holders = 0;  ///< live pins and leases

  /// Tells the handles of its manager from another's; never 0.
  [[nodiscard]] std::uint32_t owner() const noexcept
  {
    const auto address = reinterpret_cast<std::uintptr_t>(this);
    return static_cast<std::uint32_t>(address >> 3) | 1U;  // a link is at least 16 bytes from the next
  }
};

/// The manager's end of the control block: sets `engine` to null when the manager ends, and frees the block where no
/// pin is left.
///
///     manager_link<Engine> link{engine};
///     const holder<Engine, access_token> held{link.get(), take};
template <class Engine>
class manager_link {
 public:
  /// @param engine   of the manager; outlives this   @throws std::bad_alloc
  explicit manager_link(Engine& engine) : link_{new control_block<Engine>{&engine, 0}} {}
  manager_link(const manager_link&) = delete;
  ~manager_link()
  {
    link_->engine = nullptr;
    if (link_->holders == 0) delete link_;
  }

  [[nodiscard]] control_block<Engine>& operator*() const noexcept { return *link_; }
  [[nodiscard]] control_block<Engine>* operator->() const noexcept { return link_; }
  [[nodiscard]] control_block<Engine>* get() const noexcept { return link_; }

  /// Tells this manager's handles from another's; never 0.
  [[nodiscard]] std::uint32_t owner() const noexcept { return link_->owner(); }

 private:
  control_block<Engine>* link_;
};

/// Owns a pin or a lease of an engine, and releases it at its end. Move-only.
///
/// @tparam Token   what was handed out; `engine.release(access_token)` returns it
template <class Engine, class Token>
class holder {
 public:
  holder() = default;
  /// @param take   gives the access_token; it is made in place, since a pin is on the hot path
  template <class Take>
  [[gnu::always_inline]] holder(control_block<Engine>* link, Take take) : link_{link}, held_{take()}
  {
    ++link_->holders;
  }
  holder(holder&& other) noexcept : link_{std::exchange(other.link_, nullptr)}, held_{other.held_} {}
  holder& operator=(holder&& other) noexcept
  {
    if (this != &other) {
      release();
      link_ = std::exchange(other.link_, nullptr);
      held_ = other.held_;
    }
    return *this;
  }
  [[gnu::always_inline]] ~holder()
  {
    if (link_ != nullptr) give_back(link_);
  }

  /// Releases the pin or lease early; a second call does nothing. Never throws.
  void release() noexcept
  {
    if (link_ != nullptr) give_back(std::exchange(link_, nullptr));
  }

  [[nodiscard]] bool is_live() const noexcept { return link_ != nullptr && link_->engine != nullptr; }

 protected:
  /// @throws usage_error   released, moved from, or its manager is gone
  [[nodiscard]] const Token& held() const
  {
    if (!is_live()) [[unlikely]]
      refuse();
    return held_;
  }

  [[nodiscard]] control_block<Engine>* link() const noexcept { return link_; }

 private:
  [[gnu::always_inline]] void give_back(control_block<Engine>* link) noexcept
  {
    if (link->engine != nullptr) [[likely]] {
      --link->holders;
      link->engine->release(held_);
    } else if (--link->holders == 0) {
      delete link;
    }
  }
  [[noreturn, gnu::noinline, gnu::cold]] void refuse() const
  {
    if (link_ == nullptr)
      throw usage_error{"a pin or lease was used after it was released or moved from (acquire again)"};
    throw usage_error{"a pin or lease outlived its manager: its bytes are gone (end all pins before the manager)"};
  }

  control_block<Engine>* link_ = nullptr;
  Token held_{};
};

/// One step of a loop: recorded the first time, followed afterwards.
///
/// An iteration ends with its scope, or by `end()`, which may throw. If an exception ends it, its record stays as it
/// was. An iteration of several micro-batches names each of them by `pass`. If one is missing, `end()` throws; after
/// the end of a scope, the next iteration or optimizer step throws. The record is unchanged in this case too.
/// Move-only: an iteration that was moved from is over.
/// @code
/// auto it = m.iteration("train", 2);
/// for (std::uint32_t batch = 0; batch < 2; ++batch) {
///   it.pass(pass::forward, batch);
///   // ... forward; it.pass(pass::backward, batch); backward ...
/// }
/// optimizer::step(m, adam);
/// it.end();
/// @endcode
template <class Engine>
class iteration {
 public:
  /// @param real   false in a rehearsal, where nothing begins
  /// @pre there is room for so many micro-batches
  iteration(control_block<Engine>& link, std::uint32_t micro_batches, bool real) noexcept
      : link_{&link}, micro_batches_{micro_batches}, exceptions_{std::uncaught_exceptions()}, real_{real}
  {
    ++link.holders;
    named().begin(micro_batches);
  }
  iteration(iteration&& other) noexcept
      : link_{std::exchange(other.link_, nullptr)},
        micro_batches_{other.micro_batches_},
        exceptions_{other.exceptions_},
        real_{other.real_},
        over_{other.over_}
  {
  }
  /// The iteration that was here ends first, as at the end of its scope.
  iteration& operator=(iteration&& other) noexcept
  {
    if (this == &other) return *this;
    leave();
    link_ = std::exchange(other.link_, nullptr);
    micro_batches_ = other.micro_batches_;
    exceptions_ = other.exceptions_;
    real_ = other.real_;
    over_ = other.over_;
    return *this;
  }
  ~iteration() { leave(); }

  /// From here on the trainer is in this pass of this micro-batch.
  /// @throws usage_error   there is no such micro-batch, or the iteration is over; and what a source of
  ///   watch_external_memory throws
  void pass(chunkmem::pass during, std::uint32_t micro_batch = 0)
  {
    expect_open();
    if (micro_batch >= micro_batches_)
      throw usage_error{error_text{} << "chunkmem: micro-batch " << micro_batch
                                     << " of an iteration that was begun with " << micro_batches_
                                     << " micro-batches (they count from 0)"};
    named().name(micro_batch, during);
    if (!real_) return;
    link_->engine->schedule().enter_pass(during, static_cast<std::uint16_t>(micro_batch));
    link_->engine->external_memory().sample();
  }

  /// @throws usage_error   it is over, or was moved from
  void expect_open() const { expects(is_open(), "a pass was named after its iteration had ended"); }
  /// The manager that made this tensor began this iteration.
  [[nodiscard]] bool is_of(tensor_handle wanted) const noexcept
  {
    return link_ != nullptr && wanted.owner == link_->owner();
  }

  /// Ends it now. @throws std::bad_alloc   no room for a changed record: the one before it stays, if there is one
  /// @throws usage_error   it was begun with more micro-batches than were named: it has ended
  void end()
  {
    if (finish(true)) named().expect_complete();
  }

 private:
  [[nodiscard]] auto& named() const noexcept { return link_->engine->gradients().micro_batches(); }
  [[nodiscard]] bool is_open() const noexcept { return link_ != nullptr && !over_ && link_->engine != nullptr; }
  void leave() noexcept
  {
    if (link_ == nullptr) return;
    try {
      const bool complete = std::uncaught_exceptions() <= exceptions_;
      if (finish(complete) && complete && !named().is_complete()) named().keep();
    } catch (...) {  // no room for a changed record: the one before it stays, if there is one
    }
    if (--link_->holders == 0 && link_->engine == nullptr) delete link_;
    link_ = nullptr;
  }
  /// @return   it had not ended before
  bool finish(bool complete)
  {
    if (!is_open()) return false;
    over_ = true;
    named().end();
    if (!real_) return true;
    link_->engine->external_memory().end_iteration();
    link_->engine->schedule().end(complete && named().is_complete());
    return true;
  }

  control_block<Engine>* link_;
  std::uint32_t micro_batches_;
  int exceptions_;
  bool real_;
  bool over_ = false;
};

}  // namespace chunkmem::inline v0
