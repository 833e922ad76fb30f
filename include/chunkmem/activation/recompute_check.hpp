// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/saved_tensor.hpp>
#include <chunkmem/checks/byte_poison.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/tensor/role.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// Finds blocks that do not compute the same bytes each time, blocks that overwrite their input, and blocks that change
/// when they run again what outlives the step: buffers, frozen weights and registered bytes.
///
/// A part of `checkpointed` under checks::full. Cost: for each forward run, its input is read twice more, and its
/// result once; for each run again, all buffers, frozen weights and registered bytes are read twice.
///
///     check.begin(blocks);
///     check.input_before(m, before, is_again);
///     ... a forward run ...
///     check.ran(m, {network, block_name, block}, own, before);
template <class Manager>
class recompute_check {
 public:
  /// A block, for messages.
  struct place {
    const std::string& network;
    const std::string& name;
    std::uint32_t block;
  };

  void begin(std::size_t blocks)
  {
    first_.assign(blocks, 0);
    has_run_.assign(blocks, 0);
  }
  /// @param before   of the block before; null: unknown
  void input_before(Manager& manager, const block_tensors<Manager>* before, bool is_again)
  {
    input_ = before == nullptr ? 0 : sum_of(manager, before->outputs);
    is_again_ = is_again;
    lasting_.clear();
    if (is_again) for_each_lasting(manager, [this](std::uint64_t sum, const auto&) { lasting_.push_back(sum); });
  }
  /// @throws usage_error   names the block
  void ran(Manager& manager, const place& at, const block_tensors<Manager>& own, const block_tensors<Manager>* before)
  {
    if (before != nullptr && sum_of(manager, before->outputs) != input_)
      refuse(at, "overwrites its input, from which it may have to run again (give its result a tensor)");
    const std::uint64_t sum = sum_of(manager, own.inner) * 31 + sum_of(manager, own.outputs);
    if (has_run_[at.block] != 0 && sum != first_[at.block])
      refuse(at,
             "saved other bytes when it ran again in one step (draw random numbers by run.random(), and change nothing "
             "but its own tensors)");
    first_[at.block] = sum;
    has_run_[at.block] = 1;
    if (is_again_) expect_same(manager, at);
  }

 private:
  [[noreturn]] static void refuse(const place& at, std::string_view why, std::string_view what = {},
                                  std::string_view more = {})
  {
    error_text text;
    text << "chunkmem: ";
    if (!at.network.empty()) text << "network \"" << at.network << "\", ";
    throw usage_error{text << "block " << std::uint64_t{at.block} << " (\"" << at.name << "\") " << why << what
                           << more};
  }
  [[nodiscard]] static std::uint64_t sum_of(Manager& manager, const typename block_tensors<Manager>::list& all)
  {
    std::uint64_t sum = 0;
    for (const auto& each : all) sum = sum * 31 + each.sum_of(manager, each.handle);
    return sum;
  }
  /// Calls `visit(sum of its bytes, its name)` for all that outlives a step and that no optimizer writes, always in one
  /// order. The name is made by a call.
  template <class Visit>
  static void for_each_lasting(Manager& manager, Visit visit)
  {
    manager.for_each_tensor([&](tensor_handle it, const auto& info) {
      if (info.part != role::buffer && info.part != role::frozen) return;
      visit(checks::sum_of_bytes(manager.content().bytes_of(it)), [&] {
        return std::string{info.part == role::buffer ? "buffer '" : "frozen weight '"} + manager.name_of(it) + '\'';
      });
    });
    manager.content().for_each_state([&](std::string_view name, std::span<const std::byte> content) {
      visit(checks::sum_of_bytes(content), [&] { return "registered bytes '" + std::string{name} + '\''; });
    });
  }
  void expect_same(Manager& manager, const place& at) const
  {
    std::size_t index = 0;
    for_each_lasting(manager, [&](std::uint64_t sum, const auto& name) {
      if (index < lasting_.size() && lasting_[index++] != sum)
        refuse(at, "changed ", name(),
               " when it ran again in one step: it changed twice, or once, as the plan of activations says (change it "
               "where run.is_again() is false; scratch is a lease, or a tensor with role::activation)");
    });
  }

  std::vector<std::uint64_t> first_;  // by block: the sum of its first forward run in this step
  std::vector<std::uint8_t> has_run_;
  std::vector<std::uint64_t> lasting_;  // sums before a run again
  std::uint64_t input_ = 0;
  bool is_again_ = false;
};

}  // namespace activation

}  // namespace chunkmem::inline v0
