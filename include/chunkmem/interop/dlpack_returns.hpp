// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace chunkmem::inline v0 {
namespace interop {

/// One lent tensor. It comes back when its consumer calls the deleter.
///
///     struct lent_pin final : lent_tensor { my_pin pin; };
///     dlpack_returns::address::drop(dlpack_returns::address{returns}, new lent_pin);  // in the deleter
class lent_tensor {
 public:
  lent_tensor() = default;
  lent_tensor(const lent_tensor&) = delete;
  lent_tensor& operator=(const lent_tensor&) = delete;
  virtual ~lent_tensor() = default;  ///< ends the pin

 private:
  friend class dlpack_returns;
  lent_tensor* next_ = nullptr;
};

/// A mailbox for lent tensors. They wait in it, after their consumers are done, until the manager's own caller ends
/// their pins.
///
/// A framework may call a deleter on any of its threads, at any time, and a manager has one caller at a time. With a
/// mailbox the deleter only drops the tensor in, and `collect` ends the pins. Without a mailbox the deleter ends the
/// pin itself, and has to be called where the manager may be called. The mailbox may go before the tensors are back.
/// Such tensors end on the thread that gives the last of them back. Cost: a deleter makes one exchange and waits for
/// nobody; nothing is allocated.
///
/// Use:
///
///     interop::dlpack_returns returns;
///     auto* lent = interop::to_dlpack(std::move(pin), shape, {.returns = &returns});
///     ...                    // the framework calls the deleter on any thread
///     returns.collect();     // once a step, on the manager's caller
///
/// @threads   drop: any; all others: the manager's caller
class dlpack_returns {
  struct box;

 public:
  dlpack_returns() : box_{std::make_shared<box>()} {}

  /// Ends the pins of all tensors that are back. @return   how many
  std::size_t collect() noexcept { return box_->empty(); }

  /// A share in the mailbox, for a tensor that is lent.
  class address {
   public:
    address() = default;
    explicit address(const dlpack_returns& to) noexcept : box_{to.box_} {}
    [[nodiscard]] bool is_known() const noexcept { return box_ != nullptr; }
    /// Takes the tensor. @pre   is_known
    static void drop(address to, lent_tensor* back) noexcept { to.box_->add(back); }

   private:
    friend class dlpack_returns;
    std::shared_ptr<box> box_;
  };

 private:
  /// A stack without locks. Only one thread takes from it, and takes all at once, so an address that comes again does
  /// no harm.
  struct box {
    box() = default;
    box(const box&) = delete;
    box& operator=(const box&) = delete;
    ~box() { empty(); }

    void add(lent_tensor* back) noexcept
    {
      back->next_ = first.load(std::memory_order_relaxed);
      while (!first.compare_exchange_weak(back->next_, back, std::memory_order_release, std::memory_order_relaxed)) {
      }
    }
    std::size_t empty() noexcept
    {
      std::size_t ended = 0;
      for (lent_tensor* at = first.exchange(nullptr, std::memory_order_acquire); at != nullptr; ++ended)
        delete std::exchange(at, at->next_);
      return ended;
    }

    std::atomic<lent_tensor*> first = nullptr;
  };

  std::shared_ptr<box> box_;
};

}  // namespace interop
}  // namespace chunkmem::inline v0
