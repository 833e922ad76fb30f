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

/// What a writer of generations was told, on its way to the thread that does it. Holds a bounded number of bytes.
class save_queue {
 public:
  enum class kind : std::uint8_t { begin_file, bytes, end_file, commit };
  struct order {
    kind what;
    std::vector<std::byte> content;
    std::uint64_t header = 0;
    manifest rest;
  };

  explicit save_queue(std::uint64_t bound) : bound_{bound} {}

  // For the thread that saves; each throws what the other one met.

  void begin_file(std::uint64_t header) { push({kind::begin_file, {}, header, {}}); }
  void write(std::span<const std::byte> content)
  {
    const std::size_t piece = static_cast<std::size_t>(std::clamp<std::uint64_t>(bound_ / 4, 1, std::uint64_t{4} << 20));
    for (; !content.empty(); content = content.subspan(std::min(piece, content.size()))) {
      const auto part = content.first(std::min(piece, content.size()));
      push({kind::bytes, {part.begin(), part.end()}, 0, {}});
    }
  }
  void end_file() { push({kind::end_file, {}, 0, {}}); }
  void commit(manifest rest) { push({kind::commit, {}, 0, std::move(rest)}); }
  /// No order follows.
  void close() noexcept
  {
    const std::lock_guard guard{mutex_};
    closed_ = true;
    changed_.notify_all();
  }

  // For the thread that writes.

  /// @return   false when there is nothing more to do
  bool take(order& next)
  {
    std::unique_lock guard{mutex_};
    changed_.wait(guard, [this] { return !orders_.empty() || closed_; });
    if (orders_.empty()) return false;
    next = std::move(orders_.front());
    orders_.pop_front();
    return true;
  }
  /// The bytes of an order that was taken are gone.
  void written(std::size_t size) noexcept
  {
    const std::lock_guard guard{mutex_};
    held_ -= size;
    changed_.notify_all();
  }
  void fail(std::exception_ptr why) noexcept
  {
    const std::lock_guard guard{mutex_};
    failed_ = std::move(why);
    orders_.clear();
    changed_.notify_all();
  }
  [[nodiscard]] std::exception_ptr failure() const
  {
    const std::lock_guard guard{mutex_};
    return failed_;
  }
  /// The most bytes that were held at once.
  [[nodiscard]] std::uint64_t most_held() const
  {
    const std::lock_guard guard{mutex_};
    return most_held_;
  }

 private:
  void push(order next)
  {
    std::unique_lock guard{mutex_};
    changed_.wait(guard, [&] { return failed_ != nullptr || held_ == 0 || held_ + next.content.size() <= bound_; });
    if (failed_ != nullptr) std::rethrow_exception(failed_);
    held_ += next.content.size();
    most_held_ = std::max(most_held_, held_);
    orders_.push_back(std::move(next));
    changed_.notify_all();
  }

  const std::uint64_t bound_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<order> orders_;
  std::exception_ptr failed_;
  std::uint64_t held_ = 0;
  std::uint64_t most_held_ = 0;
  bool closed_ = false;
};

}  // namespace detail

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
