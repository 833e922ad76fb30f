// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/manifest.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

namespace detail {

/// The orders for a writer of generations, on their way to the thread that carries them out. The queue has copies of a
/// bounded number of bytes. Lent bytes stay in their place until they are written, or taken back.
///
/// The disk pauses while updates run: between `begin_update` and `end_update`, the thread that writes takes no copies,
/// so that the updates have the host's memory for themselves. It pauses only
///
/// - before a copy. Lent bytes are still written: a copy of them would cost more memory bandwidth;
/// - where no update can wait for the disk: the buffer has room for all bytes that are still lent or promised;
/// - for at most `most_paused` of the time since the save began. So a save ends, whatever the updates do, and lasts at
///   most ten times as long as without pauses. A trainer that waits for the save updates nothing meanwhile.
class save_queue {
 public:
  using time = std::chrono::steady_clock::time_point;
  using clock = time (*)() noexcept;
  enum class kind : std::uint8_t { begin_file, bytes, end_file, commit };
  struct order {
    kind what;
    std::vector<std::byte> content{};
    std::span<const std::byte> borrowed{};  ///< instead of content
    std::uint64_t header = 0;
    manifest rest{};
    std::uint64_t item = 0;             ///< of the borrowed bytes
    std::uint64_t promised_offset = 0;  ///< of bytes that cannot be lent yet, in their item [B]
    std::size_t promised = 0;           ///< their number [B]
    bool is_copying = false;            ///< a thread is copying the borrowed bytes

    [[nodiscard]] std::span<const std::byte> bytes() const noexcept
    {
      return borrowed.empty() ? std::span<const std::byte>{content} : borrowed;
    }
  };

  /// @param now   the clock; tests have their own
  explicit save_queue(std::uint64_t bound, clock now = &std::chrono::steady_clock::now)
      : bound_{bound}, now_{now}, begun_{now()}
  {
    items_[0].has_arrived = true;
  }

  // For the thread that saves. Each call throws the error of the other thread.

  void begin_file(std::uint64_t header) { push({.what = kind::begin_file, .header = header}); }
  /// Whether a copy of this many bytes would not wait.
  [[nodiscard]] bool has_room(std::uint64_t size) const
  {
    const std::lock_guard guard{mutex_};
    return held_ + size <= bound_;
  }
  void write(std::span<const std::byte> content)
  {
    for_each_piece(content.size(), 1, [&](std::size_t begin, std::size_t size) {
      const auto part = content.subspan(begin, size);
      push({.what = kind::bytes, .content = {part.begin(), part.end()}});
    });
  }
  /// Adds an item: bytes that are lent or promised together. @return   its number; 0 is no item
  [[nodiscard]] std::uint64_t add_item()
  {
    const std::lock_guard guard{mutex_};
    items_.emplace_back();
    return items_.size() - 1;
  }
  /// As write, but nothing is copied: the caller does not change the bytes until `take_back` returns. They are written
  /// once their item has arrived. The orders of one item come one after the other.
  void lend(std::span<const std::byte> content, std::uint64_t item)
  {
    for_each_piece(content.size(), least_lent, [&](std::size_t begin, std::size_t size) {
      push({.what = kind::bytes, .borrowed = content.subspan(begin, size), .item = item});
    });
  }
  /// As lend, of bytes that `keep_promise` brings. Later orders wait for them. @param offset   in the item [B]
  void promise(std::uint64_t offset, std::uint64_t size, std::uint64_t item)
  {
    for_each_piece(size, least_lent, [&](std::size_t begin, std::size_t part) {
      push({.what = kind::bytes, .item = item, .promised_offset = offset + begin, .promised = part});
    });
  }
  /// Lends the bytes of this item from here on. Does nothing where its orders were dropped.
  /// @param content   all of the item   @pre it was promised
  void keep_promise(std::span<const std::byte> content, std::uint64_t item) noexcept
  {
    const std::lock_guard guard{mutex_};
    lent_item& it = items_[item];
    for (std::uint64_t number = std::max(it.begin, taken_); number < std::min(it.end, taken_ + orders_.size());
         ++number) {
      order& now = order_of(number);
      if (now.promised == 0) continue;
      now.borrowed = content.subspan(static_cast<std::size_t>(now.promised_offset), std::exchange(now.promised, 0));
      it.left += now.borrowed.size();
      --promises_;
    }
    changed_.notify_all();
  }
  /// Notes that the bytes of an item have arrived. @threads any
  void arrive(std::uint64_t item) noexcept
  {
    const std::lock_guard guard{mutex_};
    items_[item].has_arrived = true;
    changed_.notify_all();
  }
  void end_file() { push({.what = kind::end_file}); }
  void commit(manifest rest) { push({.what = kind::commit, .rest = std::move(rest)}); }
  /// Promises that no order follows.
  void close() noexcept
  {
    const std::lock_guard guard{mutex_};
    closed_ = true;
    changed_.notify_all();
  }
  /// Drops orders that were not taken yet, for a save that is given up.
  void cancel() noexcept
  {
    const std::lock_guard guard{mutex_};
    drop_orders();
    closed_ = true;
    changed_.notify_all();
  }
  /// Notes that lent bytes will not arrive: nothing more is written.
  void refuse(std::exception_ptr why) noexcept
  {
    const std::lock_guard guard{mutex_};
    if (failed_ == nullptr) failed_ = std::move(why);
    drop_orders();
    changed_.notify_all();
  }
  /// Waits until this many bytes more are written or read, or the writing thread has ended. @return   whether it has
  /// ended
  bool wait_for_more(std::uint64_t bytes)
  {
    std::unique_lock guard{mutex_};
    const std::uint64_t before = done_;
    changed_.wait(guard, [&] { return over_ || done_ - before >= bytes; });
    return over_;
  }
  /// Takes all lent bytes back. The bytes that are written last are copied, as far as there is room. This waits only
  /// until the others are written. Never throws: after a copy that finds no memory, this waits for all lent bytes.
  void take_back() noexcept
  {
    for (std::uint64_t item = items(); item-- > 0;) take_back(item);
  }
  /// The same for one item. A copy without room waits. The wait ends when there is room, or when another thread has
  /// written or copied the bytes. @pre no promise before it is open
  void take_back(std::uint64_t item) noexcept
  {
    std::unique_lock guard{mutex_};
    if (item >= items_.size()) return;
    for (;;) {
      std::uint64_t next = none;
      changed_.wait(guard, [&] {
        next = last_of(item);
        return items_[item].left == 0 || may_copy(next);
      });
      if (items_[item].left == 0) return;
      copy(next, guard);
    }
  }

  /// Notes that an update of the caller begins, which needs the host's memory bandwidth. Calls nest.
  void begin_update() noexcept
  {
    const std::lock_guard guard{mutex_};
    ++updates_;
  }
  /// Wakes no thread, since the next update often begins right away: the writing thread polls.
  void end_update() noexcept
  {
    const std::lock_guard guard{mutex_};
    --updates_;
  }

  // For threads that copy.

  /// Copies lent bytes before they are taken back, in the order of writing, while there is room. This begins when no
  /// order follows, so that copies take no room from bytes that the caller writes, and when no promise is open, so that
  /// copies take no memory bandwidth from late updates. The next pieces of the writing thread stay lent. Returns when
  /// nothing is left to copy.
  void copy_ahead() noexcept
  {
    std::unique_lock guard{mutex_};
    for (;;) {
      std::uint64_t next = none;
      changed_.wait(guard, [&] {
        const bool begins = closed_ && promises_ == 0;
        next = begins ? first_ahead() : none;
        return cannot_copy_ || (next == none ? begins || failed_ != nullptr : may_copy(next));
      });
      if (cannot_copy_ || next == none) return;
      copy(next, guard);
    }
  }

  // For the thread that writes.

  /// @return   false when there is nothing more to do
  bool take(order& next)
  {
    std::unique_lock guard{mutex_};
    const auto is_ready = [this] {
      if (orders_.empty()) return closed_ || failed_ != nullptr;
      return has_arrived(orders_.front()) && !orders_.front().is_copying;
    };
    changed_.wait(guard, is_ready);
    for (time now = now_(); may_pause(now); changed_.wait(guard, is_ready)) {
      (void)changed_.wait_for(guard, shortest_pause, [this] { return orders_.empty(); });
      const time before = std::exchange(now, now_());
      paused_ += now - before;
    }
    if (orders_.empty()) return false;
    next = std::move(orders_.front());
    orders_.pop_front();
    ++taken_;
    writing_ = {next.item, next.borrowed.size()};
    return true;
  }
  /// A taken order is done: its bytes are gone.
  void written(const order& it) noexcept
  {
    const std::lock_guard guard{mutex_};
    held_ -= it.content.size();
    lent_ -= writing_.size;
    give_back(std::exchange(writing_, {}));
    done_ += it.bytes().size();
    changed_.notify_all();
  }
  /// Counts bytes that belong to no order as done.
  void progress(std::uint64_t bytes) noexcept
  {
    const std::lock_guard guard{mutex_};
    done_ += bytes;
    changed_.notify_all();
  }
  /// Notes that the writing thread has ended.
  void end() noexcept
  {
    const std::lock_guard guard{mutex_};
    over_ = true;
    changed_.notify_all();
  }
  [[nodiscard]] bool is_over() const
  {
    const std::lock_guard guard{mutex_};
    return over_;
  }
  /// Keeps the failure of the thread that writes. That thread reads nothing any more.
  void fail(std::exception_ptr why) noexcept
  {
    const std::lock_guard guard{mutex_};
    if (failed_ == nullptr) failed_ = std::move(why);
    drop_orders();
    lent_ -= writing_.size;
    give_back(std::exchange(writing_, {}));
    changed_.notify_all();
  }
  [[nodiscard]] std::exception_ptr failure() const
  {
    const std::lock_guard guard{mutex_};
    return failed_;
  }
  /// The most bytes of copies that were held at once.
  [[nodiscard]] std::uint64_t most_held() const
  {
    const std::lock_guard guard{mutex_};
    return most_held_;
  }

 private:
  struct lent_item {
    std::uint64_t left = 0;   ///< in their place [B]
    std::uint64_t begin = 0;  ///< its first order, counted from the first order of all
    std::uint64_t end = 0;    ///< after the last order that `take_back` may copy, counted as `begin`
    bool has_arrived = false;
  };
  struct lent_part {
    std::uint64_t item = 0;
    std::uint64_t size = 0;
  };

  /// Calls `use(begin, size)` for each piece of `all` bytes.
  template <class Use>
  void for_each_piece(std::uint64_t all, std::uint64_t least, Use use)
  {
    const std::uint64_t piece = std::clamp<std::uint64_t>(bound_ / 4, least, std::uint64_t{4} << 20);
    for (std::uint64_t begin = 0; begin < all; begin += piece)
      use(static_cast<std::size_t>(begin), static_cast<std::size_t>(std::min(piece, all - begin)));
  }
  void push(order next)
  {
    std::unique_lock guard{mutex_};
    changed_.wait(guard, [&] { return failed_ != nullptr || held_ == 0 || held_ + next.content.size() <= bound_; });
    if (failed_ != nullptr) std::rethrow_exception(failed_);
    const std::uint64_t size = next.content.size();
    const lent_part part{next.item, next.borrowed.size()};
    const bool is_promise = next.promised > 0;
    const std::uint64_t wanted = part.size + next.promised;
    orders_.push_back(std::move(next));  // first: if this throws, the bytes are not counted
    held_ += size;
    lent_ += wanted;
    most_held_ = std::max(most_held_, held_);
    if (part.size > 0 || is_promise) {
      lent_item& it = items_[part.item];
      it.left += part.size;
      if (it.end == 0) it.begin = taken_ + orders_.size() - 1;
      it.end = taken_ + orders_.size();
    }
    promises_ += is_promise ? 1U : 0U;
    changed_.notify_all();
  }
  /// Under the lock, as the next function. The thread that copies an order gives its bytes back.
  void drop_orders() noexcept
  {
    for (const order& it : orders_) {
      if (it.is_copying) continue;
      held_ -= it.content.size();
      lent_ -= it.borrowed.size() + it.promised;
      give_back({it.item, it.borrowed.size()});
    }
    taken_ += orders_.size();
    orders_.clear();
    promises_ = 0;
  }
  void give_back(lent_part part) noexcept
  {
    if (part.size > 0) items_[part.item].left -= part.size;
  }
  [[nodiscard]] order& order_of(std::uint64_t number) noexcept
  {
    return orders_[static_cast<std::size_t>(number - taken_)];
  }
  /// Whether an order waits for the writing thread, and no thread copies it.
  [[nodiscard]] bool is_lent(std::uint64_t number) noexcept
  {
    return !order_of(number).borrowed.empty() && !order_of(number).is_copying;
  }
  [[nodiscard]] bool has_arrived(const order& it) const noexcept
  {
    return it.promised == 0 && items_[it.item].has_arrived;
  }
  /// The number of the last order of the item that is lent, or none.
  [[nodiscard]] std::uint64_t last_of(std::uint64_t item) noexcept
  {
    lent_item& it = items_[item];
    for (; it.left > 0 && it.end > taken_ && order_of(it.end - 1).item == item; --it.end)
      if (is_lent(it.end - 1)) return it.end - 1;
    return none;
  }
  /// The number of the first order that is lent and will not be written soon, or none.
  [[nodiscard]] std::uint64_t first_ahead() noexcept
  {
    for (ahead_ = std::max(ahead_, taken_ + written_soon); ahead_ < taken_ + orders_.size(); ++ahead_)
      if (is_lent(ahead_)) return ahead_;
    return none;
  }
  [[nodiscard]] bool may_copy(std::uint64_t number) noexcept
  {
    if (number == none || cannot_copy_) return false;
    const order& it = order_of(number);
    return has_arrived(it) && held_ + it.borrowed.size() <= bound_;
  }
  /// Whether an update runs that gains by a pause and cannot wait for the disk, and the save has paused little so far.
  [[nodiscard]] bool may_pause(time now) const noexcept
  {
    return updates_ > 0 && closed_ && !orders_.empty() && orders_.front().borrowed.empty() && !cannot_copy_ &&
           held_ + lent_ <= bound_ && paused_ < most_paused * (now - begun_);
  }
  [[nodiscard]] std::uint64_t items() const noexcept
  {
    const std::lock_guard guard{mutex_};
    return items_.size();
  }
  /// @pre may_copy. Other threads go on meanwhile: none takes an order that is being copied.
  void copy(std::uint64_t number, std::unique_lock<std::mutex>& guard) noexcept
  {
    order& it = order_of(number);
    const std::span<const std::byte> from = it.borrowed;
    const lent_part part{it.item, from.size()};
    it.is_copying = true;
    held_ += part.size;
    lent_ -= part.size;
    most_held_ = std::max(most_held_, held_);
    guard.unlock();
    std::vector<std::byte> made;
    try {
      made.assign(from.begin(), from.end());
    } catch (...) {
    }
    guard.lock();
    const bool is_made = !made.empty();
    const bool is_here = number >= taken_;  // and was not dropped
    if (!is_made) cannot_copy_ = true;
    if (is_made || !is_here)
      give_back(part);
    else
      lent_ += part.size;
    if (!is_made || !is_here) held_ -= part.size;
    if (is_here) {
      order& now = order_of(number);
      now.is_copying = false;
      if (is_made) now.content = std::move(made), now.borrowed = {};
    }
    changed_.notify_all();
  }

  static constexpr std::uint64_t none = UINT64_MAX;
  static constexpr std::uint64_t written_soon = 2;  ///< orders
  /// lent bytes are not copied: pieces are only as small as a copy needs them
  static constexpr std::uint64_t least_lent = 4096;

  static constexpr double most_paused = 0.9;                     ///< of the time since the save began
  static constexpr std::chrono::milliseconds shortest_pause{1};  ///< longer than an optimizer takes between updates

  const std::uint64_t bound_;
  const clock now_;
  const time begun_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<order> orders_;
  std::exception_ptr failed_;
  std::uint64_t held_ = 0;
  std::uint64_t most_held_ = 0;
  std::vector<lent_item> items_{1};  // the first is that of all other orders
  std::uint64_t lent_ = 0;           // in their place, or promised [B]
  std::uint64_t promises_ = 0;       // orders whose bytes cannot be lent yet
  std::uint64_t taken_ = 0;          // orders
  std::uint64_t ahead_ = 0;          // the order that copy_ahead looks at, counted as these
  lent_part writing_;                // of the order that was taken last
  bool cannot_copy_ = false;         // a copy found no memory
  std::uint64_t updates_ = 0;        // that run
  std::chrono::steady_clock::duration paused_{};
  std::uint64_t done_ = 0;
  bool closed_ = false;
  bool over_ = false;
};

}  // namespace detail

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
