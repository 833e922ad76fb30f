// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/sequence.hpp>

#include <cstddef>
#include <cstdint>

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

}  // namespace chunkmem::inline v0
