// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/covering.hpp>
#include <support/memory_folder.hpp>
#include <support/rank_training.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace step_kinds {

namespace cm = chunkmem;
using support::ranks::job;
using support::ranks::updates;

enum class place : std::uint8_t { calling_thread, pool, device, split };
enum class owner : std::uint8_t { manager, ranks, stage, stage_with_replicas };
enum class precision : std::uint8_t { float32, bf16_with_master, fp16_with_loss_scale, bf16_alone };
enum class memory : std::uint8_t { host_arena, adversarial, fake_cuda };
/// Of each step: there is no limit on the norm, none that it reaches, one that it always reaches; a step is skipped.
enum class decision : std::uint8_t { plain, below_limit, clipped, skipped };

/// A step as a value for each axis, and the training that takes it.
struct kind {
  enum axis : std::size_t { when, where, whose, count, zero, type, gradients, accumulation, backend, decided, axes };
  support::point<axes> at{};

  [[nodiscard]] updates time() const noexcept { return static_cast<updates>(at[when]); }
  [[nodiscard]] place workers() const noexcept { return static_cast<place>(at[where]); }
  [[nodiscard]] bool works_on_device() const noexcept
  {
    return workers() == place::device || workers() == place::split;
  }
  /// Of the updates, on the device.
  [[nodiscard]] double device_share() const
  {
    constexpr double shares[] = {0.25, 0.5, 0.75, 1};
    std::size_t sum = 0;
    for (const std::uint8_t each : at) sum += each;
    return workers() == place::split ? shares[sum % 4] : 0;
  }
  [[nodiscard]] owner of() const noexcept { return static_cast<owner>(at[whose]); }
  /// Ranks, replicas of each stage, or stages that have none.
  [[nodiscard]] std::uint32_t ranks() const noexcept { return at[count] + 1U; }
  [[nodiscard]] precision numbers() const noexcept { return static_cast<precision>(at[type]); }
  [[nodiscard]] bool is_in_place() const noexcept { return at[gradients] == 1; }
  [[nodiscard]] std::uint32_t micro_batches() const noexcept { return at[accumulation] + 1U; }
  [[nodiscard]] memory place_of_bytes() const noexcept { return static_cast<memory>(at[backend]); }
  [[nodiscard]] decision result() const noexcept { return static_cast<decision>(at[decided]); }

  [[nodiscard]] bool is_over_ranks() const noexcept
  {
    return of() == owner::ranks || of() == owner::stage_with_replicas;
  }
  [[nodiscard]] std::uint32_t replicas() const noexcept { return is_over_ranks() ? ranks() : 1; }
  [[nodiscard]] std::uint32_t stages() const noexcept
  {
    return of() == owner::stage ? ranks() : of() == owner::stage_with_replicas ? 2 : 1;
  }
  [[nodiscard]] bool has_stages() const noexcept { return of() == owner::stage || of() == owner::stage_with_replicas; }
  [[nodiscard]] bool has_masters() const noexcept { return numbers() != precision::bf16_alone; }
  [[nodiscard]] job training() const;
  [[nodiscard]] std::string name() const;
};

inline constexpr support::point<kind::axes> extents{3, 4, 4, 4, 3, 4, 2, 3, 3, 4};

/// The combinations that exist (docs/training.md), each once.
[[nodiscard]] inline bool is_legal(const support::point<kind::axes>& at)
{
  const kind it{at};
  if (!it.is_over_ranks() && at[kind::zero] != 0) return false;  // nothing is divided
  if (it.of() == owner::manager && it.ranks() > 1) return false;
  if (it.time() == updates::early && (it.works_on_device() || it.has_stages())) return false;
  // The host adds up the sums of micro-batches: where it cannot reach them, they are summed once (see training).
  if (it.place_of_bytes() == memory::fake_cuda && it.micro_batches() > 1 && at[kind::zero] == 1) return false;
  // Each manager counts its tensors, which random rounding depends on (docs/numerics.md).
  if (it.numbers() == precision::bf16_alone && it.has_stages() && it.stages() > 1) return false;
  if (it.is_in_place()) {  // of 16 bits with masters, and no sum over ranks is added to one (docs/ranks.md)
    const bool adds_sums = !it.is_over_ranks() || it.training().divided == cm::sharding::zero_3;
    return it.has_masters() && it.numbers() != precision::float32 && (it.micro_batches() == 1 || !adds_sums);
  }
  return true;
}

inline job kind::training() const
{
  job made{.ranks = replicas(), .steps = 4, .micro_batches = micro_batches()};
  constexpr cm::sharding::zero divisions[] = {cm::sharding::zero_1, cm::sharding::zero_2, cm::sharding::zero_3};
  made.divided = is_over_ranks() ? divisions[at[zero]] : cm::sharding::zero_1;
  if (place_of_bytes() == memory::fake_cuda && micro_batches() > 1 && at[zero] == 2)
    made.divided = cm::sharding::zero_3_reduce_last;
  std::size_t sum = 0;
  for (std::size_t which = 0; which < axes; ++which) sum += (which + 1) * at[which];
  made.frames = (replicas() == 1 ? 60 : 26) + static_cast<std::uint32_t>(sum % 20);
  made.rehearses = sum % 2 == 0;
  made.on_compute = sum % 3 == 0;
  made.when = time();
  made.undo_kilobytes = sum % 5 == 0 ? 256 : 4096;
  if (numbers() == precision::fp16_with_loss_scale) made.loss_scale = 256;
  constexpr float limits[] = {0, 1e6F, 1, 0};
  made.clip = limits[at[decided]];
  if (result() == decision::skipped) made.spoilt_step = 1;
  return made;
}

inline std::string kind::name() const
{
  static constexpr std::string_view names[axes][4] = {
      {"at once", "late", "early"},
      {"on the calling thread", "in a pool", "on the device", "split"},
      {"a manager", "ranks", "stages", "stages with replicas"},
      {"1", "2", "3", "4"},
      {"zero_1", "zero_2", "zero_3"},
      {"float32", "bf16 with masters", "fp16 with masters and a loss scale", "bf16 alone"},
      {"separate", "in place"},
      {"1 micro-batch", "2 micro-batches", "3 micro-batches"},
      {"host_arena", "adversarial", "fake CUDA"},
      {"no limit", "a limit above the norm", "clipped", "skipped"}};
  std::string all;
  for (std::size_t which = 0; which < axes; ++which)
    all += (which == 0 ? "" : ", ") + std::string{names[which][at[which]]};
  return all;
}

/// Whatever happens to the last thread of a training. Calls are counted from 0, for each training anew.
struct interference {
  std::optional<std::uint64_t> allocation{};  ///< fails once
  std::optional<std::uint64_t> copy{};        ///< fails once; from the first step on
  std::optional<std::uint64_t> call{};        ///< of its communicators: the thread dies at it
};

/// One folder for each stage.
using folders_type = std::vector<support::memory_folder>;

/// Some steps of a training.
struct part_of_training {
  kind how;
  std::uint32_t begin = 0;  ///< later than 0: `from` is loaded
  std::uint32_t end = 4;
  std::uint32_t saved_at = UINT32_MAX;  ///< `to` has a checkpoint of before this step
  interference faults{};
  std::uint64_t deadline = 60'000'000'000;  ///< of communicators [ns]
  std::optional<kind> before{};             ///< how steps were taken until `begin`, where in another way
};

/// Counts of the last thread, and what differs from one rank with a step at once, or nothing.
struct outcome {
  std::string complaint{};
  std::uint64_t allocations = 0;
  std::uint64_t copies = 0;  ///< from the first step on
  std::uint64_t calls = 0;   ///< of its communicators; from the save on, where there is one
  std::size_t early = 0;     ///< updates before the decision that stayed
  bool has_died = false;
};

[[nodiscard]] outcome train_on_arena(const part_of_training& what, const folders_type& from, folders_type& to);
[[nodiscard]] outcome train_on_fake_cuda(const part_of_training& what, const folders_type& from, folders_type& to);
[[nodiscard]] inline outcome train(const part_of_training& what, const folders_type& from, folders_type& to)
{
  return what.how.place_of_bytes() == memory::fake_cuda ? train_on_fake_cuda(what, from, to)
                                                        : train_on_arena(what, from, to);
}
[[nodiscard]] inline std::string train(const kind& how)
{
  folders_type nothing;
  return train({.how = how}, {}, nothing).complaint;
}

}  // namespace step_kinds
