// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/call.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/sharding/unit_plan.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/tensor/half.hpp>
#include <chunkmem/tensor/measure_words.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

/// The measure of all gradients, over ranks: on every rank the bits that one rank with all of them would have.
///
///     agreed_measure measure;
///     measure.begin(ranks, plan.tensors(), has_gradient);
///     measure.add(ranks, plan, 0, dtype::float32, share, on_this_thread);  // and each other unit
///     const double norm = std::sqrt(measure.total().squares);
///
/// Each rank measures the blocks that it owns; ranks exchange them unit by unit, and every one adds the blocks of each
/// tensor in order, then the tensors in order. Cost: one pass over what the rank owns, and 24 B from each rank to each
/// other for each block of `measure_block` elements: 0.3 % of gradients of 16 bits, on the calling threads. Memory: the
/// blocks of one unit, kept from step to step: for the same plan nothing is allocated again.
class agreed_measure {
 public:
  /// Forgets all. @param has_gradient   `has_gradient(tensor)`, the same on every rank   @param settings   of the step:
  /// so they
  /// @throws usage_error   on every rank: they are not; comm_error
  template <class Communicator, class HasGradient>
  void begin(Communicator& ranks, std::uint32_t tensors, HasGradient has_gradient, std::uint64_t settings = 0)
  {
    of_tensor_.assign(tensors, {});
    has_gradient_.resize(tensors);
    collective::fingerprint set;
    for (std::uint32_t index = 0; index < tensors; ++index) {
      has_gradient_[index] = has_gradient(index) ? 1 : 0;
      if (has_gradient_[index] != 0) set.add(index);
    }
    const std::uint64_t mine[] = {set.value(), settings};
    all_.resize(2 * std::size_t{ranks.ranks()});
    ranks.exchange(mine, all_);
    for (std::size_t index = 1; index < all_.size(); index += 2)
      expects(all_[index] == settings,
              "ranks take a step with other rates, clipping, loss scales or seeds, behind other numbers of updates, or "
              "gathered and added other "
              "chunks before it (give all of them the same options and calls, and load checkpoints of the same step)");
  }
  /// Behind `begin`, on every rank. @param name_of   `name_of(tensor)`, for the message
  /// @throws usage_error   on every rank: ranks have gradients of different tensors; comm_error   Cost: none, but where
  ///   they have
  template <class Communicator, class NameOf>
  void expect_same_gradients(Communicator& ranks, NameOf name_of)
  {
    for (std::size_t index = 2; index < 2 * std::size_t{ranks.ranks()}; index += 2)
      if (all_[index] != all_[0]) refuse_sets(ranks, name_of);
  }

  /// Takes in one unit. Every rank has to, in the same order.
  /// @param share   this rank's share of its gradients, where the calling thread finds it; null where there are none
  template <class Communicator, class Plan, executor Executor>
  void add(Communicator& ranks, const Plan& plan, std::uint32_t index, dtype type, const std::byte* share,
           Executor& workers)
  {
    const unit& of = plan.units()[index];
    const std::uint64_t begin = plan.share_begin(index, ranks.rank());
    mine_.assign((plan.share_end(index, ranks.rank()) - begin) / measure_block * words_of_measure, 0);
    plan.for_each_part(index, ranks.rank(), [&](const tensor_part& part) {
      if (share != nullptr && has_gradient_[part.tensor] != 0)
        measure_part(share + (part.begin - begin) * size_of(type), type, part.elements,
                     mine_.data() + (part.begin - begin) / measure_block * words_of_measure, workers);
    });
    all_.resize(mine_.size() * ranks.ranks());
    ranks.exchange(mine_, all_);
    const std::uint64_t blocks_of_share = mine_.size() / words_of_measure;
    const auto words_at = [&](std::uint64_t block) {  // of the first rank that owns it
      const std::uint64_t owner = plan.division().owner_of[block / blocks_of_share];
      return all_.data() + (owner * blocks_of_share + block % blocks_of_share) * words_of_measure;
    };
    const float_environment standard;
    for (const std::uint32_t tensor : of.tensors) {
      const std::uint64_t first = plan.place(tensor).first / measure_block;
      const std::uint64_t blocks = (plan.elements(tensor) + measure_block - 1) / measure_block;
      for (std::uint64_t block = first; block < first + blocks; ++block)
        of_tensor_[tensor].add(measure_in(words_at(block)));
    }
  }

  /// @pre every unit with a gradient was added
  [[nodiscard]] gradient_measure total() const noexcept
  {
    const float_environment standard;
    gradient_measure all;
    for (std::size_t index = 0; index < of_tensor_.size(); ++index)
      if (has_gradient_[index] != 0) all.add(of_tensor_[index]);
    return all;
  }
  /// Calls `visit(tensor, measure)` for each tensor with a gradient, in order. @pre as total
  template <class Visit>
  void for_each(Visit visit) const
  {
    for (std::uint32_t index = 0; index < of_tensor_.size(); ++index)
      if (has_gradient_[index] != 0) visit(index, of_tensor_[index]);
  }

 private:
  /// Ranks tell each other which tensors have a gradient, a bit for each.
  template <class Communicator, class NameOf>
  [[noreturn, gnu::cold]] void refuse_sets(Communicator& ranks, NameOf name_of) const
  {
    constexpr std::size_t bits = 64;
    std::vector<std::uint64_t> mine((has_gradient_.size() + bits - 1) / bits);
    for (std::size_t tensor = 0; tensor < has_gradient_.size(); ++tensor)
      mine[tensor / bits] |= std::uint64_t{has_gradient_[tensor]} << tensor % bits;
    std::vector<std::uint64_t> all(mine.size() * ranks.ranks());
    ranks.exchange(mine, all);
    const auto has = [&](std::uint32_t rank, std::size_t tensor) {
      return (all[rank * mine.size() + tensor / bits] >> tensor % bits & 1U) != 0;
    };
    std::uint32_t with = 0, without = 0;
    std::size_t first = has_gradient_.size(), count = 0;
    for (std::size_t tensor = has_gradient_.size(); tensor-- > 0;)
      for (std::uint32_t rank = 1; rank < ranks.ranks(); ++rank) {
        if (has(rank, tensor) == has(0, tensor)) continue;
        with = has(0, tensor) ? 0 : rank;
        without = has(0, tensor) ? rank : 0;
        first = tensor;
        ++count;
        break;
      }
    throw usage_error{error_text{} << "chunkmem: ranks have gradients of different weights in one step: rank " << with
                                   << " has one of '" << name_of(static_cast<std::uint32_t>(first)) << "', and rank "
                                   << without << " has none; so it is with " << count
                                   << (count == 1 ? " weight" : " weights")
                                   << " (make gradients of the same weights on every rank: gradient_zero(weight) where "
                                      "a rank has nothing to add)"};
  }

  template <class Executor>
  static void measure_part(const std::byte* gradient, dtype type, std::uint64_t elements, std::uint64_t* words,
                           Executor& workers)
  {
    if (type == dtype::bfloat16)
      return measure_elements(reinterpret_cast<const bf16*>(gradient), elements, words, workers);
    if (type == dtype::float16)
      return measure_elements(reinterpret_cast<const fp16*>(gradient), elements, words, workers);
    measure_elements(reinterpret_cast<const float*>(gradient), elements, words, workers);
  }
  template <class Element, class Executor>
  static void measure_elements(const Element* values, std::uint64_t elements, std::uint64_t* words, Executor& workers)
  {
    constexpr std::uint64_t blocks_of_a_piece = 8;
    const std::uint64_t blocks = (elements + measure_block - 1) / measure_block;
    workers.run(static_cast<unsigned>((blocks + blocks_of_a_piece - 1) / blocks_of_a_piece), [&](unsigned piece) {
      const float_environment standard;
      const std::uint64_t end = std::min(blocks, (piece + std::uint64_t{1}) * blocks_of_a_piece);
      for (std::uint64_t index = piece * blocks_of_a_piece; index < end; ++index) {
        const std::uint64_t count = std::min<std::uint64_t>(measure_block, elements - index * measure_block);
        std::ranges::copy(
            words_of(measure_one_block(std::span{values + index * measure_block, static_cast<std::size_t>(count)})),
            words + index * words_of_measure);
      }
    });
  }

  std::vector<gradient_measure> of_tensor_;
  std::vector<std::uint8_t> has_gradient_;
  std::vector<std::uint64_t> mine_;
  std::vector<std::uint64_t> all_;
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
