// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/link_matrix.hpp>
#include <chunkmem/configurator/model_profile.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/workload/json_fields.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace chunkmem::inline v0 {

namespace configurator {

/// Hashes of the model and the cluster of a plan.
///
///     const plan_subject subject = subject_of(shape, whole);
struct plan_subject {
  std::uint64_t model = 0;
  std::uint64_t cluster = 0;

  [[nodiscard]] bool operator==(const plan_subject&) const = default;
};

namespace detail {

/// Adds a profile, without names of parts and without the order of measurements.
inline void add_profile(collective::fingerprint& to, model_profile profile)
{
  std::ranges::sort(profile.weights, {}, &profiled_weights::tensor);
  std::ranges::sort(profile.sizes, {}, [](const auto& it) { return std::pair{it.tensor, it.rows}; });
  std::ranges::sort(profile.times, {}, [](const auto& it) { return std::tuple{it.kind, it.tensor, it.rows}; });
  const auto add = [&](double number) { to.add(std::bit_cast<std::uint64_t>(number)); };
  const auto add_all = [&](const std::vector<std::uint64_t>& numbers) {
    to.add(numbers.size());
    for (const std::uint64_t it : numbers) to.add(it);
  };
  to.add(profile.input_of_row.count());
  to.add(std::uint64_t{profile.times_have_sums});
  for (const profiled_part& it : profile.parts) to.add(std::uint64_t{it.layers} << 32 | it.all_reduces);
  for (const profiled_weights& it : profile.weights) {
    to.add(it.tensor);
    for (const std::vector<std::uint64_t>& part : it.elements) add_all(part);
  }
  for (const profiled_sizes& it : profile.sizes) {
    add_all({it.tensor, it.rows});
    for (const auto* const list : {&it.saved, &it.boundary, &it.transient}) add_all(*list);
  }
  for (const profiled_times& it : profile.times) {
    add_all({it.tensor, it.rows});
    for (const char letter : it.kind) to.add(static_cast<unsigned char>(letter));
    for (const run_seconds& run : it.of_parts) add(run.forward), add(run.backward_input), add(run.backward_weight);
  }
  if (profile.tie) add_all({profile.tie->first_part, profile.tie->last_part, profile.tie->elements});
}

}  // namespace detail

/// The fingerprints of a model and a cluster, which the file of a plan holds. Every number of both counts: a new
/// measurement of a cluster makes it another one, and other traits of the trainer make another model.
///
///     const plan_subject subject = subject_of(model, whole);
///
/// Cost: O(numbers of both)
[[nodiscard]] inline plan_subject subject_of(const trained_model& trained, const cluster& whole)
{
  collective::fingerprint model;
  workload::for_numbers(trained.shape, [&model](std::uint64_t word) { model.add(word); });
  for (const std::uint64_t word :
       {std::uint64_t{trained.trainer.activation_bytes}, static_cast<std::uint64_t>(trained.trainer.sums),
        std::uint64_t{trained.trainer.weight_bytes}, std::uint64_t{trained.trainer.gradient_bytes},
        std::uint64_t{trained.trainer.tied_bytes}, std::uint64_t{trained.trainer.fuses_attention},
        std::uint64_t{trained.trainer.hides_sums}})
    model.add(word);
  if (trained.trainer.states != optimizer::listed_states{}) {  // fingerprints of plans for Adam stay the same
    model.add(trained.trainer.states.lists);
    model.add(trained.trainer.states.bytes_each);
  }
  if (trained.profile) detail::add_profile(model, *trained.profile);
  collective::fingerprint all;
  const auto add = [&](double number) { all.add(std::bit_cast<std::uint64_t>(number)); };
  for (const cluster_node& it : whole.nodes) {
    for (const std::uint64_t word :
         {std::uint64_t{it.devices}, it.device_bytes.count(), it.host_bytes.count(), it.disk_bytes.count()})
      all.add(word);
    for (const double rate : {it.device_flops_per_second, it.to_device_bytes_per_second, it.to_host_bytes_per_second,
                              it.host_memory_bytes_per_second, it.host_updates_per_second, it.device_updates_per_second,
                              it.port_out_bytes_per_second, it.port_in_bytes_per_second})
      add(rate);
    all.add(static_cast<std::uint64_t>(it.inner_links));
    for (const product_efficiency& each : it.product_curve) add(each.flops), add(each.part);
    if (it.message_work != collective::message_work{})
      add(it.message_work.seconds_per_message), add(it.message_work.seconds_per_byte);
  }
  for (std::uint32_t from = 0; from < whole.nodes.size(); ++from)
    for (std::uint32_t to = 0; to < whole.nodes.size(); ++to) {
      add(whole.links(from, to).latency);
      add(whole.links(from, to).bytes_per_second);
    }
  return {model.value(), all.value()};
}

namespace detail {

inline constexpr std::string_view plan_format = "chunkmem parallel plan 1";

[[nodiscard]] inline parallel_plan plan_of(workload::json_fields fields, const plan_subject& subject)
{
  if (fields.text("format") != plan_format)
    fields.refuse("format", "is not that of this version", "write \"" + std::string{plan_format} + '"');
  if (fields.whole("model") != subject.model)
    fields.refuse("model", "is that of another model, or of a trainer with other traits", "plan again");
  if (fields.whole("cluster") != subject.cluster)
    fields.refuse("cluster", "is that of another cluster, or of other measurements", "plan again");
  parallel_plan made;
  const auto degree = [&](std::string_view key) { return static_cast<std::uint32_t>(fields.whole(key, UINT32_MAX)); };
  made.tensor = degree("tensor");
  made.stages = degree("stages");
  made.replicas = degree("replicas");
  made.micro_batch = fields.whole("micro_batch");
  made.micro_batches = degree("micro_batches");
  const std::string schedule = fields.text("schedule");
  std::size_t kind = 0;
  while (kind < schedule_kinds && name_of(static_cast<schedule_kind>(kind)) != schedule) ++kind;
  if (kind == schedule_kinds) fields.refuse("schedule", "is unknown", "write 1f1b, 2bw or another one");
  made.schedule = static_cast<schedule_kind>(kind);
  made.parts = degree("parts");
  made.recomputes = fields.truth("recomputes");
  made.states_on_host = fields.truth("states_on_host");
  made.zero = degree("zero");
  if (fields.has("cuts")) made.cuts = fields.wholes("cuts");
  for (const std::uint64_t device : fields.wholes("devices")) {
    if (device > UINT32_MAX) fields.refuse("devices", "has a number that no device has", "plan again");
    made.devices.push_back(static_cast<std::uint32_t>(device));
  }
  fields.finish();
  return made;
}

}  // namespace detail

/// A plan as JSON text, which parse_plan reads back to the same plan.
///
///     std::ofstream{path} << plan_text(plan, subject_of(model, whole));
///
/// Cost: O(ranks)
[[nodiscard]] inline std::string plan_text(const parallel_plan& plan, const plan_subject& subject)
{
  nlohmann::ordered_json all;
  all["format"] = detail::plan_format;
  all["model"] = subject.model;
  all["cluster"] = subject.cluster;
  all["tensor"] = plan.tensor;
  all["stages"] = plan.stages;
  all["replicas"] = plan.replicas;
  all["micro_batch"] = plan.micro_batch;
  all["micro_batches"] = plan.micro_batches;
  all["schedule"] = name_of(plan.schedule);
  all["parts"] = plan.parts;
  all["recomputes"] = plan.recomputes;
  all["states_on_host"] = plan.states_on_host;
  all["zero"] = plan.zero;
  if (!plan.cuts.empty()) all["cuts"] = plan.cuts;
  all["devices"] = plan.devices;
  return all.dump(2) + '\n';
}

/// Parses a plan from JSON text, for this model and this cluster. `parallel_plan::check` says whether it can run there.
///
///     const parallel_plan plan = parse_plan(text, "plan.json", subject_of(model, whole));
///     plan.check(model, whole.ranks());
///
/// @param file   a name for messages
/// @throws format_error   one sentence with the file and the key that is wrong, also for another model or cluster
/// Cost: O(length of the text)
[[nodiscard]] inline parallel_plan parse_plan(std::string_view text, std::string_view file, const plan_subject& subject)
{
  constexpr workload::json_limits limits{.file = bytes{std::uint64_t{16} << 20}, .elements = std::size_t{1} << 20};
  return detail::plan_of(workload::json_fields{text, file, limits}, subject);
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
