#pragma once

#include <chunkmem/chunk/append_layout.hpp>
#include <chunkmem/collective/call.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/manager/stacked.hpp>
#include <chunkmem/sharding/gathered_units.hpp>
#include <chunkmem/sharding/gathering.hpp>
#include <chunkmem/sharding/rank_manager.hpp>
#include <chunkmem/sharding/unit_gradients.hpp>
#include <chunkmem/sharding/unit_plan.hpp>
#include <chunkmem/tensor/in_place_gradient.hpp>

#include <concepts>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

/// The half of a sharded_model that comes before training: tensors are declared, and become units and shares.
///
/// Not for users by itself: see sharded_model.
template <stream_backend Backend, communicator<Backend> Communicator, class... Policies>
class rank_tensors {
  using gradient_type = pick_policy<gradient_kind, gradient::separate, Policies...>;
  using layout_type = pick_policy<layout_kind, append_layout, Policies...>;
  static_assert(!std::same_as<gradient_type, gradient::in_place>,
                "chunkmem: gradients of a sharded model have bytes of their own (take gradient::separate): a weight in use by other ranks "
                "would lose its bytes");

 public:
  static_assert(gathering_mover<gathering<Communicator>, Backend>);
  using manager_type = rank_manager<manager<Backend, gathering<Communicator>, Policies...>>;
  using engine_type = typename manager_type::engine_type;

  /// @param sum_scale   what sums of gradients over ranks are multiplied with; 1 / ranks makes means, which 16 bits hold
  /// @param given       policies with settings, as for a manager
  template <class... Given>
  explicit rank_tensors(Backend& backend, Communicator& ranks, const manager_options& options = {}, float sum_scale = 1, Given... given)
      : ranks_{ranks},
        worker_{backend.adopt()},
        m_{backend, options, gathering<Communicator>{ranks, worker_}, given...},
        plan_{policy_value<layout_type>(given...)},
        gradient_{policy_value<gradient_type>(given...)},
        chunk_bytes_{options.chunk_bytes},
        sum_scale_{sum_scale}
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
    entry fresh{part, {}, 0, extents.elements()};
    if (is_sharded(part)) {
      with_element(dtype_of<Element>, [](auto) {});
      fresh.planned = plan_.add(dtype_of<Element>, group, part == role::parameter, extents.elements());
      id_of_.push_back(static_cast<std::uint32_t>(entries_.size()));
    } else {
      fresh.own = m_.template add<Element>(extents, part, group);
    }
    entries_.push_back(fresh);
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
  void use(std::span<const list_spec> specs) { m_.use(specs); }

  /// Ends the declarations: units are made, and shares of this rank. The first access does it where nobody did.
  /// @throws config_error   ranks cannot divide a chunk into whole blocks (the message names a size that they can); as a manager's
  memory_requirement seal()
  {
    if (!sealed_) {
      plan_.seal(chunk_bytes_, ranks_.ranks());
      units_.declare(m_, plan_, ranks_.rank(), [this](dtype type) { return gradient_.type_for(type); },
                     [this](std::uint32_t planned) { return id_of_[planned]; });
      std::vector<std::uint32_t> unit_of;
      for (std::uint32_t at = 0; at < plan_.tensors(); ++at) unit_of.push_back(plan_.place(at).unit);
      gradients_.reset(unit_of, units_.size(), sum_scale_);
      sealed_ = true;
    }
    return m_.seal();
  }
  [[nodiscard]] Backend& backend() const noexcept { return m_.backend(); }
  [[nodiscard]] agent adopt() { return m_.adopt(); }
  [[nodiscard]] chunkmem::report report() const { return m_.report(); }
  [[nodiscard]] residency_snapshot residency() const { return m_.residency(); }
  [[nodiscard]] Communicator& ranks() noexcept { return ranks_; }
  /// What this rank owns, as parameters of its own: for checkpoints of this rank and for tests.
  [[nodiscard]] manager_type& shares() noexcept { return m_; }
  /// What this rank owns of a weight, and of which share, or nothing. @pre sealed
  [[nodiscard]] std::pair<const unit_tensors*, const tensor_part*> share_of(tensor_handle weight)
  {
    const std::uint32_t planned = entry_of(weight).planned;
    const std::uint32_t unit = plan_.place(planned).unit;
    return {&units_[unit], units_.part_of(unit, planned)};
  }
  [[nodiscard]] const unit_plan<layout_type>& plan() const noexcept { return plan_; }

 protected:
  struct entry {
    role part = role::parameter;
    tensor_handle own;          ///< of tensors that are not sharded
    std::uint32_t planned = 0;  ///< number in the plan, of those that are
    std::uint64_t elements = 0;
  };

  [[nodiscard]] static constexpr bool is_sharded(role part) noexcept { return part == role::parameter || part == role::frozen; }
  [[nodiscard]] std::uint32_t owner() const noexcept { return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(this) >> 3) | 1U; }
  [[nodiscard]] entry& entry_of(tensor_handle wanted)
  {
    expects(wanted.owner == owner() && index_of(wanted.id) < entries_.size(), "a tensor was used with a model that did not make it");
    return entries_[index_of(wanted.id)];
  }
  manager_type& seal_once()
  {
    if (!sealed_) [[unlikely]] seal();
    return m_;
  }
  /// Before ranks exchange words: what this one owes the others' agents is done, also where agents work only while they are called.
  /// @throws comm_error   something of it failed
  void settle()
  {
    m_.backend().wait(agent::host, m_.backend().record(worker_));
    ranks_.check();
  }

  /// Ranks decide alike where they have the same model, the same room and the same settings.
  void agree_on_model()
  {
    collective::fingerprint same;
    for (const tier where : {tier::device, tier::host}) same.add(m_.backend().capacity(where).count());
    same.add(chunk_bytes_.count());
    for (const unit& it : plan_.units()) same.add(it.elements * 8 + static_cast<std::uint64_t>(it.type));
    for (const entry& it : entries_) same.add(it.elements * role_count + static_cast<std::uint64_t>(it.part));
    settle();
    const std::uint64_t mine[] = {same.value()};
    std::vector<std::uint64_t> all(ranks_.ranks());
    ranks_.exchange(mine, all);
    for (const std::uint64_t it : all)
      expects(it == mine[0], "ranks have other models, capacities or sizes of chunks (give all of them the same: they move their units together)");
    agreed_ = true;
  }

  Communicator& ranks_;
  agent worker_;
  manager_type m_;
  unit_plan<layout_type> plan_;
  gathered_units units_;
  unit_gradients<manager_type> gradients_;
  gradient_type gradient_;
  std::vector<entry> entries_;
  std::vector<std::uint32_t> id_of_;  // by tensor of the plan
  bytes chunk_bytes_;
  float sum_scale_ = 1;
  bool sealed_ = false;
  bool agreed_ = false;
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
