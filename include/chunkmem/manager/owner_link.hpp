// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>

namespace chunkmem::inline v0 {

/// Which micro-batches of an iteration its trainer has named by `pass`. One that was forgotten would give gradients of
/// a part of the batch, and nobody would see it. An iteration of one micro-batch need not name it.
///
///     micro_batch_ledger named;
///     named.reserve(2);
///     named.begin(2);
///     named.name(0);
///     named.expect_complete();  // throws: the second was not named
///
/// Cost: one bit for each micro-batch of the longest iteration so far; allocates where one is longer than all before.
class micro_batch_ledger {
 public:
  /// Room for an iteration. Guarantee: strong; one that runs goes on.
  void reserve(std::uint32_t micro_batches) { named_.reserve((micro_batches + bits - 1) / bits); }
  /// @pre reserve
  void begin(std::uint32_t micro_batches) noexcept
  {
    named_.assign((micro_batches + bits - 1) / bits, 0);
    expected_ = micro_batches;
    count_ = 0;
    current_ = none;
    runs_ = true;
    ++iterations_;
  }
  /// The iteration is over.
  void end() noexcept { runs_ = false; }
  /// @pre it is one of those that the iteration was begun with
  void name(std::uint32_t micro_batch) noexcept
  {
    std::uint64_t& word = named_[micro_batch / bits];
    const std::uint64_t bit = std::uint64_t{1} << micro_batch % bits;
    if ((word & bit) == 0) ++count_;
    word |= bit;
    current_ = micro_batch;
  }
  /// The one that was named last; `none` where no pass was named yet, as in an iteration of one micro-batch.
  static constexpr std::uint32_t none = UINT32_MAX;
  [[nodiscard]] std::uint32_t current() const noexcept { return current_; }
  [[nodiscard]] std::uint32_t expected() const noexcept { return expected_; }  ///< micro-batches
  [[nodiscard]] bool is_complete() const noexcept { return expected_ == 1 || count_ == expected_; }
  /// An iteration runs that has not named all of them: gradients are of a part of the batch so far.
  [[nodiscard]] bool expects_more() const noexcept { return runs_ && !is_complete(); }
  /// A number for this micro-batch of this iteration, never 0: those of one iteration differ in the lower 16 bits.
  [[nodiscard]] std::uint64_t moment() const noexcept
  {
    return iterations_ << 16U | (current_ == none ? 1U : current_ + std::uint64_t{1});
  }

  /// The end of an iteration could not say that one was missing: `expect_told` will.
  void keep() noexcept { kept_ = {count_, expected_}; }
  /// @throws usage_error   the iteration was not complete
  void expect_complete() const
  {
    if (!is_complete()) refuse({count_, expected_});
  }
  /// Before an optimizer step. One before the first micro-batch is of the iteration before, as where weights have
  /// versions. @param opened   the moment of the last gradient that was opened
  /// @throws usage_error   the iteration that runs has gradients of some of its micro-batches, and has not named all
  void expect_no_more(std::uint64_t opened) const
  {
    if (!expects_more() || count_ == 0 || opened >> 16U != iterations_) [[likely]]
      return;
    throw usage_error{error_text{} << "chunkmem: an optimizer step after " << count_ << " of the " << expected_
                                   << " micro-batches of an iteration: its gradients are of a part of the batch (take "
                                      "the step behind the last one, name each by pass(), or begin the iteration with "
                                      "as many as there are)"};
  }
  /// Throws once what `keep` was called for. @throws usage_error   the last iteration was not complete
  void expect_told()
  {
    if (kept_.expected == 0) [[likely]]
      return;
    const short_iteration last = kept_;
    kept_ = {};
    refuse(last);
  }

 private:
  static constexpr std::uint32_t bits = 64;

  struct short_iteration {
    std::uint32_t named = 0;
    std::uint32_t expected = 0;
  };

  [[noreturn, gnu::noinline, gnu::cold]] static void refuse(const short_iteration& it)
  {
    throw usage_error{error_text{} << "chunkmem: an iteration of " << it.expected << " micro-batches ended after "
                                   << it.named
                                   << " of them: its gradients are of a part of the batch (name each by pass(), or "
                                      "begin it with as many as there are)"};
  }

  sequence<std::uint64_t> named_;
  std::uint32_t expected_ = 1;
  std::uint32_t count_ = 0;
  std::uint32_t current_ = none;
  bool runs_ = false;
  std::uint64_t iterations_ = 0;
  short_iteration kept_{};
};

/// Joins a manager to the pins, leases and iterations that it handed out. The last of them frees it.
///
///     if (link->engine == nullptr) throw usage_error{"the manager is gone"};
///
/// A pin that outlives its manager finds the link cut, and says so instead of reading freed memory. Not atomic: one
/// caller.
template <class Engine>
struct owner_link {
  Engine* engine = nullptr;            ///< null once the manager is gone
  std::uint64_t holders = 0;           ///< live pins and leases
  micro_batch_ledger micro_batches{};  ///< of the iteration that runs, or ran last

  /// Tells the handles of its manager from another's; never 0.
  [[nodiscard]] std::uint32_t owner() const noexcept
  {
    const auto address = reinterpret_cast<std::uintptr_t>(this);
    return static_cast<std::uint32_t>(address >> 3) | 1U;  // a link is at least 16 bytes from the next
  }
};

/// The manager's end of the link: cuts it when the manager ends, and frees it where nothing is held any more.
///
///     manager_link<Engine> link{engine};
///     const holder<Engine, access_token> held{link.get(), take};
template <class Engine>
class manager_link {
 public:
  /// @param engine   of the manager; outlives this   @throws std::bad_alloc
  explicit manager_link(Engine& engine) : link_{new owner_link<Engine>{&engine, 0}} {}
  manager_link(const manager_link&) = delete;
  ~manager_link()
  {
    link_->engine = nullptr;
    if (link_->holders == 0) delete link_;
  }

  [[nodiscard]] owner_link<Engine>& operator*() const noexcept { return *link_; }
  [[nodiscard]] owner_link<Engine>* operator->() const noexcept { return link_; }
  [[nodiscard]] owner_link<Engine>* get() const noexcept { return link_; }

  /// Tells this manager's handles from another's; never 0.
  [[nodiscard]] std::uint32_t owner() const noexcept { return link_->owner(); }

 private:
  owner_link<Engine>* link_;
};

/// A share in something that an engine handed out; given back when it ends. Move-only.
///
/// @tparam Token   what was handed out; `engine.release(access_token)` returns it
template <class Engine, class Token>
class holder {
 public:
  holder() = default;
  /// @param take   gives the access_token; it is made in place, since a pin is on the hot path
  template <class Take>
  [[gnu::always_inline]] holder(owner_link<Engine>* link, Take take) : link_{link}, held_{take()}
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

  /// Gives it back before its time; the second time does nothing. Never throws.
  void release() noexcept
  {
    if (link_ != nullptr) give_back(std::exchange(link_, nullptr));
  }

  [[nodiscard]] bool is_live() const noexcept { return link_ != nullptr && link_->engine != nullptr; }

 protected:
  /// @throws usage_error   it was released or moved from, or its manager is gone
  [[nodiscard]] const Token& held() const
  {
    if (!is_live()) [[unlikely]]
      refuse();
    return held_;
  }

  [[nodiscard]] owner_link<Engine>* link() const noexcept { return link_; }

 private:
  [[gnu::always_inline]] void give_back(owner_link<Engine>* link) noexcept
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

  owner_link<Engine>* link_ = nullptr;
  Token held_{};
};

/// One step of a loop: recorded the first time, followed afterwards.
///
/// An iteration ends with its scope, or by `end()`, which may throw. If an exception ends it, its record stays as it
/// was. An iteration of several micro-batches names each of them by `pass`. If one is missing, `end()` throws; after
/// the end of a scope, the next iteration or optimizer step does. The record stays as it was then, too.
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
  /// @pre the link has room for so many micro-batches
  iteration(owner_link<Engine>& link, std::uint32_t micro_batches, bool real) noexcept
      : link_{&link}, micro_batches_{micro_batches}, exceptions_{std::uncaught_exceptions()}, real_{real}
  {
    ++link.holders;
    link.micro_batches.begin(micro_batches);
  }
  iteration(const iteration&) = delete;
  iteration& operator=(const iteration&) = delete;
  ~iteration()
  {
    try {
      const bool complete = std::uncaught_exceptions() <= exceptions_;
      if (finish(complete) && complete && !link_->micro_batches.is_complete()) link_->micro_batches.keep();
    } catch (...) {  // no room for a changed record: the one before it stays, if there is one
    }
    if (--link_->holders == 0 && link_->engine == nullptr) delete link_;
  }

  /// From here on the trainer is in this pass of this micro-batch.
  /// @throws usage_error   there is no such micro-batch, or the iteration is over; and what a source of
  ///   watch_external_memory throws
  void pass(chunkmem::pass during, std::uint32_t micro_batch = 0)
  {
    expects(!over_ && link_->engine != nullptr, "a pass was named after its iteration had ended");
    if (micro_batch >= micro_batches_)
      throw usage_error{error_text{} << "chunkmem: micro-batch " << micro_batch
                                     << " of an iteration that was begun with " << micro_batches_
                                     << " micro-batches (they count from 0)"};
    link_->micro_batches.name(micro_batch);
    if (!real_) return;
    link_->engine->schedule().enter_pass(during, static_cast<std::uint16_t>(micro_batch));
    link_->engine->external_memory().sample();
  }

  /// It was begun by the manager that made this tensor.
  [[nodiscard]] bool is_of(tensor_handle wanted) const noexcept { return wanted.owner == link_->owner(); }

  /// Ends it now. @throws std::bad_alloc   no room for a changed record: the one before it stays, if there is one
  /// @throws usage_error   it was begun with more micro-batches than were named: it has ended
  void end()
  {
    if (finish(true)) link_->micro_batches.expect_complete();
  }

 private:
  /// @return   it had not ended before
  bool finish(bool complete)
  {
    if (over_ || link_->engine == nullptr) return false;
    over_ = true;
    link_->micro_batches.end();
    if (!real_) return true;
    link_->engine->external_memory().end_iteration();
    link_->engine->schedule().end(complete && link_->micro_batches.is_complete());
    return true;
  }

  owner_link<Engine>* link_;
  std::uint32_t micro_batches_;
  int exceptions_;
  bool real_;
  bool over_ = false;
};

}  // namespace chunkmem::inline v0
