// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace chunkmem::inline v0 {
namespace backend {

/// A callable without arguments, kept inline: queueing it never touches the heap.
///
///     inline_task task{[=] { std::memset(to, 0, count); }};
///     task();
///
/// The callable must not throw: it stands for a kernel, and a kernel has nobody to throw to; one that does ends the
/// program. Cost: one indirect call to run, one to move.
///
/// @threads   moves between threads like any value; never shared
class inline_task {
 public:
  static constexpr std::size_t room = 128;

  inline_task() = default;

  template <class Callable>
    requires(!std::is_same_v<std::remove_cvref_t<Callable>, inline_task>)
  explicit inline_task(Callable&& work) noexcept(std::is_nothrow_constructible_v<std::decay_t<Callable>, Callable>)
  {
    using kept = std::decay_t<Callable>;
    static_assert(std::is_invocable_v<kept&>,
                  "chunkmem: a launched callable takes no arguments: capture what it needs");
    static_assert(sizeof(kept) <= room,
                  "chunkmem: a launched callable keeps more than 128 bytes: capture a pointer to its data instead");
    static_assert(alignof(kept) <= alignof(std::max_align_t),
                  "chunkmem: a launched callable is over-aligned: capture a pointer to its data instead");
    static_assert(std::is_nothrow_move_constructible_v<kept>,
                  "chunkmem: a launched callable may throw when moved: capture by pointer, or make its move noexcept");
    ::new (static_cast<void*>(storage_)) kept(std::forward<Callable>(work));
    actions_ = &actions_for<kept>;
  }

  inline_task(inline_task&& other) noexcept { take(other); }
  inline_task& operator=(inline_task&& other) noexcept
  {
    if (this == &other) return *this;
    reset();
    take(other);
    return *this;
  }
  ~inline_task() { reset(); }

  [[nodiscard]] explicit operator bool() const noexcept { return actions_ != nullptr; }

  /// Runs the callable, if there is one.
  void operator()() noexcept
  {
    if (actions_ != nullptr) actions_->run(storage_);
  }

  /// Destroys the callable, so that what it captured is let go of now and not when the queue comes round.
  void reset() noexcept
  {
    if (actions_ != nullptr) std::exchange(actions_, nullptr)->destroy(storage_);
  }

 private:
  struct actions {
    void (*run)(void*) noexcept;
    void (*relocate)(void* to, void* from) noexcept;
    void (*destroy)(void*) noexcept;
  };

  template <class Kept>
  static constexpr actions actions_for = {
      [](void* place) noexcept { (*static_cast<Kept*>(place))(); },
      [](void* to, void* from) noexcept {
        ::new (to) Kept(std::move(*static_cast<Kept*>(from)));
        std::destroy_at(static_cast<Kept*>(from));
      },
      [](void* place) noexcept { std::destroy_at(static_cast<Kept*>(place)); },
  };

  void take(inline_task& other) noexcept
  {
    actions_ = std::exchange(other.actions_, nullptr);
    if (actions_ != nullptr) actions_->relocate(storage_, other.storage_);
  }

  const actions* actions_ = nullptr;
  alignas(std::max_align_t) std::byte storage_[room];
};

/// What a queued operation does. A closed set on purpose: each worker loop and each test schedule handles all of it.
enum class operation_kind : std::uint8_t {
  marker,  ///< nothing but a place in the queue; an unused slot holds one
  copy,
  fill,
  wait,
  launch,
};

/// One thing an agent was given to do.
///
///     copies.enqueue(operation::copying(to, from, size));
///
/// Cost: 208 bytes in a queue; no heap.
struct operation {
  operation_kind kind = operation_kind::marker;
  std::byte value{};                ///< fill: what with
  std::byte* to = nullptr;          ///< copy, fill
  const std::byte* from = nullptr;  ///< copy
  bytes size;                       ///< copy, fill
  event point;                      ///< wait: for what
  std::uint8_t why = 0;             ///< wait: 1 + its cause, or 0 where nobody asks
  inline_task task;                 ///< launch

  [[nodiscard]] static operation copying(std::byte* to, const std::byte* from, bytes size) noexcept
  {
    return {.kind = operation_kind::copy, .to = to, .from = from, .size = size, .point = {}, .task = {}};
  }
  [[nodiscard]] static operation filling(std::byte* to, std::byte value, bytes size) noexcept
  {
    return {.kind = operation_kind::fill, .value = value, .to = to, .size = size, .point = {}, .task = {}};
  }
  [[nodiscard]] static operation waiting(event point, std::uint8_t why = 0) noexcept
  {
    return {.kind = operation_kind::wait, .size = {}, .point = point, .why = why, .task = {}};
  }
  template <class Callable>
  [[nodiscard]] static operation launching(Callable&& work)
  {
    return {.kind = operation_kind::launch, .size = {}, .point = {}, .task = inline_task{std::forward<Callable>(work)}};
  }

  /// Moves the bytes or calls the callable. A wait is the queue's business and does nothing here.
  void run() noexcept
  {
    if (kind == operation_kind::launch) task();
    if (size == bytes{}) return;  // null with size 0 is allowed here, not by memmove
    if (kind == operation_kind::copy) std::memmove(to, from, size.count());
    if (kind == operation_kind::fill) std::memset(to, std::to_integer<int>(value), size.count());
  }
};

static_assert(std::is_nothrow_move_constructible_v<operation> && std::is_nothrow_move_assignable_v<operation>);

}  // namespace backend
}  // namespace chunkmem::inline v0
