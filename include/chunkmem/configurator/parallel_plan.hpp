// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/interruption.hpp>
#include <chunkmem/pipeline/make_schedule.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>
#include <chunkmem/pipeline/schedules.hpp>
#include <chunkmem/pipeline/zero_bubble.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// The order in which stages run micro-batches.
enum class schedule_kind : std::uint8_t { gpipe, one_f_one_b, eager, interleaved, two_versions, zb_h1, zb_h2, zb_v };

inline constexpr std::size_t schedule_kinds = 8;

/// Its name for `gpt --schedule`.
[[nodiscard]] constexpr std::string_view name_of(schedule_kind kind) noexcept
{
  constexpr std::string_view names[schedule_kinds] = {"gpipe", "1f1b",  "eager", "interleaved",
                                                      "2bw",   "zb-h1", "zb-h2", "zb-v"};
  return names[static_cast<std::size_t>(kind)];
}

/// How a model is trained on a cluster. Plain data.
///
/// A rank has one device. The ranks of a pipeline have a part of the layers each; `tensor` ranks share each layer of a
/// stage, and `replicas` pipelines train side by side.
///
///     const parallel_plan plan{.stages = 4, .replicas = 2, .micro_batch = 2, .micro_batches = 16};
struct parallel_plan {
  std::uint32_t tensor = 1;
  std::uint32_t stages = 1;
  std::uint32_t replicas = 1;
  std::uint64_t micro_batch = 1;    ///< rows
  std::uint32_t micro_batches = 1;  ///< of a batch, on each replica
  schedule_kind schedule = schedule_kind::one_f_one_b;
  std::uint32_t parts = 1;      ///< of each stage: 2 for zb-v, 2 or more for interleaved
  bool recomputes = false;      ///< a layer keeps only its input, and runs forward again
  bool states_on_host = false;  ///< masters and states, which the host updates
  /// what replicas divide (ZeRO): 0 nothing (each sums all gradients and updates all weights), which this library's
  /// trainers do not support; 1 states; 2 gradients too; 3 weights too
  std::uint32_t zero = 1;
  /// Where the model is cut: the first layer of each part but the first one; with a profile, the first of its parts.
  /// Empty: parts have about equal numbers of layers.
  std::vector<std::uint64_t> cuts{};
  /// The device of each rank, by its number in the cluster: element (replica * stages + stage) * tensor + member.
  std::vector<std::uint32_t> devices{};

  [[nodiscard]] bool operator==(const parallel_plan&) const = default;

  [[nodiscard]] std::uint32_t ranks() const noexcept { return tensor * stages * replicas; }
  /// Rows of a batch.
  [[nodiscard]] std::uint64_t rows() const noexcept { return micro_batch * micro_batches * replicas; }
  /// Parts of the whole model.
  [[nodiscard]] std::uint32_t all_parts() const noexcept { return parts * stages; }
  [[nodiscard]] std::uint32_t rank(std::uint32_t replica, std::uint32_t stage, std::uint32_t member = 0) const noexcept
  {
    return (replica * stages + stage) * tensor + member;
  }

  /// @param devices_there   of the cluster
  /// @throws config_error   one sentence with the first invalid member, by the key of a plan's file, which is the
  ///   member's name
  void check(const trained_model& model, std::uint32_t devices_there) const
  {
    check_degrees();
    check_shares(model);
    check_cuts(model);
    if (std::uint64_t{tensor} * stages * replicas > devices_there)
      refuse("\"tensor\" x \"stages\" x \"replicas\" is ", tensor, " x ", stages, " x ", replicas, " ranks on ",
             devices_there, " devices (plan fewer ranks)");
    if (devices.size() != ranks())
      refuse("\"devices\" has ", devices.size(), " elements for ", ranks(), " ranks (give a device for each rank)");
    std::vector<bool> used(devices_there, false);
    for (std::size_t rank = 0; rank < devices.size(); ++rank) {
      const std::uint32_t device = devices[rank];
      if (device >= devices_there)
        refuse("\"devices[", rank, "]\" is ", device, ", and there are ", devices_there, " devices (the first is 0)");
      if (used[device])
        refuse("\"devices[", rank, "]\" is ", device, ", the device of another rank (give each one its own)");
      used[device] = true;
    }
  }

 private:
  template <class... Words>
  [[noreturn]] static void refuse(const Words&... words)
  {
    throw config_error{((error_text{} << "chunkmem: a plan's ") << ... << words)};
  }
  void require_share(const char* what, std::uint64_t count) const
  {
    if (count % tensor != 0)
      refuse("\"tensor\" is ", tensor, ", which does not divide ", count, " ", what, " (plan a degree that does)");
  }
  void check_degrees() const
  {
    const auto require_one = [](const char* key, std::uint64_t value) {
      if (value == 0) refuse("\"", key, "\" is 0 (give 1 or more)");
    };
    require_one("tensor", tensor);
    require_one("stages", stages);
    require_one("replicas", replicas);
    require_one("micro_batch", micro_batch);
    require_one("micro_batches", micro_batches);
    require_one("parts", parts);
    if (zero > 3) refuse("\"zero\" is ", zero, " (give 0, 1, 2 or 3)");
    const bool is_divided = schedule == schedule_kind::interleaved || schedule == schedule_kind::zb_v;
    if (is_divided != (parts > 1) || (schedule == schedule_kind::zb_v && parts != 2))
      refuse("\"parts\" is ", parts, " with the schedule ", name_of(schedule),
             " (give 2 for zb-v, 2 or more for interleaved, and 1 for others)");
  }
  void check_shares(const trained_model& model) const
  {
    if (!model.profile) {
      require_share("heads", model.shape.heads);
      if (!model.has_degree(tensor))
        refuse("\"tensor\" is ", tensor, ", which neither divides ", model.shape.kv_heads,
               " key-value heads nor is a multiple of them (plan a degree that is)");
    } else if (!model.profile->has_degree(tensor)) {
      refuse("\"tensor\" is ", tensor, ", a degree that the profile \"", model.profile->name,
             "\" does not have (measure it, or plan another one)");
    }
  }
  void check_cuts(const trained_model& model) const
  {
    const std::uint64_t units = model.units();
    const char* const what = model.profile ? " parts in its profile" : " layers";
    const char* const one = model.profile ? "one" : "a layer";
    if (std::uint64_t{parts} * stages > units)
      refuse("\"stages\" x \"parts\" is ", std::uint64_t{parts} * stages, ", and the model has ", units, what,
             ": each part needs ", one, " (plan fewer stages)");
    if (cuts.empty()) return;
    if (cuts.size() + 1 != all_parts())
      refuse("\"cuts\" has ", cuts.size(), " elements for ", all_parts(), " parts (give the first ",
             model.profile ? "part of the profile" : "layer", " of each part but the first one)");
    for (std::size_t index = 0; index < cuts.size(); ++index)
      if (cuts[index] <= (index == 0 ? 0 : cuts[index - 1]) || cuts[index] >= units)
        refuse("\"cuts[", index, "]\" is ", cuts[index], ", which leaves a part without ", one,
               " (give numbers that rise, from 1 to ", units - 1, ")");
  }
};

/// A plan in words, without its devices.
///
///     std::cout << text_of({.stages = 2, .micro_batches = 4}) << '\n';
[[nodiscard]] inline std::string text_of(const parallel_plan& plan)
{
  const auto times = [](std::uint64_t count, const char* what) {
    return std::to_string(count) + ' ' + what + (count == 1 ? "" : "s");
  };
  std::string text = times(plan.stages, "stage") + " x " + times(plan.replicas, "replica");
  if (plan.tensor > 1) text += " x " + std::to_string(plan.tensor) + " ranks for a layer";
  if (plan.stages > 1) text += ", " + std::string{name_of(plan.schedule)};
  if (plan.parts > 1) text += " of " + std::to_string(plan.parts) + " parts";
  text += ", " + std::to_string(plan.micro_batches) + (plan.micro_batches == 1 ? " micro-batch" : " micro-batches") +
          " of " + times(plan.micro_batch, "row");
  if (plan.recomputes) text += ", recompute";
  if (plan.states_on_host) text += ", states on the host";
  if (plan.replicas > 1) text += ", ZeRO " + std::to_string(plan.zero);
  for (std::size_t index = 0; index < plan.cuts.size(); ++index)
    text += (index == 0 ? ", cut at " : " ") + std::to_string(plan.cuts[index]);
  return text;
}

/// The stage of each part, as the generators of schedules assign them.
///
///     const std::uint32_t stage = owners_of(plan)[part];
///
/// Cost: O(parts)
[[nodiscard]] inline std::vector<std::uint32_t> owners_of(const parallel_plan& plan)
{
  std::vector<std::uint32_t> owners;
  for (std::uint32_t part = 0; part < plan.all_parts(); ++part) {
    const bool goes_back = plan.schedule == schedule_kind::zb_v && part >= plan.stages;  // V: down, and up again
    owners.push_back(goes_back ? plan.all_parts() - 1 - part : part % plan.stages);
  }
  return owners;
}

/// Steps of a batch's schedule that schedule_of makes at most: each takes 16 bytes, several times.
inline constexpr std::uint64_t most_schedule_steps = std::uint64_t{1} << 23;

/// The steps of a plan's schedule, at most: three runs, and a send and a receive in each direction, of each part.
///
///     const std::uint64_t steps = schedule_steps(plan);  // 7 for each micro-batch and part
///
/// @throws size_overflow   more steps than 64 bits can count
/// Cost: O(1)
[[nodiscard]] inline std::uint64_t schedule_steps(const parallel_plan& plan, std::uint32_t batches = 1)
{
  constexpr std::uint64_t of_part = 7;
  return (checked{plan.micro_batches} * batches * plan.all_parts() * of_part).value();
}

/// Refuses a plan whose batch has no schedule. The generators refuse more.
///
///     check_schedulable(plan);  // throws config_error: 2bw over 4 stages needs 3 micro-batches or more
///
/// @throws config_error   more than most_schedule_steps, or too few micro-batches for two versions of the weights
/// Cost: O(1)
inline void check_schedulable(const parallel_plan& plan)
{
  if (const std::uint64_t steps = schedule_steps(plan); steps > most_schedule_steps)
    throw config_error{error_text{} << "chunkmem: a plan of " << plan.micro_batches << " micro-batches through "
                                    << plan.all_parts() << " parts is a schedule of up to " << steps
                                    << " steps, and at most " << most_schedule_steps
                                    << " are made (give a micro-batch more rows)"};
  if (plan.schedule == schedule_kind::two_versions && pipeline::fewest_versions(plan.stages, plan.micro_batches) > 2)
    throw config_error{error_text{} << "chunkmem: 2bw has two versions of the weights, so " << plan.stages
                                    << " stages need " << plan.stages - 1 << " micro-batches in a batch, not "
                                    << plan.micro_batches << " (plan more micro-batches, or fewer stages)"};
}

/// The schedule of a plan: the order of the runs and transfers of each stage.
///
///     const pipeline::schedule order = schedule_of(plan, latency.typical_seconds(plan));
///     const std::size_t steps_of_first_stage = order.stages[0].size();
///
/// @param seconds   of a run, by which zb-v and zero bubble order steps
/// @param batches   that follow each other
/// @throws config_error            as check_schedulable; or the generator refuses the shape: micro-batches that leave a
///   partial group
/// @throws pipeline::interrupted   the caller stops it
/// Cost: that of the generator
[[nodiscard]] inline pipeline::schedule schedule_of(const parallel_plan& plan, const pipeline::pass_seconds& seconds,
                                                    std::uint32_t batches = 1, const pipeline::interruption& stop = {})
{
  using namespace pipeline;
  check_schedulable(plan);
  const pipeline_shape shape{
      .stages = plan.stages, .micro_batches = plan.micro_batches, .batches = batches, .seconds = seconds};
  switch (plan.schedule) {
    case schedule_kind::gpipe: return make_schedule(gpipe{}, shape, stop);
    case schedule_kind::one_f_one_b: return make_schedule(one_f_one_b{}, shape, stop);
    case schedule_kind::eager: return make_schedule(eager_one_f_one_b{}, shape, stop);
    case schedule_kind::interleaved: return make_schedule(interleaved{.parts = plan.parts}, shape, stop);
    case schedule_kind::two_versions:  // replicas have one set of gradients
      return make_schedule(pipedream_2bw{.gradient_sets = plan.replicas == 1 ? 2U : 1U}, shape, stop);
    case schedule_kind::zb_h1: return make_schedule(zb_h1{}, shape, stop);
    case schedule_kind::zb_h2: return make_schedule(zb_h2{}, shape, stop);
    case schedule_kind::zb_v: return make_schedule(zb_v{.trials = 0}, shape, stop);
  }
  throw config_error{"a plan with a schedule that this version does not know"};
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
