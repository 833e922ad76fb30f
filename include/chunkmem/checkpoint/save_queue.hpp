// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/manifest.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

namespace detail {

/// The orders for a writer of generations, on their way to the thread that carries them out. The queue has copies of a
/// bounded number of bytes. Lent bytes stay in their place until they are written, or taken back.
class save_queue {
 public:
  enum class kind : std::uint8_t { begin_file, bytes, end_file, commit };
  struct order {
    kind what;
    std::vector<std::byte> content;
    std::span<const std::byte> borrowed;  ///< instead of content
    std::uint64_t header = 0;
    manifest rest;
    std::uint64_t arrivals = 0;  ///< calls of `arrive` that have to come before the borrowed bytes are there

    [[nodiscard]] std::span<const std::byte> bytes() const noexcept
    {
      return borrowed.empty() ? std::span<const std::byte>{content} : borrowed;
    }
  };

  explicit save_queue(std::uint64_t bound) : bound_{bound} {}

  // For the thread that saves. Each call throws the error of the other thread.

  void begin_file(std::uint64_t header) { push({kind::begin_file, {}, {}, header, {}, 0}); }
  /// A copy of so many bytes would not wait.
  [[nodiscard]] bool has_room(std::uint64_t size) const
  {
    const std::lock_guard guard{mutex_};
    return held_ + size <= bound_;
  }
  void write(std::span<const std::byte> content)
  {
    for_each_piece(content, 1, [&](std::span<const std::byte> part) {
      push({kind::bytes, {part.begin(), part.end()}, {}, 0, {}, 0});
    });
  }
  /// As write, but nothing is copied: the bytes stay as they are until `take_back` returns. @param arrivals   the bytes
  /// are there after so many calls of `arrive`
  void lend(std::span<const std::byte> content, std::uint64_t arrivals)
  {
    for_each_piece(content, least_lent, [&](std::span<const std::byte> part) {
      push({kind::bytes, {}, part, 0, {}, arrivals});
    });
  }
  /// Lent bytes are there. @threads any
  void arrive() noexcept
  {
    const std::lock_guard guard{mutex_};
    ++arrived_;
    changed_.notify_all();
  }
  void end_file() { push({kind::end_file, {}, {}, 0, {}, 0}); }
  void commit(manifest rest) { push({kind::commit, {}, {}, 0, std::move(rest), 0}); }
  /// No order follows.
  void close() noexcept
  {
    const std::lock_guard guard{mutex_};
    closed_ = true;
    changed_.notify_all();
  }
  /// Drops orders that were not taken yet, for a save whose end nobody wants.
  void cancel() noexcept
  {
    const std::lock_guard guard{mutex_};
    drop_orders();
    closed_ = true;
    changed_.notify_all();
  }
  /// Lent bytes do not arrive: nothing more is written.
  void refuse(std::exception_ptr why) noexcept
  {
    const std::lock_guard guard{mutex_};
    if (failed_ == nullptr) failed_ = std::move(why);
    drop_orders();
    changed_.notify_all();
  }
  /// Waits until so many bytes more are written or read, or the thread that writes does nothing any more. @return   the
  /// latter
  bool wait_for_more(std::uint64_t bytes)
  {
    std::unique_lock guard{mutex_};
    const std::uint64_t before = done_;
    changed_.wait(guard, [&] { return over_ || done_ - before >= bytes; });
    return over_;
  }
  /// Takes all lent bytes back. The bytes that are written last are copied, as far as there is room. This waits only
  /// until the others are written. Never throws: where there is no memory for copies, it waits for all.
  void take_back() noexcept
  {
    for (std::uint64_t item = lent_items(); item-- > 0;) take_back(item);
  }
  /// The same for what was lent with so many `arrivals`. A copy that finds no room waits for room, or until the bytes
  /// are written: whichever comes first.
  void take_back(std::uint64_t arrivals) noexcept
  {
    for (bool copied = true;;) {
      std::unique_lock guard{mutex_};
      if (arrivals >= lent_.size()) return;
      lent_bytes& item = lent_[arrivals];
      order* next = nullptr;
      const auto may_go_on = [&] {
        next = copied ? last_of(item) : nullptr;
        return item.left == 0 || (next != nullptr && held_ + next->borrowed.size() <= bound_);
      };
      changed_.wait(guard, may_go_on);
      if (item.left == 0) return;
      copied = copies(*next);
    }
  }

  // For the thread that writes.

  /// @return   false when there is nothing more to do
  bool take(order& next)
  {
    std::unique_lock guard{mutex_};
    changed_.wait(guard, [this] {
      return orders_.empty() ? closed_ || failed_ != nullptr : orders_.front().arrivals <= arrived_;
    });
    if (orders_.empty()) return false;
    next = std::move(orders_.front());
    orders_.pop_front();
    ++taken_;
    return true;
  }
  /// A taken order is done: its bytes are gone.
  void written(const order& it) noexcept
  {
    const std::lock_guard guard{mutex_};
    held_ -= it.content.size();
    give_back(it);
    done_ += it.bytes().size();
    changed_.notify_all();
  }
  /// So many bytes more are done, which belong to no order.
  void progress(std::uint64_t bytes) noexcept
  {
    const std::lock_guard guard{mutex_};
    done_ += bytes;
    changed_.notify_all();
  }
  /// The thread that writes does nothing any more.
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
    for (lent_bytes& item : lent_) item.left = 0;
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
  /// The orders with one number of arrivals, which come one after the other.
  struct lent_bytes {
    std::uint64_t left = 0;  ///< in their place [B]
    std::uint64_t end = 0;   ///< behind the last order that may not be copied yet, counted from the first order of all
  };

  template <class Use>
  void for_each_piece(std::span<const std::byte> content, std::uint64_t least, Use use)
  {
    const std::size_t piece =
        static_cast<std::size_t>(std::clamp<std::uint64_t>(bound_ / 4, least, std::uint64_t{4} << 20));
    for (; !content.empty(); content = content.subspan(std::min(piece, content.size())))
      use(content.first(std::min(piece, content.size())));
  }
  void push(order next)
  {
    std::unique_lock guard{mutex_};
    changed_.wait(guard, [&] { return failed_ != nullptr || held_ == 0 || held_ + next.content.size() <= bound_; });
    if (failed_ != nullptr) std::rethrow_exception(failed_);
    held_ += next.content.size();
    most_held_ = std::max(most_held_, held_);
    if (!next.borrowed.empty()) {
      if (next.arrivals >= lent_.size()) lent_.resize(next.arrivals + 1);
      lent_bytes& item = lent_[next.arrivals];
      item.left += next.borrowed.size();
      item.end = taken_ + orders_.size() + 1;
    }
    orders_.push_back(std::move(next));
    changed_.notify_all();
  }
  /// Under the lock, as the next.
  void drop_orders() noexcept
  {
    for (const order& it : orders_) held_ -= it.content.size(), give_back(it);
    taken_ += orders_.size();
    orders_.clear();
  }
  void give_back(const order& it) noexcept
  {
    if (it.borrowed.empty()) return;
    std::uint64_t& left = lent_[it.arrivals].left;
    left -= std::min<std::uint64_t>(left, it.borrowed.size());  // none is left of a save that failed
  }
  /// The last order of these that waits for the thread that writes and was not copied. Null: there is none.
  [[nodiscard]] order* last_of(lent_bytes& item) noexcept
  {
    while (item.end > taken_) {
      order& it = orders_[static_cast<std::size_t>(item.end - taken_ - 1)];
      if (!it.borrowed.empty()) return &it;
      --item.end;
      if (item.left == 0) break;
    }
    return nullptr;
  }
  [[nodiscard]] std::uint64_t lent_items() const noexcept
  {
    const std::lock_guard guard{mutex_};
    return lent_.size();
  }
  /// @return   there was memory for it
  bool copies(order& it) noexcept
  {
    try {
      it.content.assign(it.borrowed.begin(), it.borrowed.end());
    } catch (...) {
      return false;
    }
    give_back(it);
    held_ += it.content.size();
    it.borrowed = {};
    most_held_ = std::max(most_held_, held_);
    return true;
  }

  /// lent bytes are not copied: the pieces are as many as make a copy possible
  static constexpr std::uint64_t least_lent = 4096;

  const std::uint64_t bound_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<order> orders_;
  std::exception_ptr failed_;
  std::uint64_t held_ = 0;
  std::uint64_t most_held_ = 0;
  std::vector<lent_bytes> lent_;  // by arrivals
  std::uint64_t taken_ = 0;       // orders
  std::uint64_t done_ = 0;
  std::uint64_t arrived_ = 0;
  bool closed_ = false;
  bool over_ = false;
};

}  // namespace detail

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
