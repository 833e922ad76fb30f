// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// The seconds of the runs of a micro-batch.
///
///     const run_seconds of_part = profile.seconds("t4", 3, 1, 8);
struct run_seconds {
  double forward = 0;
  double backward_input = 0;   ///< the gradient of the input
  double backward_weight = 0;  ///< the gradients of the weights

  [[nodiscard]] bool operator==(const run_seconds&) const = default;
  [[nodiscard]] constexpr double sum() const noexcept { return forward + backward_input + backward_weight; }
  constexpr run_seconds& operator+=(const run_seconds& more) noexcept
  {
    forward += more.forward;
    backward_input += more.backward_input;
    backward_weight += more.backward_weight;
    return *this;
  }
};

/// An indivisible part of a model: a layer, or an operator.
///
///     const profiled_part block{.name = "block 3", .all_reduces = 2};
struct profiled_part {
  std::string name;
  std::uint32_t layers = 1;       ///< its weight where stages have equal numbers of layers
  std::uint32_t all_reduces = 0;  ///< in a forward run over ranks that share it; a backward run has as many

  [[nodiscard]] bool operator==(const profiled_part&) const = default;
};

/// The weights of each part on one of `tensor` ranks that share it.
///
///     const profiled_weights whole{.tensor = 1, .elements = {{512 * 64}, {64 * 64, 64}}};
struct profiled_weights {
  std::uint32_t tensor = 1;
  std::vector<std::vector<std::uint64_t>> elements{};  ///< by part: of each tensor

  [[nodiscard]] bool operator==(const profiled_weights&) const = default;
};

/// The bytes of each part on one of `tensor` ranks, for a micro-batch of `rows` rows.
///
///     const profiled_sizes one_row{.saved = {0, 4096}, .boundary = {4096, 512}, .transient = {0, 8192}};
struct profiled_sizes {
  std::uint32_t tensor = 1;
  std::uint64_t rows = 1;
  std::vector<std::uint64_t> saved{};      ///< by its forward run for its backward run, without its input [B]
  std::vector<std::uint64_t> boundary{};   ///< its output [B]
  std::vector<std::uint64_t> transient{};  ///< in addition while it runs [B]

  [[nodiscard]] bool operator==(const profiled_sizes&) const = default;
};

/// The measured seconds of each part on a kind of device.
///
///     const profiled_times one_row{.kind = "t4", .of_parts = {{0.002, 0.002, 0.002}, {0.005, 0.005, 0.005}}};
struct profiled_times {
  std::string kind;  ///< cluster_node::kind of the nodes that are as fast
  std::uint32_t tensor = 1;
  std::uint64_t rows = 1;
  std::vector<run_seconds> of_parts{};

  [[nodiscard]] bool operator==(const profiled_times&) const = default;
};

/// A tensor that two parts share. On two stages each has a copy, and the gradients of the copies are summed.
///
///     profile.tie = profiled_tie{.first_part = 0, .last_part = 28, .elements = 52'256 * 1024};
struct profiled_tie {
  std::uint32_t first_part = 0;
  std::uint32_t last_part = 0;
  std::uint64_t elements = 0;  ///< of the whole tensor; the weights of both parts have their share of it

  [[nodiscard]] bool operator==(const profiled_tie&) const = default;
  /// Elements on one of `tensor` ranks.
  [[nodiscard]] constexpr std::uint64_t share(std::uint32_t tensor) const noexcept
  {
    return (elements + tensor - 1) / tensor;
  }
  /// Whether the parts from `first` up to `end` include both.
  [[nodiscard]] constexpr bool is_within(std::uint64_t first, std::uint64_t end) const noexcept
  {
    return first_part >= first && last_part < end;
  }
};

/// A model as measured: its parts in the order of a forward run, with their seconds and bytes.
///
/// Between two measured micro-batches a number is on the line through them. Beyond them it is on the line through the
/// two nearest, but within two bounds: fewer rows take at least their share of the nearest number, and more rows at
/// least all of it. Of one measured micro-batch a number is proportional to the rows.
///
/// Where `times_have_sums`, times at a tensor-parallel degree t above 1 contain the sums over the ranks that share a
/// part, as measured inside a node of that kind. Runs of ranks on several nodes take the longer of two times: the
/// measured one, and the computing time plus the sums over the links of these ranks. The computing time is 1/t of the
/// time at degree 1, or the measured time where degree 1 was not measured. Without `times_have_sums` the sums are added
/// everywhere.
///
///     const trained_model model{read_profile("gpt2.profile")};  // of profile_file.hpp
///     const step_seconds found = step_latency{whole, model}.of(plan);
///
/// Cost of a look-up: O(measured micro-batches)
struct model_profile {
  std::string name;
  bytes input_of_row{};  ///< of the first part
  bool times_have_sums = false;
  std::vector<profiled_part> parts;
  std::vector<profiled_weights> weights{};  ///< one for each tensor-parallel degree
  std::vector<profiled_sizes> sizes{};
  std::vector<profiled_times> times{};
  std::optional<profiled_tie> tie{};

  [[nodiscard]] bool operator==(const model_profile&) const = default;

  /// Whether a plan can have this tensor-parallel degree.
  [[nodiscard]] bool has_degree(std::uint32_t tensor) const
  {
    const auto is_of_degree = [&](const auto& it) { return it.tensor == tensor; };
    return std::ranges::any_of(weights, is_of_degree) && std::ranges::any_of(sizes, is_of_degree) &&
           std::ranges::any_of(times, is_of_degree);
  }
  /// The kinds of devices, in the order of their times.
  [[nodiscard]] std::vector<std::string> kinds() const
  {
    std::vector<std::string> all;
    for (const profiled_times& it : times)
      if (std::ranges::find(all, it.kind) == all.end()) all.push_back(it.kind);
    return all;
  }
  /// Whether this kind of device was measured at this degree.
  [[nodiscard]] bool has_times(std::string_view kind, std::uint32_t tensor) const
  {
    return std::ranges::any_of(times, [&](const profiled_times& it) { return it.kind == kind && it.tensor == tensor; });
  }
  /// The seconds of a part. @throws config_error   this kind was not measured at this degree
  [[nodiscard]] run_seconds seconds(std::string_view kind, std::size_t part, std::uint32_t tensor,
                                    std::uint64_t rows) const
  {
    const auto of = [&](double run_seconds::*run) {
      return at(
          times, rows, [&](const profiled_times& it) { return it.kind == kind && it.tensor == tensor; },
          [&](const profiled_times& it) { return it.of_parts[part].*run; }, kind);
    };
    return {of(&run_seconds::forward), of(&run_seconds::backward_input), of(&run_seconds::backward_weight)};
  }
  /// Bytes of a part. @param which   &profiled_sizes::saved, &profiled_sizes::boundary or &profiled_sizes::transient
  /// @throws config_error   the degree was not measured
  [[nodiscard]] bytes size(std::vector<std::uint64_t> profiled_sizes::*which, std::size_t part, std::uint32_t tensor,
                           std::uint64_t rows) const
  {
    const double size = at(
        sizes, rows, [&](const profiled_sizes& it) { return it.tensor == tensor; },
        [&](const profiled_sizes& it) { return static_cast<double>((it.*which)[part]); }, "sizes");
    if (!(size < 1e18))
      throw config_error{"a part of a profile has more bytes than a machine counts (plan fewer rows)"};
    return bytes{static_cast<std::uint64_t>(size + 0.5)};
  }
  /// The tensors of a part on one of `tensor` ranks. @throws config_error   the degree was not measured
  [[nodiscard]] const std::vector<std::uint64_t>& weights_of(std::size_t part, std::uint32_t tensor) const
  {
    for (const profiled_weights& it : weights)
      if (it.tensor == tensor) return it.elements[part];
    refuse_degree(tensor, "weights");
  }

  /// @throws config_error   one sentence with the first invalid member
  void check() const;

 private:
  [[noreturn]] void refuse_degree(std::uint32_t tensor, std::string_view what) const
  {
    throw config_error{error_text{} << "chunkmem: the profile \"" << name << "\" has no " << what << " for " << tensor
                                    << " ranks that share a part (measure them, or plan another degree)"};
  }

  /// A number at this many rows, from the matching entries of a list.
  template <class Entry, class Counts, class Number>
  [[nodiscard]] static double at(const std::vector<Entry>& list, std::uint64_t rows, Counts counts, Number number,
                                 std::string_view what)
  {
    // The two nearest: the largest one up to `rows` with the one above it, else the two at the end that is nearer.
    const Entry *below = nullptr, *above = nullptr, *second_below = nullptr, *second_above = nullptr;
    for (const Entry& it : list) {
      if (!counts(it)) continue;
      const bool is_below = it.rows <= rows;
      const Entry*& nearest = is_below ? below : above;
      const Entry*& second = is_below ? second_below : second_above;
      const auto is_nearer = [&](const Entry* other) {
        return other == nullptr || (is_below ? it.rows > other->rows : it.rows < other->rows);
      };
      if (is_nearer(nearest))
        second = std::exchange(nearest, &it);
      else if (is_nearer(second))
        second = &it;
    }
    if (below == nullptr && above == nullptr)
      throw config_error{error_text{} << "chunkmem: a profile has no " << what
                                      << " for this degree of tensor parallelism (measure them, or plan another one)"};
    const Entry* const one = below != nullptr ? below : above;
    const Entry* const other = below == nullptr ? second_above : above != nullptr ? above : second_below;
    const auto distance = [](const Entry* from, double to) { return to - static_cast<double>(from->rows); };
    const auto wanted = static_cast<double>(rows);
    if (other == nullptr) return number(*one) * wanted / static_cast<double>(one->rows);
    const double slope = (number(*other) - number(*one)) / distance(one, static_cast<double>(other->rows));
    const double on_line = number(*one) + slope * distance(one, wanted);
    if (below != nullptr && above != nullptr) return on_line;
    return std::max(on_line, number(*one) * std::min(1.0, wanted / static_cast<double>(one->rows)));
  }
};

namespace detail {

/// An invalid member of a profile. The key is that of its file.
struct profile_problem {
  std::string key;  ///< empty: nothing
  std::string why;
};

inline constexpr std::uint64_t most_elements = 1'000'000'000'000;  // of a tensor: sums do not overflow

[[nodiscard]] inline std::string text_of_size(std::uint32_t tensor, std::uint64_t rows)
{
  return std::to_string(tensor) + " x " + std::to_string(rows);
}

/// Finds two lists with one degree and size, or a list without one number for each part.
template <class Entry, class Key, class IsSame, class Lengths>
[[nodiscard]] profile_problem problem_of_entries(const std::vector<Entry>& all, std::size_t parts, Key key,
                                                 IsSame is_same, Lengths lengths)
{
  for (std::size_t index = 0; index < all.size(); ++index) {
    const Entry& it = all[index];
    if (it.tensor == 0) return {key(it), "is for 0 ranks (give one or more)"};
    for (const std::size_t length : lengths(it))
      if (length != parts)
        return {key(it), "has " + std::to_string(length) + " parts, and the profile has " + std::to_string(parts) +
                             " (give one for each part)"};
    for (std::size_t other = 0; other < index; ++other)
      if (is_same(it, all[other])) return {key(it), "is there twice (remove one)"};
  }
  return {};
}

[[nodiscard]] inline profile_problem problem_of_lists(const model_profile& it)
{
  using lengths = std::vector<std::size_t>;
  const std::size_t parts = it.parts.size();
  profile_problem found = problem_of_entries(
      it.weights, parts, [](const auto& of) { return "weights." + std::to_string(of.tensor); },
      [](const auto& one, const auto& other) { return one.tensor == other.tensor; },
      [](const auto& of) { return lengths{of.elements.size()}; });
  const auto key_of_sizes = [](const auto& of) { return "sizes." + text_of_size(of.tensor, of.rows); };
  const auto key_of_times = [](const auto& of) { return "times." + of.kind + '.' + text_of_size(of.tensor, of.rows); };
  if (found.key.empty())
    found = problem_of_entries(
        it.sizes, parts, key_of_sizes,
        [](const auto& one, const auto& other) { return one.tensor == other.tensor && one.rows == other.rows; },
        [](const auto& of) {
          return lengths{of.saved.size(), of.boundary.size(), of.transient.size()};
        });
  if (found.key.empty())
    found = problem_of_entries(
        it.times, parts, key_of_times,
        [](const auto& one, const auto& other) {
          return one.tensor == other.tensor && one.rows == other.rows && one.kind == other.kind;
        },
        [](const auto& of) { return lengths{of.of_parts.size()}; });
  if (!found.key.empty()) return found;
  for (const profiled_weights& of : it.weights)
    for (const std::vector<std::uint64_t>& tensors : of.elements)
      for (const std::uint64_t elements : tensors)
        if (elements == 0 || elements > most_elements)
          return {"weights." + std::to_string(of.tensor),
                  "has a tensor that no part has (give it from 1 to 1e12 elements, or leave it out)"};
  for (const profiled_sizes& of : it.sizes)
    if (of.rows == 0) return {key_of_sizes(of), "is for 0 rows (give one or more)"};
  for (const profiled_times& of : it.times) {
    if (of.rows == 0) return {key_of_times(of), "is for 0 rows (give one or more)"};
    if (of.kind.empty()) return {"times", "has a kind of device without a name (give it that of its nodes)"};
    if (of.kind.find_first_of(".[") != of.kind.npos)
      return {"times", "has the kind of device \"" + of.kind + "\" (give it a name without . and [)"};
    for (const run_seconds& run : of.of_parts)
      for (const double seconds : {run.forward, run.backward_input, run.backward_weight})
        if (!(seconds >= 0 && seconds < 1e6))
          return {key_of_times(of), "has a time that no run takes (give seconds: 5 milliseconds are 5e-3)"};
  }
  return {};
}

[[nodiscard]] inline profile_problem problem_of(const model_profile& it)
{
  if (it.name.empty()) return {"name", "is empty (give the profile a name)"};
  if (it.parts.empty()) return {"parts", "is empty (give one or more)"};
  if (it.weights.empty()) return {"weights", "is empty (give those of a degree)"};
  if (it.sizes.empty()) return {"sizes", "is empty (give those of a micro-batch)"};
  if (it.times.empty()) return {"times", "is empty (give those of a micro-batch)"};
  if (profile_problem found = problem_of_lists(it); !found.key.empty()) return found;
  for (const profiled_weights& of : it.weights)
    if (!it.has_degree(of.tensor))
      return {"weights." + std::to_string(of.tensor), "is of a degree without sizes or times (measure them)"};
  if (it.tie && (it.tie->first_part >= it.tie->last_part || it.tie->last_part >= it.parts.size()))
    return {"tie", "names no two parts, the first one first (the first part is 0)"};
  if (it.tie)
    for (const profiled_weights& of : it.weights)
      for (const std::uint32_t part : {it.tie->first_part, it.tie->last_part})
        if (std::ranges::find(of.elements[part], it.tie->share(of.tensor)) == of.elements[part].end())
          return {"tie", "has " + std::to_string(it.tie->share(of.tensor)) + " elements on each of " +
                             std::to_string(of.tensor) + " ranks, and part " + std::to_string(part) +
                             " has no tensor of so many (give both parts the tensor)"};
  return {};
}

}  // namespace detail

/// Adds backward runs to a profile that has only forward runs, by a rule. A backward run computes twice as long as a
/// forward run, a half for each gradient, and has as many sums over ranks that share the part.
///
/// So at a tensor-parallel degree t above 1, where times have sums and degree 1 was measured too, a forward run
/// computes for 1/t of the time at degree 1, at most all of its time, and sums for the rest. Its backward run takes
/// twice the computing time and once the time of sums. Without degree 1 all of it is computing time.
///
///     const trained_model model{with_backward_runs(forward_alone)};
///
/// Source: Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053), whose layers have two all-reduces in a forward run and
/// two of as many bytes in a backward run. Cost: O(times x parts)
[[nodiscard]] inline model_profile with_backward_runs(model_profile profile)
{
  profile.check();
  const model_profile forward_alone = profile;
  for (profiled_times& it : profile.times)
    for (std::size_t part = 0; part < it.of_parts.size(); ++part) {
      run_seconds& run = it.of_parts[part];
      double computing = run.forward;
      if (it.tensor > 1 && profile.times_have_sums && forward_alone.has_times(it.kind, 1))
        computing = std::min(computing, forward_alone.seconds(it.kind, part, 1, it.rows).forward / it.tensor);
      run.backward_input = run.forward;  // computing and sums
      run.backward_weight = computing;
    }
  return profile;
}

inline void model_profile::check() const
{
  const detail::profile_problem found = detail::problem_of(*this);
  if (!found.key.empty())
    throw config_error{error_text{} << "chunkmem: the profile \"" << name << "\" is invalid: " << found.key << " "
                                    << found.why};
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
