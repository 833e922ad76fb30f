// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/micro_batch_ledger.hpp>

#include <cstdint>
#include <utility>

namespace chunkmem::inline v0 {

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

}  // namespace chunkmem::inline v0
