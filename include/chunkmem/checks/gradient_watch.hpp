// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checks/byte_poison.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace checks {

/// Whether each gradient of a step was asked how it is to be written, and was written whole.
///
///     gradient_watch watch;
///     watch.reset(1);
///     watch.opened(0, content, dtype::float32, true, true);
///     watch.asked(0);                                                            // its beta was read
///     const unwritten_count left = watch.unwritten(0, content, dtype::float32);  // all elements: none was written
///
/// Its first opening of a step marks every element as unwritten; one that still has the mark later was not written.
/// Numbers and bytes only: it knows no manager.
class gradient_watch {
 public:
  void reset(std::size_t parameters)
  {
    asked_.assign(parameters, 1);
    has_marks_.assign(parameters, false);
  }

  /// A pin on the gradient was given out. @param first   of this step: its elements are undefined
  void opened(std::uint32_t parameter, std::span<std::byte> content, dtype type, bool first, bool has_beta) noexcept
  {
    asked_[parameter] = has_beta ? 0 : 1;
    if (!first) return;
    has_marks_[parameter] = true;
    fill_as_unwritten(content, type);
  }
  /// Its beta was read. @threads   any: several may write one gradient
  void asked(std::uint32_t parameter) noexcept
  {
    std::atomic_ref<std::uint8_t> known{asked_[parameter]};
    if (known.load(std::memory_order_relaxed) == 0) known.store(1, std::memory_order_relaxed);
  }
  [[nodiscard]] bool was_asked(std::uint32_t parameter) const noexcept { return asked_[parameter] != 0; }

  /// @return   elements that were not written since its first opening of this step
  [[nodiscard]] unwritten_count unwritten(std::uint32_t parameter, std::span<const std::byte> content,
                                          dtype type) noexcept
  {
    if (!has_marks_[parameter]) return {};
    const unwritten_count found = count_unwritten(content, type);
    has_marks_[parameter] = found.elements > 0;
    return found;
  }
  /// Nothing of it is true any more: it was dropped, used up or loaded.
  void forget(std::uint32_t parameter) noexcept
  {
    asked_[parameter] = 1;
    has_marks_[parameter] = false;
  }

  /// This tensor may be without a gradient in a step. @throws std::bad_alloc
  void allow_none(std::uint32_t tensor)
  {
    if (!may_lack(tensor)) allowed_.push_back(tensor);
  }
  [[nodiscard]] bool may_lack(std::uint32_t tensor) const noexcept
  {
    return std::find(allowed_.begin(), allowed_.end(), tensor) != allowed_.end();
  }

 private:
  std::vector<std::uint8_t> asked_;  // by parameter: since its last opening
  std::vector<bool> has_marks_;      // by parameter: elements may have the mark
  std::vector<std::uint32_t> allowed_;
};

}  // namespace checks

}  // namespace chunkmem::inline v0
