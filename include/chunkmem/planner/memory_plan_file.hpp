// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/posix_file.hpp>
#include <chunkmem/placement/memory_plan.hpp>
#include <chunkmem/workload/json_fields.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace chunkmem::inline v0 {

namespace planner {

namespace detail {

/// The first defect of a plan, if there is one.
inline void require_plan(const workload::json_fields& fields, const memory_plan& made)
{
  if (made.chunk_bytes == bytes{}) fields.refuse("chunk_bytes", "is 0", "plan again");
  if (made.chunk_bytes.count() % tensor_alignment.count() != 0)
    fields.refuse("chunk_bytes", "is no multiple of 256", "plan again");
  if (made.device_capacity == bytes{}) fields.refuse("device_capacity", "is 0", "plan again");
  if (made.gather_units == 0) fields.refuse("gather_units", "is 0", "plan again");
  if (made.gather_units > most_gather_units) fields.refuse("gather_units", "is above 1024", "plan again");
  if (made.gathers_ahead > most_gather_units) fields.refuse("gathers_ahead", "is above 1024", "plan again");
  if (std::ranges::find(planned_gradient::names, made.gradient) == planned_gradient::names.end())
    fields.refuse("gradient", "is neither in_place nor separate", "plan again");
  if (made.has_wide_gradients && made.gradient != gradient::separate::name)
    fields.refuse("has_wide_gradients", "is true, and gradients are in place", "plan again");
  if (made.device_update_share > 1) fields.refuse("device_update_share", "is above 1", "write a share from 0 to 1");
  bytes left = made.device_capacity;
  const auto take = [&](std::string_view key, bytes size) {
    if (size > left)
      fields.refuse(key, "makes more bytes with those before it than the device's capacity", "plan again");
    left -= size;
  };
  take("at_peak.values", made.at_peak.values);
  take("at_peak.states", made.at_peak.states);
  take("at_peak.leases", made.at_peak.leases);
  take("at_peak.free", made.at_peak.free);
  if (left != bytes{})
    fields.refuse("at_peak.free", "makes fewer bytes with those before it than the device's capacity", "plan again");
  if (made.host_peak > made.host_capacity) fields.refuse("host_peak", "is above host_capacity", "plan again");
}

[[nodiscard]] inline memory_plan memory_plan_of(workload::json_fields fields, std::uint64_t fingerprint)
{
  memory_plan made;
  if (!fields.has("gradient"))  // version 0.1
    fields.refuse("gradient", "is missing: this plan is of a planner that cut tensors at the borders of chunks",
                  "plan again with planner::plan_memory");
  made.fingerprint = fields.whole("fingerprint");
  if (made.fingerprint != fingerprint)
    fields.refuse("fingerprint", "is that of another model, training or amount of memory",
                  "plan again with planner::plan_memory");
  const auto size = [&](std::string_view key) { return bytes{fields.whole(key)}; };
  made.chunk_bytes = size("chunk_bytes");
  made.device_capacity = size("device_capacity");
  made.host_capacity = size("host_capacity");
  made.device_update_share = fields.number("device_update_share");
  const auto units = [&](std::string_view key) {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(fields.whole(key), most_gather_units + std::uint64_t{1}));
  };
  made.gather_units = units("gather_units");
  if (fields.has("gathers_ahead")) made.gathers_ahead = units("gathers_ahead");  // older plans gather nothing ahead
  made.gradient = fields.text("gradient");
  made.has_wide_gradients = fields.truth("has_wide_gradients");
  made.layout = fields.text("layout");
  made.at_peak = {size("at_peak.values"), size("at_peak.states"), size("at_peak.leases"), size("at_peak.free")};
  made.host_peak = size("host_peak");
  made.step_nanoseconds = fields.whole("step_nanoseconds");
  made.assumed.peak_leased = size("assumed.tide");
  made.assumed.modelled_peak_leased = size("assumed.modelled_tide");
  const auto rate = [&](const std::string& key, bool may_be_zero = false) {
    const double value = fields.number(key);
    if (value == 0 && !may_be_zero) fields.refuse(key, "is 0", "write a rate above 0");
    return value;
  };
  made.assumed.flops_per_second = rate("assumed.flops_per_second");
  using workload::machine_rates;
  for (const auto& [name, member] : workload::detail::named_rates)
    made.assumed.rates.*member =
        rate("rates." + std::string{name}, member == &machine_rates::peer_bytes_per_second ||
                                               member == &machine_rates::network_bytes_per_second ||
                                               member == &machine_rates::host_memory_bytes_per_second);
  fields.finish();
  require_plan(fields, made);
  return made;
}

}  // namespace detail

/// A plan of memory as JSON: one object, with sizes in bytes. Every number is read back as it was.
[[nodiscard]] inline std::string to_json(const memory_plan& plan)
{
  nlohmann::ordered_json all;
  all["fingerprint"] = plan.fingerprint;
  all["chunk_bytes"] = plan.chunk_bytes.count();
  all["device_capacity"] = plan.device_capacity.count();
  all["host_capacity"] = plan.host_capacity.count();
  all["device_update_share"] = plan.device_update_share;
  all["gather_units"] = plan.gather_units;
  all["gathers_ahead"] = plan.gathers_ahead;
  all["gradient"] = plan.gradient;
  all["has_wide_gradients"] = plan.has_wide_gradients;
  all["layout"] = plan.layout;
  all["at_peak"] = {{"values", plan.at_peak.values.count()},
                    {"states", plan.at_peak.states.count()},
                    {"leases", plan.at_peak.leases.count()},
                    {"free", plan.at_peak.free.count()}};
  all["host_peak"] = plan.host_peak.count();
  all["step_nanoseconds"] = plan.step_nanoseconds;
  all["assumed"] = {{"tide", plan.assumed.peak_leased.count()},
                    {"modelled_tide", plan.assumed.modelled_peak_leased.count()},
                    {"flops_per_second", plan.assumed.flops_per_second}};
  for (const auto& [name, member] : workload::detail::named_rates)
    all["rates"][std::string{name}] = plan.assumed.rates.*member;
  return all.dump(2) + '\n';
}

/// Reads a plan from a JSON text, for the job of this fingerprint (plan_fingerprint).
/// @param file   a name for messages
/// @throws format_error   one sentence with the file and the key that is wrong; also where the plan is for another job
[[nodiscard]] inline memory_plan parse_memory_plan(std::string_view text, std::string_view file,
                                                   std::uint64_t fingerprint)
{
  return detail::memory_plan_of(workload::json_fields{text, file}, fingerprint);
}

/// As above, from a file. @throws io_error   it cannot be read
[[nodiscard]] inline memory_plan load_memory_plan(const std::string& path, std::uint64_t fingerprint)
{
  return detail::memory_plan_of(workload::json_fields::of_file(path), fingerprint);
}

/// Writes a plan to a file, for load_memory_plan. Replaces an older file of the name, and never writes through a link:
/// see replaced_file.
/// @throws io_error   it cannot be written; the older file stays
inline void save_memory_plan(const memory_plan& plan, const std::string& path)
{
  replace_file(path, "a memory plan", to_json(plan));
}

}  // namespace planner

}  // namespace chunkmem::inline v0
