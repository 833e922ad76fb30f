// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/saved_tensor.hpp>
#include <chunkmem/core/error.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// Finds blocks that do not compute the same bytes each time, and blocks that overwrite their input.
///
/// A part of `checkpointed` under checks::full. Cost: for each forward run, its input is read twice more, and its
/// result once.
///
///     check.begin(blocks);
///     check.input_before(m, before);
///     ... a forward run ...
///     check.ran(m, block, name, own);
template <class Manager>
class recompute_check {
 public:
  void begin(std::size_t blocks)
  {
    first_.assign(blocks, 0);
    has_run_.assign(blocks, 0);
  }
  /// @param before   of the block before; null: unknown
  void input_before(Manager& manager, const block_tensors<Manager>* before)
  {
    input_ = before == nullptr ? 0 : sum_of(manager, before->outputs);
  }
  /// @throws usage_error   names the block
  void ran(Manager& manager, std::uint32_t block, const std::string& name, const block_tensors<Manager>& own,
           const block_tensors<Manager>* before)
  {
    if (before != nullptr && sum_of(manager, before->outputs) != input_)
      refuse(block, name, "overwrites its input, from which it may have to run again (give its result a tensor)");
    const std::uint64_t sum = sum_of(manager, own.inner) * 31 + sum_of(manager, own.outputs);
    if (has_run_[block] != 0 && sum != first_[block])
      refuse(block, name,
             "saved other bytes when it ran again in one step (draw random numbers by run.random(), and change nothing "
             "but its own tensors)");
    first_[block] = sum;
    has_run_[block] = 1;
  }

 private:
  [[noreturn]] static void refuse(std::uint32_t block, const std::string& name, std::string_view why)
  {
    throw usage_error{error_text{} << "chunkmem: block " << std::uint64_t{block} << " (\"" << name << "\") " << why};
  }
  [[nodiscard]] static std::uint64_t sum_of(Manager& manager, const typename block_tensors<Manager>::list& all)
  {
    std::uint64_t sum = 0;
    for (const auto& each : all) sum = sum * 31 + each.sum_of(manager, each.handle);
    return sum;
  }

  std::vector<std::uint64_t> first_;  // by block: the sum of its first forward run in this step
  std::vector<std::uint8_t> has_run_;
  std::uint64_t input_ = 0;
};

}  // namespace activation

}  // namespace chunkmem::inline v0
