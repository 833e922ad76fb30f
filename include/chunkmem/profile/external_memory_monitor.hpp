// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/containers.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

/// Watches the bytes of a device that others hold: a framework's allocator, libraries, the context.
///
/// Leases are known exactly and need no watching. Bytes of others are outside of the arena, so a function of yours has
/// to count them. The manager calls this source when an iteration begins and at each pass, and keeps the highest result
/// of each iteration. Good for choosing the capacity of the next run, and for noticing growth before the memory runs
/// out. Source: the non-model data of PatrickStar (Fang et al. 2021, arXiv 2108.05818). Cost: that of the source;
/// nothing without a source. 0.5 KiB.
///
/// Use:
///
///     auto source = [] { return bytes_that_the_framework_holds(); };
///     m.watch_external_memory(source);               // the manager has the monitor, and samples it
///     ... m.external_memory().percentile(0.5);       // the median of the last iterations
class external_memory_monitor {
 public:
  static constexpr std::size_t remembered = 64;  ///< iterations

  /// From now on `source()` returns the bytes that others hold. @param source   outlives this object
  template <class Source>
  void watch(Source& source) noexcept
  {
    context_ = &source;
    ask_ = [](const void* context) { return (*const_cast<Source*>(static_cast<const Source*>(context)))(); };
  }

  /// Calls the source now. @throws the errors of the source
  void sample()
  {
    if (ask_ != nullptr) now_ = std::max(now_, ask_(context_));
  }
  /// Ends an iteration: the samples since the last end count as one.
  void end_iteration() noexcept
  {
    if (ask_ == nullptr) return;
    last_ = now_;
    highest_ = std::max(highest_, now_);
    seen_[iterations_++ % remembered] = now_;
    now_ = bytes{};
  }

  [[nodiscard]] std::uint64_t iterations() const noexcept { return iterations_; }
  /// The highest sample of all iterations, and of the last one.
  [[nodiscard]] bytes highest() const noexcept { return highest_; }
  [[nodiscard]] bytes last() const noexcept { return last_; }

  /// A percentile of the highest samples of the last iterations: 0.5 is the median, 1 the highest.
  [[nodiscard]] bytes percentile(double share) const noexcept
  {
    const std::size_t count = std::min<std::size_t>(iterations_, remembered);
    if (count == 0) return bytes{};
    std::array<bytes, remembered> sorted = seen_;
    sort_records(std::span{sorted.data(), count}, [](bytes a, bytes b) { return a < b; });
    const auto rank = static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(count));
    return sorted[rank == 0 ? 0 : rank - 1];
  }

  /// The last iteration was above the median by more than this part of the median.
  [[nodiscard]] bool has_drifted(double tolerance = 0.1) const noexcept
  {
    return static_cast<double>(last_.count()) > static_cast<double>(percentile(0.5).count()) * (1 + tolerance);
  }

 private:
  bytes (*ask_)(const void*) = nullptr;
  const void* context_ = nullptr;
  bytes now_;
  bytes last_;
  bytes highest_;
  std::uint64_t iterations_ = 0;
  std::array<bytes, remembered> seen_{};  // a ring
};

}  // namespace chunkmem::inline v0
