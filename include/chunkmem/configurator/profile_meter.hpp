// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/chain_timeline.hpp>
#include <chunkmem/configurator/model_profile.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// The kinds of runs of a part.
enum class profiled_run : std::uint8_t {
  forward,
  backward,         ///< of both gradients: each gets a half of its seconds
  backward_input,   ///< of the gradient of the input
  backward_weight,  ///< of the gradients of the weights
};
inline constexpr std::size_t profiled_runs = 4;

/// A run of a part that was measured: its seconds, and its accesses in the record of its iteration.
///
///     const measured_run first{.part = 0, .run = profiled_run::forward, .begin = 0, .end = 12, .seconds = 0.004};
struct measured_run {
  std::size_t part = 0;
  profiled_run run = profiled_run::forward;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  double seconds = 0;
};

/// The members of a profile that are not measured.
///
///     const profile_description described{.name = "gpt", .kind = "node-0", .rows = 4};
struct profile_description {
  std::string name{};
  std::string kind{};      ///< cluster_node::kind of the machine that measures
  std::uint64_t rows = 1;  ///< of a micro-batch
  bytes input_of_row{};    ///< of the first part
};

namespace detail {

/// The bytes of parts, from the record of an iteration and the runs of its first micro-batch.
class recorded_sizes {
 public:
  /// A tensor of activations, or one of weights, by its slot.
  struct recorded_tensor {
    std::uint64_t size = 0;  ///< bytes of activations, elements of weights
    bool is_weight = false;
  };
  using tensors = std::map<std::uint32_t, recorded_tensor>;  // by slot

  recorded_sizes(const access_record& record, const std::vector<measured_run>& runs, const tensors& all,
                 std::size_t parts)
      : record_{record},
        run_of_access_(record.size(), nullptr),
        backward_(parts, access_record::never),
        growth_(record.size() + std::size_t{1}, 0),
        weights(parts),
        sizes{.saved = std::vector<std::uint64_t>(parts),
              .boundary = std::vector<std::uint64_t>(parts),
              .transient = std::vector<std::uint64_t>(parts)}
  {
    for (const measured_run& run : runs) {
      if (run.begin == run.end || record.entries()[run.begin].micro_batch != 0) continue;
      for (std::uint32_t access = run.begin; access < run.end; ++access) run_of_access_[access] = &run;
      if (run.run != profiled_run::forward)
        backward_[run.part] = std::min(backward_[run.part], run.begin);
      else if (run.begin > backward_[run.part])
        throw config_error{error_text{} << "chunkmem: part " << run.part
                                        << " of a profile ran forward again after its backward run (measure an "
                                           "iteration that runs each layer forward once)"};
    }
    for (std::uint32_t access = 0; access < record.size(); ++access) look_at(access, all);
    for (auto& [slot, life] : alive_) end(life, record.size());
    take_transients();
  }

 private:
  /// A tensor or a lease that a run has made.
  struct made_bytes {
    const measured_run* by = nullptr;
    std::uint64_t size = 0;
    std::uint32_t begin = 0;
    std::uint32_t last = 0;  ///< access after its last use
    bool is_passed_on = false;
    bool is_kept = false;
  };

  void look_at(std::uint32_t access, const tensors& all)
  {
    const access_entry& entry = record_.entries()[access];
    const measured_run* const run = run_of_access_[access];
    if (is_lease(entry.kind)) {
      if (run == nullptr || tier_of(entry.kind) != tier::device) return;
      const entry_detail& lease = record_.details()[access];
      made_bytes life{.by = run, .size = lease.bytes, .begin = access, .last = std::min(lease.until, record_.size())};
      if (life.last > run->end) (life.last > backward_[run->part] ? life.is_kept : life.is_passed_on) = true;
      return end(life, life.last);
    }
    const auto found = all.find(entry.slot);
    if (found == all.end() || run == nullptr) return;
    if (found->second.is_weight) return use_weight(run->part, entry.slot, found->second.size);
    const auto alive = alive_.find(entry.slot);
    if (entry.kind == entry_kind::drop) {
      if (alive == alive_.end()) return;
      end(alive->second, access);
      alive_.erase(alive);
    } else if (alive != alive_.end() && !makes_anew(alive->second, *run, entry.kind)) {
      use(alive->second, *run, access);
    } else if (writes(access_of(entry.kind))) {
      if (alive != alive_.end()) end(alive->second, access);
      alive_.insert_or_assign(entry.slot,
                              made_bytes{.by = run, .size = found->second.size, .begin = access, .last = access + 1});
    }
  }
  /// Whether a run overwrites all values of the run before.
  static bool makes_anew(const made_bytes& life, const measured_run& run, entry_kind kind)
  {
    return life.by != &run && access_of(kind) == access::write;
  }
  static void use(made_bytes& life, const measured_run& run, std::uint32_t access)
  {
    life.last = access + 1;
    if (run.run != profiled_run::forward)
      life.is_kept = life.is_kept || life.by->run == profiled_run::forward;
    else if (run.part != life.by->part)
      life.is_passed_on = true;
  }
  void use_weight(std::size_t part, std::uint32_t slot, std::uint64_t elements)
  {
    std::vector<std::size_t>& parts = parts_of_weight[slot];
    if (std::ranges::find(parts, part) != parts.end()) return;
    parts.push_back(part);
    weights[part].push_back(elements);
  }
  /// @param at   access before which its bytes are given back
  void end(const made_bytes& life, std::uint32_t at)
  {
    const std::size_t part = life.by->part;
    if (life.by->run == profiled_run::forward && life.is_passed_on)
      sizes.boundary[part] += life.size;
    else if (life.by->run == profiled_run::forward && life.is_kept)
      sizes.saved[part] += life.size;
    else if (at <= life.by->end || life.last <= life.by->end) {
      growth_[life.begin] += static_cast<std::int64_t>(life.size);
      growth_[std::min(at, life.by->end)] -= static_cast<std::int64_t>(life.size);
    }
  }
  void take_transients()
  {
    std::int64_t now = 0;
    for (std::uint32_t access = 0; access < record_.size(); ++access) {
      now += growth_[access];
      if (run_of_access_[access] == nullptr) continue;
      std::uint64_t& most = sizes.transient[run_of_access_[access]->part];
      most = std::max(most, static_cast<std::uint64_t>(now));
    }
  }

  const access_record& record_;
  std::vector<const measured_run*> run_of_access_;  // null: of no run of the first micro-batch
  std::vector<std::uint32_t> backward_;             // by part: its first access backward
  std::vector<std::int64_t> growth_;                // by access: of the transient bytes
  std::map<std::uint32_t, made_bytes> alive_;       // by slot

 public:
  std::map<std::uint32_t, std::vector<std::size_t>> parts_of_weight;  // by slot
  std::vector<std::vector<std::uint64_t>> weights;
  profiled_sizes sizes;
};

}  // namespace detail

/// Measures the iterations of a trainer on one rank, and makes a profile.
///
///     profile_meter meter{m, layers};
///     for (int step = 0; step < 5; ++step) {
///       {
///         const auto iteration = m.iteration();
///         for (std::size_t layer = 0; layer < layers; ++layer) {
///           const auto running = meter.during(layer, profiled_run::forward);
///           run_forward(layer);
///         }
///         ... backward ...
///       }
///       meter.end_iteration();
///     }
///     const model_profile found = meter.profile({.name = "mine", .kind = "node-0", .rows = 8}, parts);
///
/// Seconds are those of the manager's backend, without waits of the calling thread for copies. A part may run several
/// times in a micro-batch. Its seconds are the mean over the micro-batches of an iteration, and the least over all
/// iterations: the first ones touch memory for the first time.
///
/// Bytes are those of the last iteration, by its record, in the runs of the first micro-batch. Weights are parameters
/// and frozen tensors that the part uses. Other bytes are tensors with the role `activation`, and leases on the device.
/// Those that a forward run makes are
/// - the boundary, if another part uses them forward, or if a lease ends between the two runs of the part;
/// - saved, if the backward run has them;
/// - else transient, as are those that end in a backward run. The peak of these counts.
/// A gradient that goes from one part to another is none of these.
///
/// Cost: a report of the manager for each run. `profile` is O(entries of the record + tensors)
/// @tparam Manager   of one rank
template <class Manager>
class profile_meter {
 public:
  /// @param m   outlives this   @param parts   of the model, in the order of a forward run
  profile_meter(Manager& m, std::size_t parts) : m_{m}, now_(parts), shortest_(parts) {}
  profile_meter(const profile_meter&) = delete;
  profile_meter& operator=(const profile_meter&) = delete;

  /// While it lives, a part runs. Runs do not overlap. Nothing is measured in a rehearsal.
  class running {
   public:
    running(profile_meter& meter, std::size_t part, profiled_run run) : meter_{meter}
    {
      if (meter.m_.rehearsing()) return;
      const std::uint32_t begin = meter.m_.access_index();
      if (!meter.runs_.empty() && begin < meter.runs_.back().end)
        meter.runs_.clear();  // its iteration did not end here
      meter.runs_.push_back({.part = part, .run = run, .begin = begin});
      begin_ = activation::chain_clock::read(meter.m_);
    }
    running(const running&) = delete;
    running& operator=(const running&) = delete;
    ~running()
    {
      if (meter_.m_.rehearsing()) return;
      measured_run& mine = meter_.runs_.back();
      mine.seconds = std::max(activation::chain_clock::read(meter_.m_) - begin_, 0.0);
      mine.end = meter_.m_.access_index();
    }

   private:
    profile_meter& meter_;
    double begin_ = 0;
  };
  /// @pre part < parts
  [[nodiscard]] running during(std::size_t part, profiled_run run) { return running{*this, part, run}; }

  /// Call this after each iteration, except one that was left by an exception, which is not measured.
  /// @param name   of the iteration   @throws config_error   there was no such iteration, or it has fewer accesses
  void end_iteration(std::string_view name = "train")
  {
    const access_record* const record = m_.profile(name);
    if (record == nullptr || record->empty())
      throw config_error{error_text{} << "chunkmem: a profile of the iteration \"" << name
                                      << "\", which never ran (name the one that ran)"};
    if (!runs_.empty() && runs_.back().end > record->size())
      throw config_error{error_text{} << "chunkmem: the runs of a profile have more accesses than the iteration \""
                                      << name << "\" (name the one that ran)"};
    const auto micro_batches = std::ranges::max(record->entries(), {}, &access_entry::micro_batch).micro_batch + 1;
    for (auto& of_part : now_) of_part.fill(0);
    for (const measured_run& it : runs_) now_[it.part][index(it.run)] += it.seconds / micro_batches;
    for (std::size_t part = 0; part < now_.size(); ++part)
      for (std::size_t run = 0; run < profiled_runs; ++run)
        shortest_[part][run] = iterations_ == 0 ? now_[part][run] : std::min(shortest_[part][run], now_[part][run]);
    ++iterations_;
    record_ = record;
    last_.swap(runs_);
    runs_.clear();
  }

  /// The profile of all iterations so far. @pre no iteration began since the last end_iteration
  /// @throws config_error   a part has no forward or no backward run, or runs forward again; a weight that more than
  ///   two parts use, or a second one that two parts use; an invalid profile
  [[nodiscard]] model_profile profile(const profile_description& of, std::vector<profiled_part> parts)
  {
    if (iterations_ == 0) throw config_error{"a profile of no iteration (run some, and end each by end_iteration)"};
    const detail::recorded_sizes found{*record_, last_, tensors(), now_.size()};
    model_profile made{.name = of.name, .input_of_row = of.input_of_row, .parts = std::move(parts)};
    made.weights.push_back({.tensor = 1, .elements = found.weights});
    made.sizes.push_back(found.sizes);
    made.sizes.back().rows = of.rows;
    made.times.push_back({.kind = of.kind, .tensor = 1, .rows = of.rows});
    for (std::size_t part = 0; part < now_.size(); ++part) made.times.back().of_parts.push_back(seconds_of(part));
    for (const auto& [slot, users] : found.parts_of_weight)
      if (users.size() > 1) {
        if (users.size() > 2 || made.tie)
          throw config_error{error_text{} << "chunkmem: a profile has one weight that two parts use, and part "
                                          << users.back() << " uses another one (make these parts one part)"};
        made.tie = profiled_tie{.first_part = static_cast<std::uint32_t>(std::ranges::min(users)),
                                .last_part = static_cast<std::uint32_t>(std::ranges::max(users)),
                                .elements = tensors().at(slot).size};
      }
    made.check();
    return made;
  }

 private:
  [[nodiscard]] static std::size_t index(profiled_run run) noexcept { return static_cast<std::size_t>(run); }

  [[nodiscard]] run_seconds seconds_of(std::size_t part) const
  {
    const auto has = [&](auto... runs) {
      return std::ranges::any_of(last_,
                                 [&](const measured_run& it) { return it.part == part && ((it.run == runs) || ...); });
    };
    using enum profiled_run;
    if (!has(forward) || !has(backward, backward_input, backward_weight))
      throw config_error{error_text{} << "chunkmem: part " << part
                                      << " of a profile has no forward run or no backward run (measure both)"};
    const auto& of = shortest_[part];
    const double half = of[index(backward)] / 2;
    return {of[index(forward)], half + of[index(backward_input)], half + of[index(backward_weight)]};
  }
  [[nodiscard]] detail::recorded_sizes::tensors tensors()
  {
    detail::recorded_sizes::tensors all;
    m_.for_each_tensor([&](tensor_handle it, const auto& info) {
      const std::uint64_t elements = info.extents.elements();
      if (info.part == role::parameter || info.part == role::frozen)
        all[m_.slot_of(it)] = {.size = elements, .is_weight = true};
      else if (info.part == role::activation)
        all[m_.slot_of(it)] = {.size = elements * size_of(info.type)};
    });
    return all;
  }

  using seconds_of_runs = std::array<double, profiled_runs>;

  Manager& m_;
  std::vector<measured_run> runs_, last_;  // of this iteration, and of the last one
  std::vector<seconds_of_runs> now_, shortest_;
  std::size_t iterations_ = 0;
  const access_record* record_ = nullptr;
};

/// Adds the sizes and times of a profile of the same model: other rows of a micro-batch, degrees or kinds of devices.
///
///     model_profile both = of_one_row;
///     add_measurements(both, of_eight_rows);
///
/// @throws config_error   parts or weights differ, or both have a measurement of the same conditions; `to` is unchanged
inline void add_measurements(model_profile& to, const model_profile& of)
{
  model_profile sum = to;
  for (const profiled_weights& it : of.weights) {
    const auto known = std::ranges::find(to.weights, it.tensor, &profiled_weights::tensor);
    if (known == to.weights.end())
      sum.weights.push_back(it);
    else if (*known != it)
      throw config_error{error_text{} << "chunkmem: the profiles \"" << to.name << "\" and \"" << of.name
                                      << "\" have other weights (measure one model)"};
  }
  if (to.parts != of.parts || to.tie != of.tie || to.input_of_row != of.input_of_row)
    throw config_error{error_text{} << "chunkmem: the profiles \"" << to.name << "\" and \"" << of.name
                                    << "\" have other parts (measure one model)"};
  for (const profiled_sizes& it : of.sizes)
    if (std::ranges::find(to.sizes, it) == to.sizes.end()) sum.sizes.push_back(it);
  sum.times.insert(sum.times.end(), of.times.begin(), of.times.end());
  sum.check();
  to = std::move(sum);
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
