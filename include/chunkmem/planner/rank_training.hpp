// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/planner/own_chunks.hpp>
#include <chunkmem/planner/peak_watch.hpp>
#include <chunkmem/planner/rank_settings.hpp>
#include <chunkmem/planner/ready_updates.hpp>
#include <chunkmem/planner/timed_optimizer.hpp>
#include <chunkmem/planner/training_script.hpp>
#include <chunkmem/planner/training_timeline.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>
#include <chunkmem/transfer/planned.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// A representative rank of a machine that trains a transformer: the real manager and the real optimizer step, on
/// virtual clocks.
///
/// The caller only enqueues, as on a GPU, and updates on the host. On one rank it declares the tensors of the model,
/// and the manager lays them out. Over ranks own chunks are frames of 16-bit elements, and a 32-bit list has two chunks
/// where the 16-bit list has one. A group is gathered ahead, as rank_settings::exchange says, on an agent of its own,
/// into a lease that lives as long as the passes. Gradients are scattered the same way. Good for the question how long
/// a step takes, and on one rank for its bytes; over ranks see scripted_rank. Poor for kernels of less than a
/// microsecond, and where devices share a switch with devices that do other work. Source: ZeRO-3 on chunks as in
/// PatrickStar (Fang et al. 2021, arXiv 2108.05818). Cost: a few microseconds for each access.
///
/// Use:
///
///     const training_forecast found = forecast_training(shape, setup, share);   // drives a rank_training
template <eviction_policy Eviction = eviction::belady, transfer_policy Transfer = transfer::planned,
          chunk_layout Layout = size_class_layout>
class rank_training {
 public:
  using manager_type =
      manager<backend::simulated, Layout, Eviction, Transfer, placement::update_share, planned_gradient, timeline_sink>;

  /// @throws config_error   an impossible shape, set-up or setting; groups, script and share must outlive this object
  rank_training(const parameter_groups& groups, const training_script& script, const workload::rank_share& share,
                const rank_settings& settings, per_tier<bytes> capacity, Eviction eviction = {}, Transfer transfer = {},
                Layout layout = {})
      : groups_{groups},
        script_{script},
        ranks_{share.ranks},
        chunk_{chunk_elements_of(settings, share.ranks)},
        takes_norm_{settings.takes_norm},
        has_wide_gradients_{settings.has_wide_gradients()},
        exchange_{exchange_of(share, settings)},
        costs_{costs_of(share, settings)},
        backend_{{capacity[tier::device], capacity[tier::host], costs_, true}},
        kernel_{update_rates_of(share, settings), settings.states},
        manager_{backend_,
                 {.chunk_bytes = bytes{2} * chunk_},
                 layout,
                 eviction,
                 transfer,
                 placement::update_share{settings.device_update_share},
                 settings.gradient,
                 timeline_sink{backend_, costs_, access_indices_, timeline_.copies, &timeline_.departures}},
        late_{manager_, kernel_},
        updates_late_{settings.updates_late},
        gathers_ahead_{script.gathers_ahead() != 0},
        collective_{share.ranks > 1 ? backend_.adopt() : agent::compute},
        sums_{gathers_ahead_ ? backend_.adopt() : collective_}
  {
    chunks_ = declare_own_chunks(manager_, groups, chunk_, ranks_);
    for (std::uint32_t group = 0; group < chunks_.size(); ++group)
      group_of_.insert(group_of_.end(), chunks_[group].count, group);
    declare_activations();
    manager_.use(kernel_);
    leases_.resize(script.leases());
    gathered_at_.resize(script.units());
    freed_at_.resize(script.units());
    access_indices_ = {&manager_,
                       [](const void* context) { return static_cast<const manager_type*>(context)->access_index(); }};
    kernel_.watch(backend_, access_indices_, timeline_.updating);
  }

  /// @throws config_error   the step does not fit, with the bytes that it needs
  memory_requirement rehearse()
  {
    return manager_.rehearse([this] { step(); });
  }
  /// The first iteration has a plan already. @pre   of the same groups, script and settings; nothing is filled
  void follow(const access_record& profile) { manager_.use_profile(profile); }
  /// Fills the weights on the host, as after reading a file.
  void fill()
  {
    for (const own_chunk& own : chunks_)
      for (const tensor<bf16> each : own.parts()) (void)manager_.acquire(each, access::write, memory_location::host);
  }

  void step()
  {
    timeline_.copies.clear(), timeline_.departures.clear();
    timeline_.computing.clear();
    timeline_.gathering.clear();
    timeline_.updating.clear();
    timeline_.begin = backend_.now();
    auto scope = manager_.iteration();
    passes(scope);
    optimizer::step_options options;
    options.skip_nonfinite = false;
    if (takes_norm_) options.clip.norm = 1.0F;
    if (gathers_ahead_) {
      optimizer::detail::caller_driver<manager_type, timed_optimizer, const serial> driver{
          manager_, kernel_, {manager_.backend(), on_this_thread}};
      driver.run(options, gathering_timing{{}, *this});
    } else if (updates_late_) {
      choose_first();
      late_.step(options, first_);
    } else {
      optimizer::step(manager_, kernel_, options);
    }
    if (gathered_.is_live()) give(gathered_);
    for (const timed_update& it : timeline_.updating)
      if (it.place == memory_location::device && it.end - 1 < computed_.size()) computed_[it.end - 1] += it.nanoseconds;
    timeline_.end = backend_.now();
  }

  [[nodiscard]] const backend::simulated& clocks() const noexcept { return backend_; }
  [[nodiscard]] manager_type& engine() noexcept { return manager_; }
  [[nodiscard]] const timed_optimizer& kernel() const noexcept { return kernel_; }
  /// The timeline of the last iteration.
  [[nodiscard]] const training_timeline& timeline() const noexcept { return timeline_; }
  /// The time of computing at each access of the record, updates on the device included [ns].
  [[nodiscard]] std::span<const std::uint64_t> computed() const noexcept { return computed_; }
  /// The number of weight tensors of the rank.
  [[nodiscard]] std::uint32_t parameters() const noexcept
  {
    std::uint32_t all = 0;
    for (const own_chunk& own : chunks_) all += own.count;
    return all;
  }
  [[nodiscard]] std::uint64_t collective_busy() const noexcept { return collective_busy_; }

 private:
  using lease_type = chunkmem::lease<typename manager_type::engine_type>;
  using pin_type = typename manager_type::template pin_type<const bf16>;
  using activation_pin = std::variant<pin_type, typename manager_type::template pin_type<bf16>>;

  /// All updates at once, each after its sum. Some groups are gathered for the next pass when their parts are updated:
  /// sharding::rank_step does the same.
  struct gathering_timing : optimizer::detail::update_at_once {
    rank_training& self;
    void passed(std::uint32_t ordinal)
    {
      const std::uint32_t group = self.group_of_[ordinal];
      const act* const first = self.script_.ahead(group);
      const bool is_last_part = ordinal + 1 == self.group_of_.size() || self.group_of_[ordinal + 1] != group;
      if (first != nullptr && is_last_part) self.gather(*first);
    }
  };

  /// Units of the rest of a group, and the own parts of gradients that stay in them.
  [[nodiscard]] bytes room_for_units() const
  {
    return bytes{2} * chunk_ * ((ranks_ - 1) * script_.units() + script_.kept());
  }
  [[nodiscard]] std::uint64_t ring_nanoseconds(std::uint32_t group) const
  {
    return exchange_.nanoseconds(bytes{2 * groups_.elements_of(group)});
  }

  template <class Scope>
  void passes(Scope& scope)
  {
    scope.pass(pass::forward);
    computed_.assign(manager_.profile() == nullptr ? 0 : manager_.profile()->size(), 0);
    if (ranks_ > 1) lease(gathered_, room_for_units(), collective_);
    next_gather_ = 0;
    for (std::size_t index = 0; index < script_.acts().size(); ++index) {
      const act& it = script_.acts()[index];
      // not before a lease: it would wait for all gathers so far where `gathered_` of the last step had its bytes
      if (ranks_ > 1 && it.kind == act_kind::use) gather_before(index);
      switch (it.kind) {
        case act_kind::lease: lease(leases_[it.id], it.size, agent::compute); break;
        case act_kind::give: give(leases_[it.id]); break;
        case act_kind::backward:
          scope.pass(pass::backward);
          timeline_.backward = backend_.clock(agent::compute);
          break;
        case act_kind::use: use(it); break;
        case act_kind::save: hold(it, access::write); break;
        case act_kind::restore: hold(it, access::read); break;
        case act_kind::let_go: held_.clear(); break;
        case act_kind::drop:
          for (const tensor<bf16> each : saved_[it.id]) manager_.drop(each);
          break;
      }
    }
    if (gathered_.is_live() && !gathers_ahead_) give(gathered_);
    if (gathers_ahead_) free_longest_last();
  }
  /// No unit has a group any more, so units may change places. The last group that is gathered ahead is updated first,
  /// and has the last unit: this becomes the one that is free the longest, as transfer::planned chooses frames. In the
  /// unit of its last pass it might wait for an earlier group, and all gathers behind it would wait too.
  void free_longest_last() { std::ranges::sort(freed_at_, std::ranges::greater{}, &event::value); }
  /// The bytes that each layer saves, in chunks of the common size.
  void declare_activations()
  {
    saved_.resize(groups_.stages() - 2);
    for (std::uint32_t layer = 0; layer < saved_.size(); ++layer)
      for (std::uint64_t left = (script_.saved_by(layer).count() + 1) / 2; left > 0; left -= std::min(left, chunk_))
        saved_[layer].push_back(manager_.template add<bf16>({std::min(left, chunk_)}, role::activation));
  }
  template <class Access>
  void hold(const act& it, Access how)
  {
    for (const tensor<bf16> each : saved_[it.id]) held_.push_back(manager_.acquire(each, how, agent::compute));
  }
  /// The tensors that the host updates at once: without a norm, updates begin as soon as gradients come. Tensors of one
  /// chunk come down together, when the last of their gradients is there. Over ranks late updates have none: units are
  /// updated in the order in which weights are used.
  void choose_first()
  {
    first_.clear();
    if (takes_norm_ || ranks_ > 1) return;
    if (acts_of_chunks_.empty()) find_acts_of_chunks();
    updates_.assign(tensors_of_chunk_.size(), 0);
    copies_.assign(tensors_of_chunk_.size(), 0);
    for (std::size_t chunk = 0; chunk < tensors_of_chunk_.size(); ++chunk)
      for (const std::uint32_t index : tensors_of_chunk_[chunk]) {
        if (!is_updated_on_host(index)) continue;
        updates_[chunk] += kernel_.update_time(memory_location::host, chunks_[index].elements[0]);
        copies_[chunk] += costs_.to_host.nanoseconds_for(bytes{2} * chunks_[index].elements[0]);
      }
    for (const std::uint32_t chunk : groups_at_once(acts_of_chunks_, updates_, copies_))
      for (const std::uint32_t index : tensors_of_chunk_[chunk])
        if (is_updated_on_host(index)) first_.push_back(chunks_[index].tensors[0]);
  }
  [[nodiscard]] bool is_updated_on_host(std::uint32_t index)
  {
    return manager_.updates().place_of_update(chunks_[index].tensors[0]) == memory_location::host;
  }
  /// The uses of the script, with the chunk of the weight in place of the weight.
  /// @pre one rank, whose tensors are placed
  void find_acts_of_chunks()
  {
    const auto chunk_of = manager_.chunk_of_slot();  // weights have the first slots
    std::vector<std::uint32_t> unfinished;
    for (std::uint32_t index = 0; index < chunks_.size(); ++index) {
      const std::uint32_t chunk = chunk_of[index];
      tensors_of_chunk_.resize(std::max<std::size_t>(tensors_of_chunk_.size(), chunk + 1));
      tensors_of_chunk_[chunk].push_back(index);
    }
    for (const auto& tensors : tensors_of_chunk_) unfinished.push_back(static_cast<std::uint32_t>(tensors.size()));
    for (act it : script_.acts()) {
      if (it.kind != act_kind::use) continue;
      it.id = chunk_of[it.id];
      it.finishes_gradient = it.finishes_gradient && --unfinished[it.id] == 0;
      acts_of_chunks_.push_back(it);
    }
  }
  void lease(lease_type& into, bytes size, agent stream)
  {
    into = manager_.lease(tier::device, size, stream);
    leased_ += into.size();
  }
  void give(lease_type& from)
  {
    leased_ -= from.size();
    from.release();
  }

  void use(const act& it)
  {
    std::uint32_t access_index = UINT32_MAX;
    {
      std::array<pin_type, 2> pins;
      if (it.reads) {
        std::size_t index = 0;
        for (const tensor<bf16> each : chunks_[it.id].parts()) {
          pins[index] = manager_.acquire(each, access::read, agent::compute);
          access_index = pins[index++].details().access_index;
        }
        if (ranks_ > 1) follow(agent::compute, gathered_at_[it.unit]);
      }
      compute(it, access_index);
      if (it.makes_gradient && ranks_ == 1 && it.reads) {
        add_gradient(it, std::move(pins[0]));
        return;
      }
    }
    const bool is_kept = ranks_ > 1 && script_.keeps(it.id);
    const bool scatters = is_kept ? it.finishes_gradient : it.makes_gradient;
    if (scatters) scatter(it);
    if (ranks_ > 1 && (it.reads || (is_kept && scatters)))
      freed_at_[it.unit] = backend_.record(scatters ? sums_ : agent::compute);
  }
  void compute(const act& it, std::uint32_t access_index)
  {
    if (manager_.rehearsing()) return;
    backend_.advance(agent::compute, it.nanoseconds);
    if (access_index < computed_.size()) computed_[access_index] += it.nanoseconds;
    timeline_.computing.push_back(work(it, backend_.clock(agent::compute), it.nanoseconds));
    peak_.see(manager_, leased_, timeline_.at_peak);
  }
  /// @param from   a pin of the weight, or the weight and the agent that writes its gradient
  template <class... From>
  void add_gradient(const act& it, From&&... from)
  {
    const auto finish = [&](auto gradient) {
      it.finishes_gradient ? manager_.gradient_done(std::move(gradient)) : gradient.release();
    };
    if (has_wide_gradients_)
      finish(manager_.template gradient<float>(std::forward<From>(from)...));
    else
      finish(manager_.template gradient<bf16>(std::forward<From>(from)...));
  }
  void scatter(const act& it)
  {
    if (ranks_ > 1) {
      follow(sums_, backend_.record(agent::compute));
      collect(it, sums_);
    }
    for (const tensor<bf16> each : chunks_[it.id].parts()) add_gradient(it, each, sums_);
  }

  /// Starts the gathers that may begin before this act.
  void gather_before(std::size_t now)
  {
    const auto acts = script_.acts();
    for (; next_gather_ < acts.size(); ++next_gather_) {
      const act& it = acts[next_gather_];
      if (!it.gathers) continue;
      if (it.gathered_at > now) return;
      gather(it);
    }
  }
  void gather(const act& it)
  {
    std::array<pin_type, 2> pins;  // released before the next gather begins, so that no wait includes later gathers
    for (std::size_t index = 0; const tensor<bf16> each : chunks_[it.id].parts())
      pins[index++] = manager_.acquire(each, access::read, collective_);
    follow(collective_, freed_at_[it.unit]);
    collect(it, collective_);
    gathered_at_[it.unit] = backend_.record(collective_);
  }
  /// Sums and gathers share the network of the rank: the later one gets the remaining time.
  void collect(const act& it, agent stream)
  {
    if (manager_.rehearsing()) return;
    const std::uint64_t nanoseconds = ring_nanoseconds(it.id);
    const std::uint64_t begin = std::max(backend_.clock(stream), backend_.now());
    port_.forget_before(backend_.now());
    const std::uint64_t end = port_.serve(begin, nanoseconds, bytes{nanoseconds});
    backend_.advance(stream, end - begin);
    collective_busy_ += nanoseconds;
    timeline_.gathering.push_back(work(it, end, end - begin));
  }
  void follow(agent stream, event point)
  {
    if (!manager_.rehearsing()) backend_.wait(stream, point);
  }
  [[nodiscard]] timed_work work(const act& it, std::uint64_t end, std::uint64_t nanoseconds) const
  {
    const report now = manager_.report();
    return {it.stage,
            it.id,
            end - nanoseconds,
            nanoseconds,
            now.in_use[tier::device].count(),
            leased_.count(),
            now.in_use[tier::host].count()};
  }

  const parameter_groups& groups_;
  const training_script& script_;
  std::uint64_t ranks_;
  std::uint64_t chunk_;
  bool takes_norm_;
  bool has_wide_gradients_;
  group_times exchange_;
  backend::cost_table costs_;
  training_timeline timeline_;
  access_index_source access_indices_;
  backend::simulated backend_;
  timed_optimizer kernel_;
  manager_type manager_;
  optimizer::late_updates<manager_type, timed_optimizer> late_;
  bool updates_late_;
  std::vector<tensor_handle> first_;
  std::vector<std::uint64_t> updates_;                        // by chunk, on the host [ns]
  std::vector<std::uint64_t> copies_;                         // of gradients, by chunk [ns]
  std::vector<std::vector<std::uint32_t>> tensors_of_chunk_;  // of weights
  std::vector<act> acts_of_chunks_;
  bool gathers_ahead_;  // for the next pass, while sums of this one run
  agent collective_;    // gathers
  agent sums_;
  backend::shared_bandwidth port_{1e9};  // a byte for each nanosecond of a collective
  lease_type gathered_;
  std::vector<own_chunk> chunks_;
  std::vector<std::uint32_t> group_of_;           // by ordinal of the tensors
  std::vector<std::vector<tensor<bf16>>> saved_;  // by layer
  std::vector<activation_pin> held_;
  std::vector<lease_type> leases_;
  std::vector<std::uint64_t> computed_;
  std::vector<event> gathered_at_;
  std::vector<event> freed_at_;
  std::size_t next_gather_ = 0;
  std::uint64_t collective_busy_ = 0;
  bytes leased_;
  peak_watch peak_;
};

}  // namespace planner

}  // namespace chunkmem::inline v0
