// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/model_profile.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/workload/json_fields.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace chunkmem::inline v0 {

namespace configurator {

namespace detail {

inline constexpr std::string_view profile_format = "chunkmem model profile 1";
inline constexpr workload::json_limits profile_limits{
    .file = bytes{std::uint64_t{64} << 20}, .fields = 65'536, .elements = std::size_t{1} << 21};

/// A degree, or a degree and rows: "4", or "4 x 8".
[[nodiscard]] inline std::pair<std::uint32_t, std::uint64_t> size_of_key(const workload::json_fields& fields,
                                                                         const std::string& path,
                                                                         const std::string& name, bool has_rows)
{
  std::uint32_t tensor = 0;
  std::uint64_t rows = 1;
  const char *at = name.data(), *const end = name.data() + name.size();
  const auto take = [&](auto& number) {
    const auto [behind, wrong] = std::from_chars(at, end, number);
    const bool is_taken = wrong == std::errc{} && behind != at;
    at = behind;
    return is_taken;
  };
  constexpr std::string_view between = " x ";
  bool is_size = take(tensor);
  if (is_size && has_rows) {
    is_size = std::string_view{at, end}.starts_with(between);
    at += is_size ? between.size() : 0;
    is_size = is_size && take(rows);
  }
  if (!is_size || at != end)
    fields.refuse(path + '.' + name, has_rows ? "is named after no degree and rows" : "is named after no degree",
                  has_rows ? "name it as \"4 x 8\": 4 ranks that share a part, 8 rows" : "name it as \"4\"");
  return {tensor, rows};
}

/// A list with a number for each part. @throws format_error   it is missing, or has another length
template <class Numbers>
[[nodiscard]] Numbers of_each_part(const workload::json_fields& fields, const std::string& key, Numbers numbers,
                                   std::size_t parts)
{
  if (numbers.size() != parts)
    fields.refuse(
        key, "has " + std::to_string(numbers.size()) + " elements, and there are " + std::to_string(parts) + " parts",
        "give one for each part");
  return numbers;
}

[[nodiscard]] inline profiled_times times_of(workload::json_fields& fields, const std::string& kind,
                                             const std::string& name, std::size_t parts)
{
  const std::string path = "times." + kind;
  const auto [tensor, rows] = size_of_key(fields, path, name, true);
  const auto list = [&](const char* run) {
    const std::string key = path + '.' + name + '.' + run;
    return of_each_part(fields, key, fields.numbers(key), parts);
  };
  profiled_times made{.kind = kind, .tensor = tensor, .rows = rows};
  const std::vector<double> forward = list("forward");
  const bool is_whole = fields.has(path + '.' + name + ".backward");
  const std::vector<double> inputs = list(is_whole ? "backward" : "backward_input");
  const std::vector<double> weights = is_whole ? inputs : list("backward_weight");
  const double share = is_whole ? 0.5 : 1;
  for (std::size_t part = 0; part < parts; ++part)
    made.of_parts.push_back({forward[part], share * inputs[part], share * weights[part]});
  return made;
}

[[nodiscard]] inline std::vector<std::vector<std::uint64_t>> elements_of(workload::json_fields& fields,
                                                                         const std::string& key, std::size_t parts)
{
  std::vector<std::vector<std::uint64_t>> made;
  for (const std::vector<double>& row : of_each_part(fields, key, fields.matrix(key), parts)) {
    made.emplace_back();
    for (const double number : row) {
      const bool is_whole = number < 9e15 && number == static_cast<double>(static_cast<std::uint64_t>(number));
      if (!is_whole) fields.refuse(key, "has a tensor whose elements are no whole number", "count its elements");
      if (number > 0) made.back().push_back(static_cast<std::uint64_t>(number));
    }
  }
  return made;
}

[[nodiscard]] inline std::uint32_t narrow(const workload::json_fields& fields, const std::string& key,
                                          std::uint64_t number)
{
  if (number > UINT32_MAX) fields.refuse(key, "is too large", "write a smaller number");
  return static_cast<std::uint32_t>(number);
}

[[nodiscard]] inline model_profile profile_of(workload::json_fields fields)
{
  if (fields.text("format") != profile_format)
    fields.refuse("format", "is not that of this version", "write \"" + std::string{profile_format} + '"');
  model_profile made;
  made.name = fields.text("name");
  (void)fields.text("source");
  made.input_of_row = bytes{fields.whole("input_bytes_of_row")};
  made.times_have_sums = fields.truth("times_have_sums");
  for (std::string& name : fields.texts("parts.names")) made.parts.push_back({.name = std::move(name)});
  const std::size_t parts = made.parts.size();
  const auto wholes = [&](const std::string& key) { return of_each_part(fields, key, fields.wholes(key), parts); };
  const auto counts = [&](const std::string& key, std::uint32_t profiled_part::*member) {
    const std::vector<std::uint64_t> numbers = wholes(key);
    for (std::size_t part = 0; part < parts; ++part) made.parts[part].*member = narrow(fields, key, numbers[part]);
  };
  counts("parts.layers", &profiled_part::layers);
  counts("parts.all_reduces", &profiled_part::all_reduces);
  if (fields.has("tie"))
    made.tie =
        profiled_tie{narrow(fields, "tie.first_part", fields.whole("tie.first_part")),
                     narrow(fields, "tie.last_part", fields.whole("tie.last_part")), fields.whole("tie.elements")};
  for (const std::string& name : fields.members("weights"))
    made.weights.push_back(
        {size_of_key(fields, "weights", name, false).first, elements_of(fields, "weights." + name, parts)});
  for (const std::string& name : fields.members("sizes")) {
    const auto [tensor, rows] = size_of_key(fields, "sizes", name, true);
    const std::string path = "sizes." + name;
    made.sizes.push_back(
        {tensor, rows, wholes(path + ".saved"), wholes(path + ".boundary"), wholes(path + ".transient")});
  }
  for (const std::string& kind : fields.members("times"))
    for (const std::string& name : fields.members("times." + kind))
      made.times.push_back(times_of(fields, kind, name, parts));
  fields.finish();
  if (const profile_problem wrong = problem_of(made); !wrong.key.empty()) {
    const std::size_t advice = wrong.why.rfind(" (");
    fields.refuse(wrong.key, wrong.why.substr(0, advice), wrong.why.substr(advice + 2, wrong.why.size() - advice - 3));
  }
  return made;
}

}  // namespace detail

/// A profile from JSON text.
///
/// The object has `format`, `name`, `source`, `input_bytes_of_row`, `times_have_sums`, and
/// - `parts`: `names`, `layers` and `all_reduces`, each with an element for each part
/// - `weights`: by tensor-parallel degree, as "2", a list for each part with the elements of its tensors on one rank; a
///   part without weights has [0]
/// - `sizes`: by degree and rows of the micro-batch, as "2 x 8", the bytes `saved`, `boundary` and `transient`
/// - `times`: by kind of device and the same, the seconds `forward`, `backward_input` and `backward_weight`; or
///   `backward` for both together; each gradient has a half
/// - optionally `tie`: `first_part`, `last_part` and `elements`
///
/// `profile_text` writes such a text.
///
///     const trained_model model{parse_profile(text, "profile.json")};
///
/// @param file   a name for messages
/// @throws format_error   one sentence with the file and the key that is wrong
/// Cost: O(length of the text)
[[nodiscard]] inline model_profile parse_profile(std::string_view text, std::string_view file)
{
  return detail::profile_of(workload::json_fields{text, file, detail::profile_limits});
}

/// A profile from a file of JSON text, as `parse_profile` reads it.
///
///     const trained_model model{read_profile(path)};
///
/// @throws format_error   as parse_profile
/// @throws io_error       the file cannot be read
/// Cost: O(size of the file)
[[nodiscard]] inline model_profile read_profile(const std::string& path)
{
  return detail::profile_of(workload::json_fields::of_file(path, detail::profile_limits));
}

/// The text of a profile's file. parse_profile reads it back to the same profile, with times in the order of kinds.
///
///     std::ofstream{path} << profile_text(profile, "measured on 2 nodes");
///
/// @param source   the origin of its numbers, in words
/// @throws config_error   the profile is invalid, or there is no source
/// Cost: O(numbers of the profile)
[[nodiscard]] inline std::string profile_text(const model_profile& profile, std::string_view source)
{
  profile.check();
  if (source.empty()) throw config_error{"a file of a profile without a source (say where its numbers are from)"};
  nlohmann::ordered_json all;
  all["format"] = detail::profile_format;
  all["name"] = profile.name;
  all["source"] = source;
  all["input_bytes_of_row"] = profile.input_of_row.count();
  all["times_have_sums"] = profile.times_have_sums;
  for (const profiled_part& it : profile.parts) {
    all["parts"]["names"].push_back(it.name);
    all["parts"]["layers"].push_back(it.layers);
    all["parts"]["all_reduces"].push_back(it.all_reduces);
  }
  if (profile.tie)
    all["tie"] = {{"first_part", profile.tie->first_part},
                  {"last_part", profile.tie->last_part},
                  {"elements", profile.tie->elements}};
  for (const profiled_weights& it : profile.weights)
    for (const std::vector<std::uint64_t>& part : it.elements)
      all["weights"][std::to_string(it.tensor)].push_back(part.empty() ? std::vector<std::uint64_t>{0} : part);
  for (const profiled_sizes& it : profile.sizes)
    all["sizes"][detail::text_of_size(it.tensor, it.rows)] = {
        {"saved", it.saved}, {"boundary", it.boundary}, {"transient", it.transient}};
  for (const profiled_times& it : profile.times) {
    nlohmann::ordered_json& entry = all["times"][it.kind][detail::text_of_size(it.tensor, it.rows)];
    for (const run_seconds& run : it.of_parts) {
      entry["forward"].push_back(run.forward);
      entry["backward_input"].push_back(run.backward_input);
      entry["backward_weight"].push_back(run.backward_weight);
    }
  }
  return all.dump(2) + '\n';
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
