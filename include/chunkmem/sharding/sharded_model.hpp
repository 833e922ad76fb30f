// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/size_class_layout.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/manager/rehearsal.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/ownership/ownerships.hpp>
#include <chunkmem/sharding/agreed_measure.hpp>
#include <chunkmem/sharding/comm_error_about.hpp>
#include <chunkmem/sharding/first_values.hpp>
#include <chunkmem/sharding/gathered_units.hpp>
#include <chunkmem/sharding/gathering.hpp>
#include <chunkmem/sharding/model_tensors.hpp>
#include <chunkmem/sharding/process_groups.hpp>
#include <chunkmem/sharding/rank_content.hpp>
#include <chunkmem/sharding/rank_iteration.hpp>
#include <chunkmem/sharding/rank_pin.hpp>
#include <chunkmem/sharding/rank_step.hpp>
#include <chunkmem/sharding/share_runs.hpp>
#include <chunkmem/sharding/unit_division.hpp>
#include <chunkmem/sharding/unit_gradients.hpp>
#include <chunkmem/sharding/unit_plan.hpp>
#include <chunkmem/sharding/zero.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>
#include <chunkmem/tensor/registration.hpp>
#include <chunkmem/tensor/tensor_names.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding::detail {

using rank_kinds = chunkmem::detail::accepts<rules_kind, layout_kind, eviction_kind, placement_kind, gradient_kind,
                                             transfer_kind, sink_kind, ownership_kind, checks_kind>;

}  // namespace sharding::detail

/// A model whose weights, gradients and optimizer states are divided over ranks that train it together: ZeRO on chunks.
///
///     sharded_model<backend::host_arena, collective::local_threads> m{memory, ranks};
///     const auto weight = m.add<float>({1'024, 1'024}, role::parameter);
///     m.use(adam);
///     { auto it = m.iteration(); train(m, weight); }  // forward and backward, on every rank
///     m.step(adam, {.learning_rate = 1e-3F});
///
/// Calls are those of a manager, and every rank makes the same ones in the same order. Weights lie in units of whole
/// chunks; a rank keeps one share of each unit, on the host or where its manager puts it, with the states of that
/// share. A unit is whole on the device while it is used: a load copies the own share and gathers the others. Gradients
/// are computed whole, added over ranks in order of ranks, and only the own share stays. So a rank's memory is that of
/// the model divided by ranks, and of the units in use. This is stage 3; in stages 1 and 2 (see zero) weights stay
/// whole on every rank, which gathers them after each update. Tensors from a rank's own data (activations, buffers)
/// belong to its own manager alone. Bits: W ranks with one micro-batch each have the bits of one rank whose gradients
/// were added in this grouping.
///
/// Under gradient::in_place the sum of a unit takes the bytes of the own share: 14 B for each parameter of 16 bits with
/// Adam. In stage 3 the weights of the unit cannot be read from the sum to the step.
///
/// It adopts two agents of the backend: one communicates over ranks, one adds sums to the own gradients. With
/// sharding::sums_apart sums over ranks have a third agent. Copies of this rank's shares to the device have a fourth
/// agent, where the backend has one left: no share waits for a copy that waits for compute. A caller adopts its own
/// agents first.
///
/// @tparam Ranks   a communicator, sharding::process_groups of one, or sharding::sums_apart; it and the backend outlive
///   this object
/// @tparam Policies   of the manager, except the mover; and an ownership (sharded; whole by groups; hierarchical),
///   which divides chunks
/// @threads   one caller for each rank   Source: ZeRO-3 (Rajbhandari et al. 2020, arXiv 1910.02054) on chunks, as
/// PatrickStar (Fang et al. 2021, arXiv 2108.05818), divided as Gemini and Elixir divide chunks
template <stream_backend Backend, sharding::rank_group<Backend> Ranks, class... Policies>
  requires(sharding::detail::rank_kinds::check<Policies...>())
class sharded_model {
  using ownership_type = pick_policy<ownership_kind, ownership::sharded, Policies...>;
  using mover_type = sharding::gathering<Ranks, ownership_type>;
  using gradient_type = pick_policy<gradient_kind, gradient::separate, Policies...>;
  using layout_type = pick_policy<layout_kind, size_class_layout, Policies...>;
  using plan_type = sharding::unit_plan<layout_type>;
  using entry = sharding::model_tensors::entry;

 public:
  static_assert(gathering_mover<mover_type, Backend>);
  using communicator_type = typename sharding::process_groups_of<Ranks>::communicator_type;
  static_assert(
      !sharding::process_groups_of<Ranks>::has_sums_apart || !sharding::works_on_streams<communicator_type, Backend>,
      "chunkmem: sums_apart over groups that work on streams of the device, such as NCCL's: devices may start "
      "the kernels of two groups in different orders, and then wait for each other (give the model one group)");
  using manager_type = chunkmem::detail::manager_among<Backend, mover_type, Policies...>;
  using engine_type = typename manager_type::engine_type;
  using checkpoint_content = sharding::rank_content<sharded_model>;  ///< see checkpoint::content_of_model
  template <pinned_element Element>
  using pin_type = sharding::rank_pin<Element, manager_type>;

  /// @param ranks   a communicator, or process groups for ownerships with nodes; its communicators outlive this object
  /// @param given   policies with settings, as for a manager
  template <class... Given>
  explicit sharded_model(Backend& backend, Ranks& ranks, const manager_options& options = {},
                         const sharding::sharding_options& division = {}, Given... given)
      : ranks_{ranks},
        worker_{backend.adopt()},
        worker_of_sums_{sharding::process_groups_of<Ranks>::has_sums_apart ? backend.adopt() : worker_},
        adder_{backend.adopt()},
        worker_of_shares_{sharding::process_groups_of<Ranks>::has_sums_apart && backend.agents() < max_agents
                              ? backend.adopt()
                              : agent::to_device},
        ownership_{policy_value<ownership_type>(given...)},
        m_{backend, options, mover(ranks), or_mover(given, ranks)...},
        plan_{policy_value<layout_type>(given...)},
        gradient_{policy_value<gradient_type>(given...)},
        chunk_bytes_{options.chunk_bytes},
        options_{division}
  {
    if (options.chunk_bytes == least_waste_chunks)
      throw config_error{"a sharded model needs chunk_bytes as a size: the ranks have to divide it"};
    sharding::check(division);
    m_.gathered().add_side_agent(adder_);
  }
  sharded_model(const sharded_model&) = delete;
  sharded_model& operator=(const sharded_model&) = delete;
  /// Waits for running work; where other ranks do not end it, until the deadline of the group.
  ~sharded_model()
  {
    ranks_.for_each([this](auto& group) {
      try {
        finish(group);
      } catch (...) {  // the group has ended: so do waits for it
      }
    });
  }

  // Declaring.

  /// @throws usage_error   sealed already; parameters and frozen weights that are no float32, bfloat16 or float16
  template <element Element>
  tensor<Element> add(const shape& extents, role part, group_id group = group_id{0})
  {
    expects(!sealed_, "a tensor was added after the model was sealed: declare all tensors before the first access");
    tensors_.make_room();
    entry fresh{.part = part, .type = dtype_of<Element>, .elements = extents.elements(), .extents = extents};
    if (sharding::model_tensors::is_sharded(part)) {
      sharding::with_element(dtype_of<Element>, [](auto) {});
      fresh.planned = plan_.add(dtype_of<Element>, group, part == role::parameter, extents.elements());
    } else {
      fresh.own = m_.template add<Element>(extents, part, group);
    }
    const tensor_handle made = tensors_.add(std::move(fresh));
    name_own(index_of(made.id));
    return {made};
  }
  template <element Element>
  stacked<Element> add_stacked(std::uint32_t layers, const shape& extents, role part, group_id group = group_id{0})
  {
    expects(layers > 0, "a stack of tensors needs at least one layer");
    const tensor<Element> first = add<Element>(extents, part, group);
    for (std::uint32_t layer = 1; layer < layers; ++layer) add<Element>(extents, part, group);
    return {first, layers};
  }
  /// As basic_manager::use, on every rank: each has a kernel object of its own.
  template <registrable Owner>
  void use(Owner& owner)
  {
    m_.use(owner);
  }
  void use(std::span<const list_spec> specs) { m_.use(specs); }
  /// @throws usage_error   there is no list of this name
  [[nodiscard]] list_id list(std::string_view name) const { return m_.list(name); }
  /// The name of a tensor in files and messages. A tensor without a name is "tensor.<number>", as on one rank.
  /// @throws usage_error   not of this model; config_error   another tensor has this name, or no checkpoint could hold
  ///   it (see name_rules)
  void name(tensor_handle wanted, std::string_view text)
  {
    if (!text.empty()) expect_storable(tensors_.of(wanted).part, text);
    tensors_.name(wanted, text, sealed_);
    name_own(index_of(wanted.id));
  }
  /// As basic_manager::state, on every rank.
  void state(std::string_view name, std::span<std::byte> content) { m_.state(name, content); }

  /// Ends the declarations: makes the units, and the shares of this rank. The first access seals a model that is not
  /// sealed.
  /// @throws config_error   a tensor has a name that a checkpoint cannot hold; ranks cannot divide a chunk into whole
  ///   blocks (the message names a size that they can divide); as a manager's
  memory_requirement seal()
  {
    if (!sealed_) {
      for (std::uint32_t index = 0; index < tensors_.size(); ++index)  // lists may have been added after names
        expect_storable(tensors_[index].part, tensors_.name_of(index));
      tensors_.expect_distinct_names();
      std::uint32_t versions = 1;  // of the weights
      m_.for_each_list([&](list_id, const list_spec& spec) {
        if (spec.use != list_use::weight) return;
        ++versions;
        tensors_.expect_type(spec.type);
      });
      plan_.seal(unit_bytes(), sharding::divide(ownership_, ranks_.world()));
      runs_.chunks = plan_.division().chunks;
      runs_.model = number_of_names();
      runs_.runs.clear();
      for (; versions > 0; --versions)
        for (const sharding::unit& it : plan_.units()) runs_.runs.push_back({it.first, it.chunks});
      units_.declare(
          m_, plan_, ranks().rank(), !options_.divided.parameters,
          [this](dtype type) { return gradient_.type_for(type); },
          [this](std::uint32_t planned) { return tensors_.tensor_of_plan(planned); });
      for (const sharding::unit_tensors& it : units_.all()) {
        m_.without_gradient(it.share);  // ranks compare their gradients before each step
        if (it.is_trained && gradient_.takes_slot() && size_of(it.type) == 2) units_.runs().lends(it.share);
      }
      std::vector<std::uint32_t> unit_of;
      for (std::uint32_t index = 0; index < plan_.tensors(); ++index) unit_of.push_back(plan_.place(index).unit);
      gradients_.reset(unit_of, units_.size(), options_, adder_);
      filled_.reset(plan_.tensors());
      sealed_ = true;
    }
    return m_.seal();
  }
  [[nodiscard]] Backend& backend() const noexcept { return m_.backend(); }
  [[nodiscard]] agent adopt() { return m_.adopt(); }
  [[nodiscard]] chunkmem::report report() const { return m_.report(); }
  [[nodiscard]] residency_snapshot residency() const { return m_.residency(); }
  /// Waits until all gathers and sums so far are done. Call it before any other synchronization of the device: a lost
  /// rank then ends the wait here, at the deadline of the group. @throws comm_error   a gather or sum failed
  void settle()
  {
    sharding::end_all_on_failure(ranks_, [this] { ranks_.for_each([this](auto& group) { finish(group); }); });
    const auto await = [this](agent each) {
      if constexpr (measuring_backend<Backend>)  // a step waits for the sums of other ranks here
        m_.backend().wait(agent::host, m_.backend().record(each), wait_cause::optimizer_input);
      else
        m_.backend().wait(agent::host, m_.backend().record(each));
    };
    for_each_worker(await);
    await(adder_);
    check();
  }
  /// Never waits. @throws comm_error   a gather or sum has failed
  void check()
  {
    sharding::end_all_on_failure(ranks_, [this] { ranks_.for_each([](auto& group) { group.check(); }); });
  }
  /// Revokes all groups of the ranks: waits of other ranks end with `revoked` at once. For a rank that gives up but
  /// does not end; the destructor revokes them in any case.
  void revoke() noexcept { sharding::end_all(ranks_); }
  /// The communicator of all ranks. Sums may use another one: a rank that gives up calls `revoke` of the model.
  [[nodiscard]] communicator_type& ranks() const noexcept { return ranks_.of(ownership::process_group::all); }
  /// The manager of this rank. Its parameters are the shares of this rank. Checkpoints and tests use it.
  [[nodiscard]] manager_type& shares() noexcept { return m_; }
  /// The part of a weight that this rank owns, with the unit of its share. The part is null where this rank owns
  /// nothing of the weight. @pre sealed
  [[nodiscard]] std::pair<const sharding::unit_tensors*, const sharding::tensor_part*> share_of(tensor_handle weight)
  {
    const std::uint32_t planned = tensors_.of(weight).planned;
    const std::uint32_t unit = plan_.place(planned).unit;
    return {&units_[unit], units_.part_of(unit, planned)};
  }
  /// For checkpoints. @throws usage_error   gradients are open and wait for a step
  void expect_no_gradients() const
  {
    for (std::uint32_t index = 0; index < units_.size(); ++index)
      expects(!gradients_.is_open(index),
              "a checkpoint while gradients wait for their step: take the step, or drop_gradients()");
  }
  [[nodiscard]] const plan_type& plan() const noexcept { return plan_; }
  [[nodiscard]] std::span<const sharding::unit_tensors> units() const noexcept { return units_.all(); }
  /// The tensors of the model in a share of this rank.
  [[nodiscard]] std::span<const sharding::share_run> runs_of(tensor_handle share) const noexcept
  {
    return units_.runs()[share];
  }
  /// Calls `visit(name, extents, type, part)` for each tensor, in the order of declaration.
  template <class Visit>
  void for_each_tensor(Visit visit) const
  {
    for (std::uint32_t index = 0; index < tensors_.size(); ++index)
      visit(tensors_.name_of(index), tensors_[index].extents, tensors_[index].type, tensors_[index].part);
  }
  /// @param tensor   as a share_run names it
  [[nodiscard]] std::string name_of(std::uint32_t tensor) const { return tensors_.name_of(tensor); }
  [[nodiscard]] std::string name_of(tensor_handle wanted) const { return name_of(tensors_.index_of(wanted)); }
  /// This model made the tensor.
  [[nodiscard]] bool has(tensor_handle wanted) const noexcept { return tensors_.has(wanted); }
  /// The declaration of a tensor. Valid until the next declaration. @throws usage_error   a tensor of another model
  [[nodiscard]] const sharding::model_tensors::entry& info(tensor_handle wanted) const { return tensors_.of(wanted); }
  [[nodiscard]] const shape& extents_of(std::uint32_t tensor) const noexcept { return tensors_[tensor].extents; }
  /// The number in the model, as in a share_run, of a tensor of the plan.
  [[nodiscard]] std::uint32_t tensor_of_plan(std::uint32_t planned) const noexcept
  {
    return tensors_.tensor_of_plan(planned);
  }

  /// Checks that ranks have the same model, capacities and settings, so that they decide alike. The first iteration, a
  /// save and a load call it; every rank calls it. @throws usage_error   on every rank: the first difference;
  /// comm_error
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
                                                 "gradient policies",
                                                 "tensors"};  // the last: refuse_tensors names the first
    const std::array<std::uint64_t, std::size(names)> mine = settings_words();
    std::vector<std::uint64_t> all(mine.size() * ranks().ranks());
    ranks().exchange(mine, all);
    for (std::size_t index = 0; index < all.size(); ++index)
      if (const std::size_t what = index % mine.size(); all[index] != all[what]) {
        if (what + 1 == mine.size()) refuse_tensors();
        throw usage_error{error_text{} << "chunkmem: ranks have different " << names[what] << ": rank "
                                       << index / mine.size()
                                       << " and rank 0 (give all of them the same: they move their units together)"};
      }
    agreed_ = true;
  }
  /// Checks that ranks have given each weight the same name and the same values: each rank keeps only its share. The
  /// first iteration and a save call it; every rank calls it. Weights that are filled later are compared in the next
  /// step. @throws usage_error   on every rank: the weight and the ranks that differ, or a weight that some ranks have
  /// not filled
  void agree_on_values()
  {
    seal_once();
    collective::fingerprint mine;
    for (std::uint32_t planned = 0; planned < plan_.tensors(); ++planned)
      mine.add(filled_.named(planned, name_of(tensors_.tensor_of_plan(planned))));
    const std::vector<std::uint64_t> all = collective::words_of_all(ranks(), mine.value());
    if (std::ranges::any_of(all, [&](std::uint64_t it) { return it != all[0]; })) refuse_values();
    filled_.forget();
    compared_ = true;
  }
  /// The weights of a tensor came from a file that all ranks see: earlier values are not compared. For loads and
  /// imports. @param tensor   as a share_run names it
  void forget_values(std::uint32_t tensor) noexcept
  {
    if (sharding::model_tensors::is_sharded(tensors_[tensor].part)) filled_.forget(tensors_[tensor].planned);
  }
  /// Gives all ranks the values of a weight that one rank has filled; values of other ranks are overwritten. Every rank
  /// calls it with its pin of the weight.
  ///
  ///     auto pin = m.acquire(weight, access::write);
  ///     for (float& it : pin.span()) it = random();  // the values of rank 0 count
  ///     m.broadcast(std::move(pin));
  ///
  /// Cost: the bytes of the weight pass through leases on the host and the device, of at most a chunk.
  /// @param from   the rank whose values count
  /// @throws on every rank: usage_error   no weight that is being written, or no such rank; out_of_memory
  /// @throws device_error, comm_error
  template <element Element>
  void broadcast(pin_type<Element>&& weight, rank_id from = rank_id{0})
  {
    broadcast_bytes(std::as_writable_bytes(weight.being_filled()), from,
                    [&] { return runs_.model ^ tensors_.index_of(weight.of()); });
    weight.release();
  }

  // Training.

  /// As basic_manager::rehearse. Ranks communicate only to finish waiting updates.
  /// @throws usage_error   also where gradients are open
  memory_requirement rehearse(call_ref<void()> step, rehearse_on on = rehearse_on::nothing,
                              const memory_requirement* known = nullptr, std::span<const bytes> others = {})
  {
    seal();
    if (rehearsing()) return m_.rehearse(step);  // which refuses it
    steps_.expect_whole();
    gradients_.begin_rehearsal();
    const rehearsed_until_end puts_back{*this};
    const auto anew = [&] {
      gradients_.forget_rehearsal();
      step();
    };
    return m_.rehearse(anew, on, known, others);
  }

  [[nodiscard]] bool rehearsing() const noexcept { return m_.rehearsing(); }
  /// As a manager's: of this rank.
  [[nodiscard]] const access_record& rehearsed() const noexcept { return m_.rehearsed(); }
  /// As a manager's: of this rank.
  [[nodiscard]] std::uint32_t access_index() const noexcept { return m_.access_index(); }

  /// As a manager's. @throws comm_error, usage_error   the first one: ranks have different models, capacities or first
  /// values
  /// @throws config_error   also several micro-batches under gradient::in_place where each of them is added over ranks
  ///   and gathers weights
  [[nodiscard]] auto iteration(std::string_view name, std::uint32_t micro_batches = 1)
  {
    seal_once();
    if (micro_batches > 1 && gradient_.takes_slot() && options_.divided == sharding::zero_3)
      throw config_error{
          "gradient::in_place with several micro-batches, in each of which gradients are added over ranks and take the "
          "bytes from which the next one gathers weights (use zero_3_reduce_last, zero_2 or zero_1, which "
          "gather or add once for a step, or gradient::separate)"};
    if (!agreed_ && !rehearsing()) agree_on_model();
    if (!compared_ && !rehearsing()) agree_on_values();
    if (!m_.is_iterating()) gradients_.let_go();  // else the manager refuses, and the running iteration goes on
    return sharding::rank_iteration<sharded_model>{*this, [&] { return m_.iteration(name, micro_batches); }};
  }
  /// An iteration of the loop "train".
  [[nodiscard]] auto iteration(std::uint32_t micro_batches = 1) { return iteration("train", micro_batches); }

  /// A pin on the device. Weights are gathered and read-only; other tensors as in a manager.
  ///
  /// A pin for the calling thread is given only where all work of ranks that its bytes may depend on has succeeded. A
  /// pin for another agent is given at once, and this agent waits for the work. Where the work fails, the next step,
  /// save or pin for the calling thread throws a comm_error. To read such a pin on the calling thread, wait for its
  /// agent and call `span()`, or call `settle()`.
  /// @throws comm_error   the unit could not be gathered; the text names tensor and rank; as a manager's acquire
  template <element Element, access_choice Access>
  [[nodiscard]] pin_type<pinned_as<Element, Access>> acquire(tensor<Element> wanted, Access mode,
                                                             agent stream = agent::host)
  {
    seal_once();
    const entry& it = tensors_.of(wanted);
    return naming(wanted, [&]() -> pin_type<pinned_as<Element, Access>> {
      if (!sharding::model_tensors::is_sharded(it.part))
        return {m_.acquire(tensor<Element>{it.own}, mode, stream), wanted, stream};
      steps_.expect_whole();
      if (writes(mode)) return {fill(wanted, mode), wanted, it.elements};
      if constexpr (!std::is_same_v<Access, write_access>) {
        const sharding::unit_place place = plan_.place(it.planned);
        steps_.catch_up(units_[place.unit]);
        expect_weights(wanted, units_[place.unit]);
        return {m_.acquire(units_[place.unit].whole, access::read, stream), wanted, place.first, it.elements, stream};
      }
      return {};  // a write_access writes
    });
  }
  /// An older version of a weight. @param list   of the use list_use::weight, or value_list
  /// @throws usage_error   also: a frozen weight; a mode that writes
  template <element Element>
  [[nodiscard]] pin_type<const Element> acquire(tensor<Element> wanted, list_id list, access mode,
                                                agent stream = agent::host)
  {
    const entry& it = trained(wanted);
    expects(!writes(mode), "a version of a sharded weight cannot be written");
    steps_.expect_whole();
    const sharding::unit_place place = plan_.place(it.planned);
    return naming(wanted, [&]() -> pin_type<const Element> {
      steps_.catch_up(units_[place.unit]);
      if (list == value_list) expect_weights(wanted, units_[place.unit]);
      return {m_.acquire(units_[place.unit].whole_in(list), access::read, stream), wanted, place.first, it.elements,
              stream};
    });
  }
  /// A weight is always read on the device: the host has only shares.
  template <element Element, access_choice Access>
  [[nodiscard]] pin_type<pinned_as<Element, Access>> acquire(tensor<Element> wanted, Access mode, memory_location place)
  {
    const entry& it = tensors_.of(wanted);
    if (sharding::model_tensors::is_sharded(it.part) || place == memory_location::device) return acquire(wanted, mode);
    seal_once();
    return naming(wanted, [&]() -> pin_type<pinned_as<Element, Access>> {
      return {m_.acquire(tensor<Element>{it.own}, mode, place), wanted, agent::host};
    });
  }

  /// Opens the gradient of the weight that `weight` holds, and consumes this pin. As a manager's.
  /// @throws usage_error   no parameter, or another element type than gradients have
  template <class Kind = void, pinned_element Element>
  [[nodiscard]] auto gradient(pin_type<Element>&& weight, gradient_start how = gradient_start::undefined)
  {
    const tensor<std::remove_const_t<Element>> of = weight.of();
    const agent stream = weight.stream();
    weight.release();
    return gradient<Kind>(of, stream, how);
  }
  /// As above, without a pin of the weight.
  template <class Kind = void, element Element>
  [[nodiscard]] auto gradient(tensor<Element> weight, agent stream = agent::host,
                              gradient_start how = gradient_start::undefined)
  {
    using kind = std::conditional_t<std::is_void_v<Kind>, Element, Kind>;
    const entry& it = trained(weight);
    if (const dtype own = gradient_.type_for(dtype_of<Element>); own != dtype_of<kind>) [[unlikely]]
      throw usage_error{error_text{} << "chunkmem: tensor '" << name_of(weight)
                                     << "': a gradient was requested with an element type that is not its own: "
                                     << chunkmem::name_of(dtype_of<kind>) << ", and it is of " << chunkmem::name_of(own)
                                     << " (name that type, as in m.gradient<float>(...))"};
    const sharding::unit_place place = plan_.place(it.planned);
    auto opened = open_gradient(weight, it, stream);
    const bool adds = opened.adds || how == gradient_start::zeros;  // units begin with zeros
    return sharding::rank_gradient<kind, manager_type>{
        {std::move(opened.unit), tensor<kind>{weight}, place.first, it.elements, stream}, adds};
  }
  /// This rank has no gradient of a weight, but other ranks have: counts as zeros (mixtures of experts).
  /// @throws as gradient
  template <element Element>
  void gradient_zero(tensor<Element> weight, agent stream = agent::host)
  {
    const entry& it = trained(weight);
    (void)open_gradient(weight, it, stream);
  }
  /// The number of opened gradients on this rank.
  [[nodiscard]] std::uint64_t gradients_opened() const noexcept { return gradients_.opened_so_far(); }
  /// The gradient is complete in this micro-batch. With the last one of a unit, its gradients are added over ranks and
  /// leave the device; where gradients are not divided (see zero), in the last micro-batch alone. Without this call
  /// they accumulate until the step.
  template <element Element>
  void gradient_done(sharding::rank_gradient<Element, manager_type>&& last)
  {
    const tensor_handle of = last.of();
    last.release();
    done(of);
  }
  /// As above, after the gradient's pin has ended. @throws as gradient
  template <element Element>
  void gradient_done(tensor<Element> weight, agent = agent::host)
  {
    done(weight);
  }

  /// As a manager's: activations.
  void drop(tensor_handle wanted)
  {
    expects(!sharding::model_tensors::is_sharded(tensors_.of(wanted).part), "a weight cannot be dropped");
    m_.drop(tensors_.of(wanted).own);
  }
  /// As a manager's.
  template <class Give>
  void resize_activations(Give give)
  {
    m_.resize_activations(
        [&](auto set) { give([&](tensor_handle wanted, bytes size) { set(tensors_.of(wanted).own, size); }); });
  }
  /// As a manager's, on every rank.
  void drop_gradients()
  {
    gradients_.let_go();
    m_.drop_gradients();  // which refuses a step that is half done
    gradients_.forget(m_, units_.all());
    steps_.drop();
    if (gradient_.takes_slot()) steps_.forget_wholes();
  }
  /// As a manager's: of this rank alone.
  [[nodiscard]] auto lease(tier where, bytes size, agent stream = agent::host)
  {
    return seal_once().lease(where, size, stream);
  }

  /// optimizer::step over this rank's shares, with the norm and the decision of all ranks. No weight may be pinned.
  /// Ranks compare the options, the loss scale, the settings of the kernel (see names_settings), the number of updates,
  /// and the values of filled weights. This needs no message of its own.
  /// @throws comm_error; usage_error   ranks have gradients of different weights, or different settings: the
  ///   difference, and the ranks; as optimizer::step: call again to continue
  template <optimizer_kernel Kernel, executor Executor = const serial>
  optimizer::step_outcome step(Kernel& kernel, const optimizer::step_options& options = {},
                               Executor& workers = on_this_thread)
  {
    return step_by(kernel, options, workers, decide_by_all{});
  }
  /// As step, as part of a larger step, such as that of all stages of a pipeline. @param decide   `decide(agree,
  /// updates, measures)` returns the measure for the decision, if it needs one. `agree()` is the exchange among these
  /// ranks. After it, `measures.total()` and `measures.for_each(visit)` are the same on each rank:
  /// `visit(tensor_handle, gradient_measure)` @throws as step; and the errors of `decide`
  template <optimizer_kernel Kernel, executor Executor, class Decide>
  optimizer::step_outcome step_by(Kernel& kernel, const optimizer::step_options& options, Executor& workers,
                                  Decide decide)
  {
    sharding::rank_driver<manager_type, Kernel, Executor> driver{m_, kernel, site_with(workers)};
    return take_by(driver, kernel, options, workers, optimizer::detail::update_at_once{}, decide);
  }

  /// Takes the steps of optimizer::late_updates and optimizer::early_updates over this model, on each rank for its
  /// shares:
  ///
  ///     optimizer::late_updates late{model, adam, pool};
  ///     late.step({.learning_rate = 1e-3F});   // in place of model.step
  ///
  /// A late update waits until a weight of its unit is acquired, and the unit is gathered after it. So every rank has
  /// to acquire the same weights in the same order after a late step, also where weights are kept whole (zero_1,
  /// zero_2).
  template <class Kernel, class Executor>
  class step_taker {
   public:
    static constexpr bool updates_behind_sums = true;  ///< late ones too, where the step needs no decision
    using driver_type = sharding::rank_driver<manager_type, Kernel, Executor>;
    using place_type = typename driver_type::place_type;

    step_taker(sharded_model& owner, Kernel& kernel, Executor& workers)
        : owner_{owner}, kernel_{kernel}, workers_{workers}, driver_{owner.m_, kernel, owner.site_with(workers)}
    {
    }

    [[nodiscard]] Kernel& kernel() const noexcept { return kernel_; }
    [[nodiscard]] driver_type& driver() noexcept { return driver_; }
    [[nodiscard]] const driver_type& driver() const noexcept { return driver_; }
    /// Runs the waiting updates of the last step. `take` checks the options with those of other ranks. @return   true:
    /// no update of a step waits   @throws usage_error   `first` is not empty
    bool begin(const optimizer::step_options&, std::span<const tensor_handle> first)
    {
      expects(first.empty(),
              "late updates over ranks, and some parameters are to be updated first (leave `first` empty: units are "
              "updated in the order in which weights are acquired)");
      return begin_part();
    }
    bool begin_part()
    {
      driver_.finish_waiting();
      return true;
    }
    template <class Timing>
    optimizer::step_outcome take(const optimizer::step_options& options, Timing timing, place_type)
    {
      options_ = options;
      return take_by(options, timing, decide_by_all{});
    }
    /// As take, as part of a larger step. @param decide   as of step_by
    template <class Timing, class Decide>
    optimizer::step_outcome take_by(const optimizer::step_options& options, Timing timing, Decide decide)
    {
      return owner_.take_by(driver_, kernel_, options, workers_, timing, decide);
    }
    /// Measures the gradient of a share, unless its measure is known. Its update may follow at once.
    void measure(tensor_handle, const tensor_info& info)
    {
      owner_.steps_.measure_early(owner_.ranks(), driver_, info.ordinal, workers_);
    }
    /// The decision of the step that `take` runs, by all ranks.
    [[nodiscard]] optimizer::detail::step_verdict judge()
    {
      agree();
      return driver_.judge();
    }
    void decide()
    {
      agree();
      driver_.decide();
    }
    template <class Work>
    void update(std::uint32_t ordinal, Work work)
    {
      owner_.steps_.update_waiting(ordinal, work);
    }

   private:
    void agree()
    {
      owner_.steps_.agree_on_measure(
          owner_.ranks(), [this] { owner_.settle(); }, driver_, kernel_, options_, workers_,
          owner_.with_handles(decide_by_all{}));
    }

    sharded_model& owner_;
    Kernel& kernel_;
    Executor& workers_;
    driver_type driver_;
    optimizer::step_options options_{};  // of the step that is taken
  };
  /// Runs all waiting updates, as late_updates::finish. Every rank calls it. @throws usage_error   on every rank: the
  /// object that runs them has ended on one of them; and the errors of the updates
  void finish_updates()
  {
    (void)finish_updates_unless([] { return false; });
  }
  /// As finish_updates. Where `may_wait()` is true on every rank, the updates wait on. @return   the updates wait
  bool finish_updates_unless(call_ref<bool()> may_wait)
  {
    const auto expect_served_or_wait = [&] {
      const bool waits = may_wait();
      if (!waits) m_.updates().pending().expect_served();
      return waits;
    };
    if (!is_finishing_ && collective::agreed(ranks(), expect_served_or_wait)) return true;
    is_finishing_ = true;  // a rank whose update failed calls again, alone
    m_.updates().finish_updates();
    is_finishing_ = false;
    return false;
  }
  /// Discards waiting updates: for loads, which give every weight another value.
  void discard_updates() noexcept
  {
    m_.updates().pending().discard();
    is_finishing_ = false;
  }
  /// Shares were changed outside of `step` (a checkpoint was loaded into `shares()`): gathers the weights again. Every
  /// rank calls it.
  /// @throws usage_error   in an iteration; a weight is pinned; gradients have the bytes of shares (gradient::in_place)
  /// @throws comm_error, out_of_memory, device_error: call it again
  void gather_weights()
  {
    seal_once();
    steps_.gather_weights();
  }

  /// For iterations: gradients that were declared done are added over ranks.
  void end_micro_batch() { gradients_.end_micro_batch(m_, units_.all()); }

 private:
  /// The decision of a step on its own.
  struct decide_by_all {
    template <class Agree, class Measures>
    gradient_measure operator()(Agree agree, std::uint64_t, const Measures& measures) const
    {
      agree();
      measures.found.expect_any();
      return measures.total();
    }
  };
  template <class Executor>
  [[nodiscard]] auto site_with(Executor& workers)
  {
    return sharding::share_site{optimizer::detail::caller_site<manager_type, Executor>{m_.backend(), workers},
                                units_.runs()};
  }
  template <class Driver, class Kernel, class Executor, class Timing, class Decide>
  optimizer::step_outcome take_by(Driver& driver, Kernel& kernel, const optimizer::step_options& options,
                                  Executor& workers, Timing timing, Decide decide)
  {
    is_finishing_ = false;
    return sharding::end_all_on_failure(ranks_, [&] {
      return steps_.take(
          ranks(), [this] { settle(); }, driver, kernel, options, workers, timing, with_handles(decide));
    });
  }
  /// `decide` of step_by, for measures by tensors of the plan.
  template <class Decide>
  [[nodiscard]] auto with_handles(Decide decide)
  {
    return [this, decide](auto agree, std::uint64_t updates, const sharding::agreed_measure& found) {
      return decide(agree, updates, measures_of_step{tensors_, found});
    };
  }

  manager_type& seal_once()
  {
    if (!sealed_) [[unlikely]]
      seal();
    return m_;
  }
  /// Calls `visit(agent)` for the agents that communicate over ranks.
  template <class Visit>
  void for_each_worker(Visit visit) const
  {
    visit(worker_);
    if (worker_of_sums_ != worker_) visit(worker_of_sums_);
  }
  /// Work of groups on a device has to be polled: otherwise a wait for it has no deadline. @throws comm_error
  void finish(communicator_type& group)
  {
    if constexpr (sharding::works_on_streams<communicator_type, Backend>)
      for_each_worker([&](agent each) { group.finish(m_.backend(), each); });
  }
  /// Runs a call that gives bytes of a tensor: where ranks have failed, the error names the tensor and the rank.
  template <class Work>
  decltype(auto) naming(tensor_handle wanted, Work work)
  {
    try {
      return work();
    } catch (const comm_error& failed) {
      throw sharding::comm_error_about(name_of(wanted), ranks().rank(), failed);
    }
  }
  /// A hash of extents, role and type of a tensor, and of a weight's unit and group.
  [[nodiscard]] std::uint64_t word_of(std::uint32_t tensor) const
  {
    const sharding::model_tensors::entry& it = tensors_[tensor];
    collective::fingerprint all;
    all.add(static_cast<std::uint64_t>(it.part) << 8U | static_cast<std::uint64_t>(it.type));
    all.add(it.extents.rank());
    for (std::size_t axis = 0; axis < it.extents.rank(); ++axis) all.add(it.extents[axis]);
    if (sharding::model_tensors::is_sharded(it.part)) {
      const std::uint32_t unit = plan_.place(it.planned).unit;
      all.add(std::uint64_t{unit} << 32U | index_of(plan_.units()[unit].group));
    }
    return all.value();
  }
  [[nodiscard]] std::string text_of(std::uint32_t tensor) const
  {
    const sharding::model_tensors::entry& it = tensors_[tensor];
    error_text all;
    all << chunkmem::name_of(it.part) << " " << tensors_.name_of(tensor) << " of " << chunkmem::name_of(it.type);
    for (std::size_t axis = 0; axis < it.extents.rank(); ++axis) all << " " << it.extents[axis];
    if (sharding::model_tensors::is_sharded(it.part)) {
      const std::uint32_t unit = plan_.place(it.planned).unit;
      all << " in unit " << unit << ", group " << index_of(plan_.units()[unit].group);
    }
    return std::string{all.view()};
  }
  [[noreturn]] void refuse_tensors()
  {
    collective::named_words mine;
    for (std::uint32_t tensor = 0; tensor < tensors_.size(); ++tensor)
      mine.add(std::to_string(tensor), word_of(tensor), text_of(tensor));
    throw usage_error{mine.difference(
        ranks(), {"ranks have different tensors", "rank", "declare the same tensors in the same order on every rank"})};
  }
  [[noreturn]] void refuse_values()
  {
    collective::named_words mine;
    for (std::uint32_t planned = 0; planned < plan_.tensors(); ++planned)
      filled_.add_to(mine, planned, name_of(tensors_.tensor_of_plan(planned)));
    throw usage_error{mine.difference(ranks(), {"ranks have different first values", "rank",
                                                "declare the same weights in the same order, and fill each with the "
                                                "same values on every rank, or give its pin to broadcast"})};
  }
  /// Broadcasts in pieces of a chunk. @param label   `label()`: of the tensor, the same on every rank
  void broadcast_bytes(std::span<std::byte> all, rank_id from, call_ref<std::uint32_t()> label)
  {
    const bool sends = ranks().rank() == from;
    const std::size_t most = std::min<std::size_t>(all.size(), chunk_bytes_.count());
    using lease_type = decltype(m_.lease(tier::host, bytes{}));
    std::optional<lease_type> on_host, on_device;
    std::uint32_t called = 0;
    collective::all_or_none(ranks(), [&] {
      expects(index_of(from) < ranks().ranks(), "broadcast was given a rank that does not exist");
      expects(!all.empty(), "broadcast takes the pin of a weight that is being filled (acquire it with access::write)");
      on_host.emplace(seal_once().lease(tier::host, bytes{most}));
      on_device.emplace(m_.lease(tier::device, bytes{most}, worker_));
      called = label();
    });
    std::byte* const here = on_host->data();
    std::byte* const there = on_device->data();
    for (std::size_t begin = 0; begin < all.size(); begin += most) {
      const std::span<std::byte> piece = all.subspan(begin, std::min(most, all.size() - begin));
      const bytes size{piece.size()};
      if (sends) {
        std::ranges::copy(piece, here);
        m_.backend().copy(there, here, size, worker_);
      }
      ranks().broadcast(m_.backend(), worker_, there, size, from, called);
      if (!sends) m_.backend().copy(here, there, size, worker_);
      settle();
      if (!sends) std::copy_n(here, piece.size(), piece.data());
    }
  }
  /// @throws config_error   units of parts of a chunk
  [[nodiscard]] bytes unit_bytes() const
  {
    if (options_.unit_bytes == bytes{}) return chunk_bytes_;
    if (options_.unit_bytes.count() % chunk_bytes_.count() != 0)
      throw config_error{error_text{} << "chunkmem: unit_bytes is " << options_.unit_bytes.count()
                                      << " B, which is no multiple of chunk_bytes, " << chunk_bytes_.count()
                                      << " B (use " << align_up(options_.unit_bytes, chunk_bytes_).count()
                                      << ", or 0 for units of a chunk)"};
    return options_.unit_bytes;
  }
  [[nodiscard]] std::array<std::uint64_t, 7> settings_words() const
  {
    const std::uint64_t divided = (options_.divided.gradients ? 1U : 0U) + (options_.divided.parameters ? 2U : 0U);
    collective::fingerprint division;
    division.add(divided << 32 | std::bit_cast<std::uint32_t>(options_.sum_scale));
    division.add(options_.unit_bytes.count());
    division.add(options_.gathers_ahead);
    collective::fingerprint tensors;
    for (std::uint32_t tensor = 0; tensor < tensors_.size(); ++tensor) tensors.add(word_of(tensor));
    return {m_.backend().capacity(tier::device).count(),
            m_.backend().capacity(tier::host).count(),
            chunk_bytes_.count(),
            division.value(),
            plan_.division().shares,
            std::uint64_t{gradient_.takes_slot() ? 1U : 0U} |
                static_cast<std::uint64_t>(gradient_.type_for(dtype::bfloat16)) << 8U |
                static_cast<std::uint64_t>(gradient_.type_for(dtype::float16)) << 16U,
            tensors.value()};
  }
  /// @throws config_error   no checkpoint could hold a tensor of this name
  void expect_storable(role part, std::string_view name) const
  {
    if (part == role::activation) return;
    constexpr std::size_t more = name_rules::longest_part;
    name_rules::expect_tensor(name, more);
    name_rules::expect_beside(
        name, [this](auto visit) { m_.for_each_list([&](list_id, const list_spec& spec) { visit(spec.name); }); },
        more);
    if (!sharding::model_tensors::is_sharded(part)) sharding::expect_no_unit_name(name);
  }
  /// A number that differs between models with different names: ranks that use different models notice it. 0: without
  /// names.
  [[nodiscard]] std::uint32_t number_of_names() const
  {
    collective::fingerprint all;
    bool has_names = false;
    for (std::uint32_t index = 0; index < tensors_.size(); ++index) {
      const std::string name = tensors_.name_of(index);
      if (name.starts_with("tensor.")) continue;
      has_names = true;
      all.add(name);
    }
    return has_names ? static_cast<std::uint32_t>(all.value()) & 0xFFFF'0000U : 0;
  }
  void name_own(std::uint32_t tensor)
  {
    if (!sharding::model_tensors::is_sharded(tensors_[tensor].part))
      m_.name(tensors_[tensor].own, tensors_.name_of(tensor));
  }
  [[nodiscard]] mover_type mover(Ranks& ranks) noexcept
  {
    return {ranks, worker_, worker_of_sums_, worker_of_shares_, &runs_, ownership_};
  }
  /// A manager refuses values that are none of its policies: the ownership is part of the mover, and is passed as the
  /// mover again.
  template <class Given>
  [[nodiscard]] auto or_mover(const Given& given, Ranks& ranks)
  {
    if constexpr (std::same_as<Given, ownership_type>)
      return mover(ranks);
    else
      return given;
  }
  /// The measures of a step, by handles.
  struct measures_of_step {
    [[nodiscard]] gradient_measure total() const noexcept { return found.total(); }
    template <class Visit>
    void for_each(Visit visit) const
    {
      found.for_each([&](std::uint32_t planned, const gradient_measure& measure) {
        visit(tensors.handle_of(tensors.tensor_of_plan(planned)), measure);
      });
    }
    /// Calls `visit(handle)` for each parameter, with a gradient or without.
    template <class Visit>
    void for_each_weight(Visit visit) const
    {
      for (std::uint32_t tensor = 0; tensor < tensors.size(); ++tensor)
        if (tensors[tensor].part == role::parameter) visit(tensors.handle_of(tensor));
    }
    const sharding::model_tensors& tensors;
    const sharding::agreed_measure& found;
  };
  struct rehearsed_until_end {
    sharded_model& model;
    ~rehearsed_until_end()
    {
      model.gradients_.end_rehearsal();
      model.steps_.forget();
    }
  };
  [[nodiscard]] const entry& trained(tensor_handle weight)
  {
    const entry& it = tensors_.of(weight);
    expects(it.part == role::parameter,
            "a gradient, or a version, of a tensor that is not trained (a frozen weight, a buffer or an activation)");
    seal_once();
    return it;
  }
  template <element Element>
  [[nodiscard]] auto fill(tensor<Element> wanted, access_mode mode)
  {
    const entry& it = tensors_.of(wanted);
    expects(mode == access::write && !m_.is_iterating() && !rehearsing(),
            "a sharded weight is written whole and between iterations (acquire it with access::write before "
            "they begin)");
    auto result = std::make_unique<sharding::filling<Element, manager_type>>();
    constexpr bool has_bytes = engine_type::has_bytes;
    if (has_bytes) result->all.resize(it.elements);
    result->filled = &filled_;
    result->planned = it.planned;
    const std::uint32_t index = plan_.place(it.planned).unit;
    const sharding::unit_tensors& unit = units_[index];
    steps_.catch_up(unit);
    expects(!m_.gathered().has_master(unit.share.id),
            "a weight was written whose share has a master: other weights in its unit would lose digits of their "
            "masters (write "
            "weights before the first iteration)");
    const bool first = m_.state_of(unit.share) == tensor_state::free;
    result->unit =
        m_.acquire(unit.whole, first || !unit.is_kept ? access::write : access::read_write, memory_location::host);
    result->kept =
        m_.acquire(tensor<Element>{unit.share}, first ? access::write : access::read_write, memory_location::host);
    if (has_bytes && first) std::fill_n(std::as_const(result->kept).data(), unit.share_elements, Element{});
    if (unit.is_kept) {
      result->whole = reinterpret_cast<Element*>(std::as_const(result->unit).data());
      if (has_bytes && first) std::fill_n(result->whole, unit.elements, Element{});
      result->whole += plan_.place(it.planned).first;
    }
    if (const sharding::tensor_part* part = units_.part_of(index, it.planned); part != nullptr) {
      result->first = part->first;
      result->begin = part->begin - unit.share_begin;
      result->elements = part->elements;
    }
    return result;
  }

  /// Before a unit is gathered. @throws usage_error   the gradients of its share have taken the share's bytes
  void expect_weights(tensor_handle wanted, const sharding::unit_tensors& unit)
  {
    if (!gradient_.takes_slot() || unit.is_kept || m_.state_of(unit.share) != tensor_state::gradient || rehearsing())
        [[likely]]
      return;
    m_.gathered().keep_apart(unit.share.id);
    throw usage_error{error_text{} << "chunkmem: tensor '" << name_of(wanted)
                                   << "': a weight was read between its gradient and its step, and on each rank the "
                                      "gradients of its unit have the bytes that it is gathered from (take the step "
                                      "first, or call drop_gradients; from the next iteration on this unit has "
                                      "gradients of its own)"};
  }
  [[nodiscard]] auto open_gradient(tensor_handle weight, const entry& it, agent stream)
  {
    return naming(weight, [&] {
      return gradients_.open(m_, units_[plan_.place(it.planned).unit], it.planned, stream,
                             [&] { return name_of(weight); });
    });
  }
  void done(tensor_handle weight)
  {
    const entry& it = trained(weight);
    naming(weight, [&] { gradients_.done(m_, units_[plan_.place(it.planned).unit], it.planned); });
  }

  sharding::process_groups_of<Ranks> ranks_;
  agent worker_;
  agent worker_of_sums_;  // worker_, unless sums have groups of their own
  agent adder_;
  agent worker_of_shares_;  // agent::to_device, unless sums have groups of their own and an agent is left
  ownership_type ownership_;
  sharding::unit_runs runs_;
  manager_type m_;
  plan_type plan_;
  sharding::gathered_units units_;
  sharding::unit_gradients<manager_type> gradients_;
  gradient_type gradient_;
  sharding::model_tensors tensors_;
  bytes chunk_bytes_;
  sharding::sharding_options options_;
  bool sealed_ = false;
  bool agreed_ = false;
  bool compared_ = false;      // first values
  bool is_finishing_ = false;  // ranks have agreed to run the waiting updates
  sharding::first_values filled_;

  sharding::rank_step<manager_type, plan_type> steps_{m_,    plan_,    units_,  gradients_,
                                                      runs_, tensors_, filled_, options_.gathers_ahead};
};

}  // namespace chunkmem::inline v0
