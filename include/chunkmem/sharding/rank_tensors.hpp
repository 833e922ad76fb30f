// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/append_layout.hpp>
#include <chunkmem/collective/call.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/manager/stacked.hpp>
#include <chunkmem/ownership/sharded.hpp>
#include <chunkmem/sharding/gathered_units.hpp>
#include <chunkmem/sharding/gathering.hpp>
#include <chunkmem/sharding/process_groups.hpp>
#include <chunkmem/sharding/share_runs.hpp>
#include <chunkmem/sharding/unit_division.hpp>
#include <chunkmem/sharding/unit_gradients.hpp>
#include <chunkmem/sharding/unit_plan.hpp>
#include <chunkmem/sharding/zero.hpp>
#include <chunkmem/tensor/in_place_gradient.hpp>
#include <chunkmem/tensor/registration.hpp>

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

namespace detail {

using rank_kinds = chunkmem::detail::accepts<rules_kind, layout_kind, eviction_kind, placement_kind, gradient_kind,
                                             transfer_kind, sink_kind, ownership_kind, checks_kind>;

}  // namespace detail

/// The half of a sharded_model that comes before training: tensors are declared, and become units and shares.
///
///     const auto weight = model.add<float>({1'024, 1'024}, role::parameter);  // of a sharded_model
///     model.name(weight, "embedding");
///     model.seal();
template <stream_backend Backend, rank_group<Backend> Ranks, class... Policies>
  requires(detail::rank_kinds::check<Policies...>())
class rank_tensors {
  using ownership_type = pick_policy<ownership_kind, ownership::sharded, Policies...>;
  using mover_type = gathering<Ranks, ownership_type>;
  using gradient_type = pick_policy<gradient_kind, gradient::separate, Policies...>;
  using layout_type = pick_policy<layout_kind, append_layout, Policies...>;
  static_assert(!std::same_as<gradient_type, gradient::in_place>,
                "chunkmem: gradients of a sharded model have bytes of their own (take gradient::separate): a weight in "
                "use by other ranks "
                "would lose its bytes");

 public:
  static_assert(gathering_mover<mover_type, Backend>);
  using communicator_type = typename process_groups_of<Ranks>::communicator_type;
  using manager_type = chunkmem::detail::manager_among<Backend, mover_type, Policies...>;
  using engine_type = typename manager_type::engine_type;

  /// @param ranks   a communicator, or process groups for ownerships that know of nodes; what it refers to outlives
  ///                this
  /// @param given   policies with settings, as for a manager
  template <class... Given>
  explicit rank_tensors(Backend& backend, Ranks& ranks, const manager_options& options = {},
                        const sharding_options& sharding = {}, Given... given)
      : ranks_{ranks},
        worker_{backend.adopt()},
        ownership_{policy_value<ownership_type>(given...)},
        m_{backend, options, mover(ranks), or_mover(given, ranks)...},
        plan_{policy_value<layout_type>(given...)},
        gradient_{policy_value<gradient_type>(given...)},
        chunk_bytes_{options.chunk_bytes},
        sharding_{sharding}
  {
    if (options.chunk_bytes == least_waste_chunks)
      throw config_error{"a sharded model takes chunk_bytes as a size: the ranks have to divide it"};
  }
  rank_tensors(const rank_tensors&) = delete;

  // Declaring.

  /// @throws usage_error   sealed already; parameters and frozen weights that are no float32, bfloat16 or float16
  template <element Element>
  tensor<Element> add(const shape& extents, role part, group_id group = group_id{0})
  {
    expects(!sealed_, "a tensor was added after the model was sealed: declare all tensors before the first access");
    id_of_.reserve(id_of_.size() + 1);  // before the plan has it: then they cannot differ
    entries_.reserve(entries_.size() + 1);
    entry fresh{part, dtype_of<Element>, {}, 0, extents.elements(), extents, {}};
    if (is_sharded(part)) {
      with_element(dtype_of<Element>, [](auto) {});
      fresh.planned = plan_.add(dtype_of<Element>, group, part == role::parameter, extents.elements());
      id_of_.push_back(static_cast<std::uint32_t>(entries_.size()));
    } else {
      fresh.own = m_.template add<Element>(extents, part, group);
    }
    entries_.push_back(fresh);
    name_own(entries_.size() - 1, "tensor." + std::to_string(entries_.size() - 1));
    return {{tensor_id{static_cast<std::uint32_t>(entries_.size() - 1)}, owner()}};
  }
  template <element Element>
  stacked<Element> add_stacked(std::uint32_t layers, const shape& extents, role part, group_id group = group_id{0})
  {
    expects(layers > 0, "a stack of tensors needs at least one layer");
    const tensor<Element> first = add<Element>(extents, part, group);
    for (std::uint32_t layer = 1; layer < layers; ++layer) add<Element>(extents, part, group);
    return {first, layers};
  }
  /// As a manager's, on every rank: each has a kernel object of its own.
  template <registrable Owner>
  void use(Owner& owner)
  {
    m_.use(owner);
  }
  void use(std::span<const list_spec> specs) { m_.use(specs); }
  /// What files and messages call a tensor; one without a name is "tensor.<number>", as one rank alone would call it.
  void name(tensor_handle wanted, std::string_view text)
  {
    entry_of(wanted).name = text;
    name_own(index_of(wanted.id), text);
  }
  /// Bytes that must survive a restart, by name, on every rank. As a manager's.
  void state(std::string_view name, std::span<std::byte> content) { m_.state(name, content); }

  /// Ends the declarations: units are made, and shares of this rank. The first access does it where nobody did.
  /// @throws config_error   ranks cannot divide a chunk into whole blocks (the message names a size that they can); as
  ///   a manager's
  memory_requirement seal()
  {
    if (!sealed_) {
      plan_.seal(chunk_bytes_, divide(ownership_, ranks_.world()));
      runs_.chunks = plan_.division().chunks;
      runs_.runs.clear();
      for (const unit& it : plan_.units()) runs_.runs.push_back({it.first, it.chunks});
      units_.declare(
          m_, plan_, ranks().rank(), !sharding_.divided.parameters,
          [this](dtype type) { return gradient_.type_for(type); },
          [this](std::uint32_t planned) { return id_of_[planned]; });
      for (const unit_tensors& it : units_.all())
        m_.without_gradient(it.share);  // of which tensors a step has gradients, ranks agree
      std::vector<std::uint32_t> unit_of;
      for (std::uint32_t index = 0; index < plan_.tensors(); ++index) unit_of.push_back(plan_.place(index).unit);
      gradients_.reset(unit_of, units_.size(), sharding_);
      sealed_ = true;
    }
    return m_.seal();
  }
  [[nodiscard]] Backend& backend() const noexcept { return m_.backend(); }
  [[nodiscard]] agent adopt() { return m_.adopt(); }
  [[nodiscard]] chunkmem::report report() const { return m_.report(); }
  [[nodiscard]] residency_snapshot residency() const { return m_.residency(); }
  /// All that was gathered and added so far is done. Whoever waits for the device by other means calls it first: a rank
  /// that is gone then ends the wait here, by the deadline of the group. @throws comm_error   something of it failed
  void settle()
  {
    constexpr ownership::process_group all[] = {ownership::process_group::all, ownership::process_group::node,
                                                ownership::process_group::across};
    for (const auto who : all)  // groups whose work runs on a device have to be asked
      if constexpr (requires(communicator_type& group) { group.finish(m_.backend(), worker_); })
        ranks_.of(who).finish(m_.backend(), worker_);
    m_.backend().wait(agent::host, m_.backend().record(worker_));
    for (const auto who : all) ranks_.of(who).check();
  }
  /// All of them.
  [[nodiscard]] communicator_type& ranks() const noexcept { return ranks_.of(ownership::process_group::all); }
  /// What this rank owns, as parameters of its own: for checkpoints of this rank and for tests.
  [[nodiscard]] manager_type& shares() noexcept { return m_; }
  /// What this rank owns of a weight, and of which share, or nothing. @pre sealed
  [[nodiscard]] std::pair<const unit_tensors*, const tensor_part*> share_of(tensor_handle weight)
  {
    const std::uint32_t planned = entry_of(weight).planned;
    const std::uint32_t unit = plan_.place(planned).unit;
    return {&units_[unit], units_.part_of(unit, planned)};
  }
  /// For checkpoints. @throws usage_error   gradients were opened that no step has used
  void expect_no_gradients() const
  {
    for (std::uint32_t index = 0; index < units_.size(); ++index)
      expects(!gradients_.is_open(index),
              "a checkpoint while gradients wait for their step: take the step, or drop_gradients()");
  }
  [[nodiscard]] const unit_plan<layout_type>& plan() const noexcept { return plan_; }
  [[nodiscard]] std::span<const unit_tensors> units() const noexcept { return units_.all(); }
  /// The tensors of the model in a share of this rank.
  [[nodiscard]] std::span<const share_run> runs_of(tensor_handle share) const noexcept { return units_.runs()[share]; }
  /// Calls `visit(name, extents, type, part)` for each tensor, in the order of declaration.
  template <class Visit>
  void for_each_tensor(Visit visit) const
  {
    for (std::uint32_t index = 0; index < entries_.size(); ++index)
      visit(name_of(index), entries_[index].extents, entries_[index].type, entries_[index].part);
  }
  /// @param tensor   as a share_run names it
  [[nodiscard]] std::string name_of(std::uint32_t tensor) const
  {
    return entries_[tensor].name.empty() ? "tensor." + std::to_string(tensor) : entries_[tensor].name;
  }
  [[nodiscard]] std::string name_of(tensor_handle wanted)
  {
    return name_of((void(entry_of(wanted)), index_of(wanted.id)));
  }
  [[nodiscard]] const shape& extents_of(std::uint32_t tensor) const noexcept { return entries_[tensor].extents; }
  /// Which one a tensor of the plan is, as a share_run names it.
  [[nodiscard]] std::uint32_t tensor_of_plan(std::uint32_t planned) const noexcept { return id_of_[planned]; }

  /// Ranks decide alike where they have the same model, the same room and the same settings. The first iteration asks,
  /// a save, and a load; every rank has to call it. @throws usage_error   on every rank: what differs; comm_error
  void agree_on_model()
  {
    seal_once();
    if (agreed_) return;
    settle();
    static constexpr std::string_view names[] = {"capacities of the device",
                                                 "capacities of the host",
                                                 "chunk_bytes",
                                                 "sharding_options",
                                                 "ownerships",
                                                 "tensors"};
    const std::array<std::uint64_t, std::size(names)> mine = settings_words();
    std::vector<std::uint64_t> all(mine.size() * ranks().ranks());
    ranks().exchange(mine, all);
    for (std::size_t index = 0; index < all.size(); ++index)
      if (const std::size_t what = index % mine.size(); all[index] != all[what])
        throw usage_error{error_text{} << "chunkmem: ranks have other " << names[what] << ": rank "
                                       << index / mine.size()
                                       << " and rank 0 (give all of them the same: they move their units together)"};
    agreed_ = true;
  }

 protected:
  struct entry {
    role part = role::parameter;
    dtype type = dtype::float32;
    tensor_handle own;          ///< of tensors that are not sharded
    std::uint32_t planned = 0;  ///< number in the plan, of those that are
    std::uint64_t elements = 0;
    shape extents;
    std::string name;
  };

  [[nodiscard]] static constexpr bool is_sharded(role part) noexcept
  {
    return part == role::parameter || part == role::frozen;
  }
  [[nodiscard]] std::uint32_t owner() const noexcept
  {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(this) >> 3) | 1U;
  }
  [[nodiscard]] entry& entry_of(tensor_handle wanted)
  {
    expects(wanted.owner == owner() && index_of(wanted.id) < entries_.size(),
            "a tensor was used with a model that did not make it");
    return entries_[index_of(wanted.id)];
  }
  manager_type& seal_once()
  {
    if (!sealed_) [[unlikely]]
      seal();
    return m_;
  }
  process_groups_of<Ranks> ranks_;
  agent worker_;
  ownership_type ownership_;
  unit_runs runs_;
  manager_type m_;
  unit_plan<layout_type> plan_;
  gathered_units units_;
  unit_gradients<manager_type> gradients_;
  gradient_type gradient_;
  std::vector<entry> entries_;
  std::vector<std::uint32_t> id_of_;  // by tensor of the plan
  bytes chunk_bytes_;
  sharding_options sharding_;
  bool sealed_ = false;
  bool agreed_ = false;

 private:
  [[nodiscard]] std::array<std::uint64_t, 6> settings_words() const
  {
    const std::uint64_t divided = (sharding_.divided.gradients ? 1U : 0U) + (sharding_.divided.parameters ? 2U : 0U);
    collective::fingerprint tensors;
    for (const unit& it : plan_.units()) {
      tensors.add(it.elements * 8 + static_cast<std::uint64_t>(it.type));
      tensors.add(std::uint64_t{index_of(it.group)} * 2 + (it.trained ? 1U : 0U));  // the rates of its updates
    }
    for (const entry& it : entries_) tensors.add(it.elements * role_count + static_cast<std::uint64_t>(it.part));
    return {m_.backend().capacity(tier::device).count(),
            m_.backend().capacity(tier::host).count(),
            chunk_bytes_.count(),
            divided << 32 | std::bit_cast<std::uint32_t>(sharding_.sum_scale),
            plan_.division().shares,
            tensors.value()};
  }
  void name_own(std::size_t index, std::string_view text)
  {
    if (!is_sharded(entries_[index].part)) m_.name(entries_[index].own, text);
  }
  [[nodiscard]] mover_type mover(Ranks& ranks) noexcept { return {ranks, worker_, &runs_, ownership_}; }
  /// A manager refuses values that are none of its policies: the ownership, which its mover has, is passed as that once
  /// more.
  template <class Given>
  [[nodiscard]] auto or_mover(const Given& given, Ranks& ranks)
  {
    if constexpr (std::same_as<Given, ownership_type>)
      return mover(ranks);
    else
      return given;
  }
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
