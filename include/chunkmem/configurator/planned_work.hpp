// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_size_search.hpp>
#include <chunkmem/configurator/model_parts.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/interruption.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/replay_memory.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// The work of the ranks of a plan: the order of runs, the tensors of each part, and the bytes of its runs.
///
///     const planned_work work = work_of(shape, plan, latency.typical_seconds(plan));
///     const std::vector<std::uint64_t>& of_first_part = work.tensors[0];
struct planned_work {
  parallel_plan plan;
  pipeline::schedule schedule;
  std::vector<std::vector<std::uint64_t>> tensors;  ///< elements of each weight, by part
  /// by part: inputs, saved activations and working memory; without model data, which lies in chunks
  std::vector<pipeline::part_memory> parts;
  bytes chunk{};  ///< size of a chunk
  /// by stage: other bytes that a rank holds on its device all the time: those of weights and gradients of 4 bytes that
  /// chunks do not have, which hold 2 bytes of each, and masters
  std::vector<bytes> beside{};
  trainer_traits trainer{};       ///< its optimizer has the states
  pipeline::interruption stop{};  ///< ranks poll it before each step

  /// The sizes of the boundaries between parts, for boundary_buffers.
  [[nodiscard]] std::vector<bytes> inputs() const
  {
    std::vector<bytes> all;
    for (const pipeline::part_memory& it : parts) all.push_back(it.input);
    return all;
  }
};

/// The size of a plan's chunks: the size of the weights of the most common layer, so that few chunks have gaps, and a
/// size that replicas divide into whole blocks.
///
///     const bytes chunk = planned_chunk(tensors_of_parts(shape, plan), plan.replicas);
///
/// Cost: O(tensors)
[[nodiscard]] inline bytes planned_chunk(const std::vector<std::vector<std::uint64_t>>& tensors, std::uint32_t replicas)
{
  std::vector<bytes> sizes;
  for (const auto& part : tensors)
    for (const std::uint64_t elements : part) sizes.push_back(bytes{elements} * 2);
  const bytes blocks = bytes{replicas} * measure_block * sizeof(float);
  const std::uint64_t grain = std::lcm(blocks.count(), tensor_alignment.count());
  return align_up(frame_limits::largest_of_body(sizes), bytes{grain});
}

namespace detail {

/// The bytes of weights and gradients of 4 bytes that chunks do not have. Chunks have 2 bytes of each number, and
/// masters of 4, which a trainer with such weights does not have.
[[nodiscard]] inline bytes beside_chunks(const trainer_traits& trainer, const parallel_plan& plan,
                                         std::uint64_t parameters)
{
  const auto share = [&](bool is_divided) {
    return is_divided ? parameters / plan.replicas + (parameters % plan.replicas > 0 ? 1 : 0) : parameters;
  };
  bytes all{};
  if (trainer.gradient_bytes == 4) all += bytes{2} * share(plan.zero > 1);
  if (trainer.weight_bytes == 4) all += bytes{2} * share(plan.zero > 2);
  if (trainer.weight_bytes == 4 && !plan.states_on_host) all -= bytes{4} * share(plan.zero > 0);
  return all;
}

}  // namespace detail

/// Number of micro-batches that is enough to find the memory of a rank: a beginning, a period, and an end.
///
///     plan.micro_batches = std::min(plan.micro_batches, few_micro_batches(plan.stages));
[[nodiscard]] constexpr std::uint32_t few_micro_batches(std::uint32_t stages) noexcept
{
  return 6 * stages + 2;
}

/// The most micro-batches of a rehearsal, which takes a few seconds for them. Cost: O(tensors)
[[nodiscard]] inline std::uint32_t most_rehearsed(const trained_model& model, const parallel_plan& plan)
{
  constexpr std::size_t reads = std::size_t{1} << 17;  // of weights in all micro-batches
  std::size_t tensors = 0;
  for (const std::vector<std::uint64_t>& part : tensors_of_parts(model, plan)) tensors += part.size();
  return static_cast<std::uint32_t>(reads / std::max(tensors, std::size_t{1}));
}

/// The plan with as many micro-batches as a rehearsal takes a second for: all of a small model. Further ones repeat the
/// same steps, with the same leases and chunks. With gpipe, zb-v and 2bw all are kept, since their number matters.
///
///     const parallel_plan rehearsed = with_few_micro_batches(plan, model);
///     const memory_proof proof = prove_memory(whole, work_of(model, rehearsed, seconds));
///
/// This proves a device with room for all chunks and leases. On a smaller one the resident chunks may change from one
/// micro-batch to the next for a long time: a plan with more micro-batches may need some more chunks there.
/// @throws config_error   all of them stay, and are more than most_rehearsed   Cost: O(tensors)
[[nodiscard]] inline parallel_plan with_few_micro_batches(parallel_plan plan, const trained_model& model)
{
  const std::uint32_t most = most_rehearsed(model, plan);
  using enum schedule_kind;
  if (plan.schedule == gpipe || plan.schedule == zb_v || plan.schedule == two_versions) {
    if (plan.micro_batches <= most) return plan;
    throw config_error{error_text{} << "chunkmem: " << plan.micro_batches << " micro-batches of "
                                    << name_of(plan.schedule) << " are too many for a rehearsal: at most " << most
                                    << " of this model take a few seconds (give a micro-batch more rows)"};
  }
  const std::uint32_t few = std::max(few_micro_batches(plan.stages), most / 8);
  const std::uint32_t unit = plan.schedule == interleaved ? plan.stages : 1;
  if (plan.micro_batches > few) plan.micro_batches = few + (plan.micro_batches - few) % unit;
  return plan;
}

/// The work of a plan: its schedule, its tensors, and the bytes of its runs.
///
///     const planned_work work = work_of(model, plan, latency.typical_seconds(plan));
///     const std::vector<std::uint64_t>& of_first_part = work.tensors[0];
///
/// @param seconds   of a run, for the schedule
/// @param batches   of the schedule
/// @param stop      for the schedule, and for ranks
/// @throws config_error            no such shape, or an impossible schedule
/// @throws size_overflow           bytes beyond 64 bits
/// @throws pipeline::interrupted   the caller stops it
/// Cost: O(steps of the schedule + tensors)
[[nodiscard]] inline planned_work work_of(const trained_model& model, const parallel_plan& plan,
                                          const pipeline::pass_seconds& seconds, std::uint32_t batches = 1,
                                          const pipeline::interruption& stop = {})
{
  planned_work work{.plan = plan,
                    .schedule = schedule_of(plan, seconds, batches, stop),
                    .tensors = tensors_of_parts(model, plan),
                    .parts = {},
                    .chunk = {},
                    .beside = {},
                    .trainer = model.trainer,
                    .stop = stop};
  work.chunk = planned_chunk(work.tensors, plan.replicas);
  bytes input = model.profile ? model.profile->input_of_row * plan.micro_batch
                              : bytes{sizeof(std::uint32_t)} * plan.micro_batch * model.shape.sequence;
  work.beside.resize(plan.stages);
  for (const model_part& it : parts_of(model, plan)) {
    work.beside[work.schedule.owners[work.parts.size()]] += detail::beside_chunks(model.trainer, plan, it.parameters);
    pipeline::part_memory memory;
    memory.input = input;
    memory.saved = it.kept;
    memory.kept_for_weights = it.kept;  // gradients of weights read what gradients of inputs read
    memory.forward_working = memory.backward_working = it.working;
    work.parts.push_back(memory);
    input = it.boundary;
  }
  return work;
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
