// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/expects.hpp>
#include <chunkmem/manager/rehearse_on.hpp>
#include <chunkmem/optimizer/executor.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/sharding/gathered_units.hpp>
#include <chunkmem/sharding/rank_iteration.hpp>
#include <chunkmem/sharding/rank_pin.hpp>
#include <chunkmem/sharding/rank_step.hpp>
#include <chunkmem/sharding/rank_tensors.hpp>
#include <chunkmem/sharding/unit_gradients.hpp>
#include <chunkmem/tensor/gradient_start.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

namespace chunkmem::inline v0 {

/// A model whose weights, gradients and optimizer states are divided over ranks that train it together: ZeRO on chunks.
///
///     sharded_model<backend::host_arena, collective::local_threads> m{memory, ranks};
///     const auto weight = m.add<float>({1'024, 1'024}, role::parameter);
///     m.use(adam);
///     { auto it = m.iteration(); train(m, weight); }  // forward and backward, on every rank
///     m.step(adam, {.learning_rate = 1e-3F});
///
/// Calls are those of a manager, and every rank makes the same ones in the same order. Weights lie in units of whole
/// chunks; a rank keeps one share of each, on the host or where its manager puts it, with the states of that share. A
/// unit is whole on the device while it is used: loading it brings the own share and gathers the others'. Gradients are
/// made whole, added over ranks in order of ranks, and only the own share stays. So a rank's memory is that of the
/// model over ranks, and of the units in use. That is stage 3; in stages 1 and 2 (see zero) weights stay whole on every
/// rank, which gathers them behind each update. What a rank learns from its own data (activations, buffers) is a tensor
/// of its own manager, untouched by others. Bits: W ranks with one micro-batch each get those of one rank whose
/// gradients were added in that grouping.
///
/// @tparam Ranks   a communicator, or sharding::process_groups of one; it and the backend outlive this
/// @tparam Policies   of the manager, but for the mover; and an ownership (sharded; whole by groups; hierarchical),
///   which divides chunks
/// @threads   one caller for each rank   Source: ZeRO-3 (Rajbhandari et al. 2020, arXiv 1910.02054) on chunks, as
/// PatrickStar (Fang et al. 2021, arXiv 2108.05818), divided as Gemini and Elixir divide chunks
template <stream_backend Backend, sharding::rank_group<Backend> Ranks, class... Policies>
class sharded_model : public sharding::rank_tensors<Backend, Ranks, Policies...> {
  using base = sharding::rank_tensors<Backend, Ranks, Policies...>;
  using base::agreed_, base::entry_of, base::gradient_, base::gradients_, base::is_sharded, base::m_, base::plan_,
      base::runs_, base::seal_once, base::units_;
  using typename base::entry;

 public:
  using base::base, base::ranks, base::seal, base::settle;
  using typename base::engine_type, typename base::manager_type;
  template <pinned_element Element>
  using pin_type = sharding::rank_pin<Element, manager_type>;

  /// As a manager's. Ranks do not talk in it. @throws usage_error   also where gradients are open
  template <class Step>
  memory_requirement rehearse(Step&& step, rehearse_on on = rehearse_on::nothing)
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
    return m_.rehearse(anew, on);
  }

  [[nodiscard]] bool rehearsing() const noexcept { return m_.rehearsing(); }

  // Training.

  /// As a manager's. @throws comm_error, usage_error   the first one: ranks have other models or other room
  [[nodiscard]] auto iteration(std::string_view name, std::uint32_t micro_batches = 1)
  {
    seal_once();
    if (!agreed_ && !rehearsing()) this->agree_on_model();
    if (!m_.is_iterating()) gradients_.begin(micro_batches);  // else the manager refuses, and the one that runs goes on
    return sharding::rank_iteration<sharded_model>{*this, [&] { return m_.iteration(name, micro_batches); }};
  }
  /// Of the loop "train".
  [[nodiscard]] auto iteration(std::uint32_t micro_batches = 1) { return iteration("train", micro_batches); }

  /// A pin on the device. Weights are read only, whole; other tensors as in a manager.
  /// @throws comm_error   what a unit is made of could not be gathered; as a manager's acquire
  template <element Element, access_choice Access>
  [[nodiscard]] pin_type<pinned_as<Element, Access>> acquire(tensor<Element> wanted, Access mode,
                                                             agent stream = agent::host)
  {
    seal_once();
    const entry& it = entry_of(wanted);
    if (!is_sharded(it.part)) return {m_.acquire(tensor<Element>{it.own}, mode, stream), wanted, stream};
    steps_.expect_whole();
    if (writes(mode)) return {fill(wanted, mode), wanted, it.elements};
    if constexpr (!std::is_same_v<Access, write_access>) {
      const sharding::unit_place place = plan_.place(it.planned);
      return {m_.acquire(units_[place.unit].whole, access::read, stream), wanted, place.first, it.elements, stream};
    }
    return {};  // a write_access writes
  }
  /// A weight is read on the device wherever it is wanted: on the host there are shares alone.
  template <element Element, access_choice Access>
  [[nodiscard]] pin_type<pinned_as<Element, Access>> acquire(tensor<Element> wanted, Access mode, memory_location place)
  {
    const entry& it = entry_of(wanted);
    if (is_sharded(it.part) || place == memory_location::device) return acquire(wanted, mode);
    seal_once();
    return {m_.acquire(tensor<Element>{it.own}, mode, place), wanted, agent::host};
  }

  /// The gradient of the weight that `weight` held; that pin is consumed. As a manager's.
  /// @throws usage_error   no parameter, or another element type than gradients have
  template <class Kind = void, pinned_element Element>
  [[nodiscard]] auto gradient(pin_type<Element>&& weight, gradient_start how = gradient_start::undefined)
  {
    const tensor<std::remove_const_t<Element>> of = weight.of();
    const agent stream = weight.stream();
    weight.release();
    return gradient<Kind>(of, stream, how);
  }
  /// The same without a pin of the weight.
  template <class Kind = void, element Element>
  [[nodiscard]] auto gradient(tensor<Element> weight, agent stream = agent::host,
                              gradient_start how = gradient_start::undefined)
  {
    using kind = std::conditional_t<std::is_void_v<Kind>, Element, Kind>;
    const entry& it = trained(weight);
    expects(gradient_.type_for(dtype_of<Element>) == dtype_of<kind>,
            "a gradient was asked for with an element type that is not its own (m.gradient<float>(...) where gradients "
            "are wide)");
    const sharding::unit_place place = plan_.place(it.planned);
    auto opened = gradients_.open(m_, units_[place.unit], it.planned, stream);
    const bool adds = opened.adds || how == gradient_start::zeros;  // units begin with zeros
    return sharding::rank_gradient<kind, manager_type>{std::move(opened.unit), weight, place.first, it.elements, adds};
  }
  /// This rank has nothing to add to the gradient of a weight that others have one of: as if it were written as zeros
  /// (mixtures of experts).
  /// @throws as gradient
  template <element Element>
  void gradient_zero(tensor<Element> weight, agent stream = agent::host)
  {
    const entry& it = trained(weight);
    (void)gradients_.open(m_, units_[plan_.place(it.planned).unit], it.planned, stream);
  }
  /// The gradient is complete in this micro-batch. With the last one of a unit its gradients are added over ranks, and
  /// leave the device; where gradients are not divided (see zero) in the last micro-batch alone. Where it is not called
  /// they add up until the step.
  template <element Element>
  void gradient_done(sharding::rank_gradient<Element, manager_type>&& last)
  {
    const tensor_handle of = last.of();
    last.release();
    done(of);
  }
  /// The same where the gradient's pin has ended before. @throws as gradient
  template <element Element>
  void gradient_done(tensor<Element> weight, agent = agent::host)
  {
    done(weight);
  }

  /// As a manager's: activations.
  void drop(tensor_handle wanted)
  {
    expects(!is_sharded(entry_of(wanted).part), "a weight was to be dropped");
    m_.drop(entry_of(wanted).own);
  }
  /// As a manager's, on every rank.
  void drop_gradients()
  {
    gradients_.forget(m_, units_.all());
    m_.drop_gradients();
  }
  /// As a manager's: of this rank alone.
  [[nodiscard]] auto lease(tier where, bytes size, agent stream = agent::host)
  {
    return seal_once().lease(where, size, stream);
  }

  /// optimizer::step over what this rank owns, with the norm and the decision of all ranks. No weight may be pinned.
  /// Ranks have to give their kernels the same settings: those are not compared.
  /// @throws comm_error; usage_error   ranks have gradients of different weights, or other options; as optimizer::step:
  ///   call again to go on
  template <optimizer_kernel Kernel, executor Executor = const optimizer::serial>
  optimizer::step_outcome step(Kernel& kernel, const optimizer::step_options& options = {},
                               Executor& workers = optimizer::on_this_thread)
  {
    return steps_.take(
        ranks(), [this] { settle(); }, kernel, options, workers);
  }
  /// Shares were changed by others than `step` (a checkpoint was loaded into `shares()`): weights are made of them
  /// anew. Every rank has to call it.
  /// @throws usage_error   in an iteration, or a weight is pinned; comm_error, out_of_memory, device_error: call it
  ///   again
  void gather_weights()
  {
    seal_once();
    steps_.gather_weights();
  }

  /// For iterations: gradients that were declared done are added over ranks.
  void end_micro_batch(std::uint32_t next) { gradients_.end_micro_batch(m_, units_.all(), next); }

 private:
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
    const entry& it = entry_of(weight);
    expects(it.part == role::parameter,
            "a gradient of a tensor that is not trained (a frozen weight, a buffer or an activation)");
    seal_once();
    return it;
  }
  template <element Element>
  [[nodiscard]] auto fill(tensor<Element> wanted, access_mode mode)
  {
    const entry& it = entry_of(wanted);
    expects(mode == access::write && !m_.is_iterating() && !rehearsing(),
            "a weight that is sharded is written whole and between iterations (acquire it with access::write before "
            "they begin)");
    auto result = std::make_unique<sharding::filling<Element, manager_type>>();
    result->all.resize(it.elements);
    const std::uint32_t index = plan_.place(it.planned).unit;
    const sharding::unit_tensors& unit = units_[index];
    expects(!m_.gathered().has_master(unit.share.id),
            "a weight was written whose share has a master: those of others in its unit would lose digits (write "
            "weights before the first iteration)");
    const bool first = m_.state_of(unit.share) == tensor_state::free;
    result->unit =
        m_.acquire(unit.whole, first || !unit.is_kept ? access::write : access::read_write, memory_location::host);
    result->kept =
        m_.acquire(tensor<Element>{unit.share}, first ? access::write : access::read_write, memory_location::host);
    if (first) std::fill_n(std::as_const(*result->kept).data(), unit.share_elements, Element{});
    if (unit.is_kept) {
      result->whole = reinterpret_cast<Element*>(std::as_const(*result->unit).data());
      if (first) std::fill_n(result->whole, unit.elements, Element{});
      result->whole += plan_.place(it.planned).first;
    }
    if (const sharding::tensor_part* part = units_.part_of(index, it.planned); part != nullptr) {
      result->first = part->first;
      result->begin = part->begin - unit.share_begin;
      result->elements = part->elements;
    }
    return result;
  }

  void done(tensor_handle weight)
  {
    const entry& it = trained(weight);
    gradients_.done(m_, units_[plan_.place(it.planned).unit], it.planned);
  }

  sharding::rank_step<manager_type, std::remove_reference_t<decltype(plan_)>> steps_{m_, plan_, units_, gradients_,
                                                                                     runs_};
};

}  // namespace chunkmem::inline v0
