#pragma once

#include <chunkmem/collective/call.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/sharding/agreed_measure.hpp>
#include <chunkmem/sharding/gathered_units.hpp>
#include <chunkmem/sharding/rank_iteration.hpp>
#include <chunkmem/sharding/rank_manager.hpp>
#include <chunkmem/sharding/rank_pin.hpp>
#include <chunkmem/sharding/rank_tensors.hpp>
#include <chunkmem/sharding/unit_gradients.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// A model whose weights, gradients and optimizer states are divided over ranks that train it together: ZeRO on chunks.
///
/// Calls are those of a manager, and every rank makes the same ones in the same order. Weights lie in units of whole chunks; a
/// rank keeps one share of each, on the host or where its manager puts it, with the states of that share. A unit is whole on the
/// device while it is used: loading it brings the own share and gathers the others'. Gradients are made whole, added over
/// ranks in order of ranks, and only the own share stays. So a rank's memory is that of the model over ranks, and of the units in use.
/// That is stage 3; in stages 1 and 2 (see zero) weights stay whole on every rank, which gathers them behind each update.
/// What a rank learns from its own data (activations, buffers) is a tensor of its own manager, untouched by others.
/// Bits: W ranks with one micro-batch each get those of one rank whose gradients were added in that grouping.
///
/// @tparam Ranks   a communicator, or sharding::circles of one; it and the backend outlive this
/// @tparam Policies   of the manager, but for the mover; and an ownership (sharded; whole by groups; hierarchical), which divides chunks
/// @threads   one caller for each rank   Source: ZeRO-3 (Rajbhandari et al. 2020, arXiv 1910.02054) on chunks, as PatrickStar
/// (Fang et al. 2021, arXiv 2108.05818), divided as Gemini and Elixir divide chunks
template <stream_backend Backend, sharding::rank_group<Backend> Ranks, class... Policies>
class sharded_model : public sharding::rank_tensors<Backend, Ranks, Policies...> {
  using base = sharding::rank_tensors<Backend, Ranks, Policies...>;
  using typename base::entry;
  using base::agree_on_model, base::agreed_, base::entry_of, base::gradient_, base::gradients_, base::is_sharded, base::m_, base::plan_,
      base::seal_once, base::units_;

 public:
  using base::base, base::ranks, base::seal;
  using typename base::engine_type, typename base::manager_type;
  template <element Element>
  using pin_type = sharding::rank_pin<Element, manager_type>;

  /// As a manager's. Ranks do not talk in it. @throws usage_error   also where gradients are open
  template <class Step>
  memory_requirement rehearse(Step&& step)
  {
    seal();
    if (rehearsing()) return m_.rehearse(step);  // which refuses it
    expect_whole();
    gradients_.begin_rehearsal();
    const rehearsed_until_end puts_back{*this};
    return m_.rehearse([&] {
      gradients_.forget_rehearsal();
      step();
    });
  }
  [[nodiscard]] bool rehearsing() const noexcept { return m_.rehearsing(); }

  // Training.

  /// As a manager's. @throws comm_error, usage_error   the first one: ranks have other models or other room
  [[nodiscard]] auto iteration(std::string_view name, std::uint32_t micro_batches = 1)
  {
    seal_once();
    if (!agreed_ && !rehearsing()) agree_on_model();
    gradients_.begin(micro_batches);
    return sharding::rank_iteration<sharded_model>{*this, [&] { return m_.iteration(name, micro_batches); }};
  }
  [[nodiscard]] auto iteration(std::uint32_t micro_batches = 1) { return iteration("train", micro_batches); }

  /// A pin on the device. Weights are read only, whole; other tensors as in a manager.
  /// @throws comm_error   what a unit is made of could not be gathered; as a manager's acquire
  template <element Element>
  [[nodiscard]] pin_type<Element> acquire(tensor<Element> wanted, access how, agent who = agent::host)
  {
    seal_once();
    const entry& it = entry_of(wanted);
    if (!is_sharded(it.part)) return {m_.acquire(tensor<Element>{it.own}, how, who), wanted, who};
    expect_whole();
    if (writes(how)) return fill(wanted, how);
    const sharding::unit_place place = plan_.place(it.planned);
    return {m_.acquire(units_[place.unit].whole, access::read, who), wanted, place.first, it.elements, who};
  }
  /// A weight is read on the device wherever it is wanted: on the host there are shares alone.
  template <element Element>
  [[nodiscard]] pin_type<Element> acquire(tensor<Element> wanted, access how, at place)
  {
    const entry& it = entry_of(wanted);
    if (is_sharded(it.part) || place == at::device) return acquire(wanted, how);
    seal_once();
    return {m_.acquire(tensor<Element>{it.own}, how, place), wanted, agent::host};
  }

  /// The gradient of the weight that `weight` held; that pin is spent. As a manager's.
  /// @throws usage_error   no parameter, or another element type than gradients have
  template <class Kind = void, element Element>
  [[nodiscard]] auto gradient(pin_type<Element>&& weight)
  {
    const tensor<Element> of = weight.of();
    const agent who = weight.who();
    weight.release();
    return gradient<Kind>(of, who);
  }
  template <class Kind = void, element Element>
  [[nodiscard]] auto gradient(tensor<Element> weight, agent who = agent::host)
  {
    using kind = std::conditional_t<std::is_void_v<Kind>, Element, Kind>;
    const entry& it = entry_of(weight);
    expects(it.part == role::parameter, "a gradient of a tensor that is not trained (a frozen weight, a buffer or an activation)");
    expects(gradient_.type_for(dtype_of<Element>) == dtype_of<kind>,
            "a gradient was asked for with an element type that is not its own (m.gradient<float>(...) where gradients are wide)");
    seal_once();
    const sharding::unit_place place = plan_.place(it.planned);
    auto opened = gradients_.open(m_, units_[place.unit], it.planned, who);
    return sharding::rank_gradient<kind, manager_type>{std::move(opened.unit), weight, place.first, it.elements, opened.adds};
  }
  /// The gradient is complete in this micro-batch. With the last one of a unit its gradients are added over ranks, and leave the
  /// device; where gradients are not divided (see zero) in the last micro-batch alone. Where it is not called they add up until the step.
  template <element Element>
  void gradient_done(sharding::rank_gradient<Element, manager_type>&& last)
  {
    const tensor_handle of = last.of();
    last.release();
    done(of);
  }
  template <element Element>
  void gradient_done(tensor<Element> weight, agent = agent::host)
  {
    done(weight);
  }

  /// optimizer::step over what this rank owns, with the norm and the decision of all ranks.
  /// @throws comm_error; usage_error   ranks have gradients of different weights, or other options; as optimizer::step: call again to go on
  template <optimizer_kernel Kernel, executor Executor = const optimizer::serial>
  optimizer::step_outcome step(Kernel& kernel, const optimizer::step_options& options = {}, Executor& workers = optimizer::on_this_thread)
  {
    if (!updated_) {
      for (std::uint32_t at = 0; at < units_.size(); ++at) gradients_.finish(m_, units_[at], at);
      if (!rehearsing()) this->settle();
      agree_on_gradients(kernel, options, workers);
      const changing now{*this};
      updated_ = optimizer::step(m_, kernel, options, workers);
      gradients_.forget_step();
    }
    for (; behind_ < units_.size(); ++behind_)
      if (units_[behind_].is_kept && units_[behind_].is_trained) m_.gather_over_ranks(units_[behind_].whole);
    behind_ = 0;
    return *std::exchange(updated_, std::nullopt);
  }

  /// Shares were changed by others than `step` (a checkpoint was loaded into `shares()`): weights are made of them anew. Every rank has to call it.
  /// @throws usage_error   in an iteration, or a weight is pinned; comm_error, out_of_memory, device_error: call it again
  void gather_weights()
  {
    seal_once();
    expects(!m_.is_iterating() && !rehearsing(), "weights were to be gathered in an iteration (end it first)");
    for (const sharding::unit_tensors& it : units_.all()) {
      if (it.is_kept) m_.gather_over_ranks(it.whole);
      else m_.change(it.whole).release();
    }
  }

  /// As a manager's: activations.
  void drop(tensor_handle wanted)
  {
    expects(!is_sharded(entry_of(wanted).part), "a weight was to be dropped");
    m_.drop(entry_of(wanted).own);
  }
  void drop_gradients()
  {
    gradients_.forget(m_, units_.all());
    m_.drop_gradients();
  }
  [[nodiscard]] auto lease(tier where, bytes size, agent who = agent::host) { return seal_once().lease(where, size, who); }

  /// For iterations: gradients that were declared done are added over ranks.
  void end_micro_batch(std::uint32_t next) { gradients_.end_micro_batch(m_, units_.all(), next); }

 private:
  struct rehearsed_until_end {
    sharded_model& model;
    ~rehearsed_until_end()
    {
      model.gradients_.end_rehearsal();
      model.updated_.reset();
      model.behind_ = 0;
    }
  };
  /// While it lives shares change: units that are not kept have no whole, and runs know whether they have a gradient.
  struct changing {
    explicit changing(sharded_model& of) : model{of}
    {
      model.changes_.reserve(model.units_.size());
      for (const sharding::unit_tensors& it : model.units_.all()) {
        if (!it.is_kept) model.changes_.push_back(model.m_.change(it.whole));
        for (std::size_t part = 0; part < it.parts.size(); ++part)
          model.m_.runs_of(it.share)[part].has_gradient = model.gradients_.is_of_step(it.parts[part].tensor);
      }
    }
    ~changing() { model.changes_.clear(); }
    changing(const changing&) = delete;
    sharded_model& model;
  };

  void expect_whole() const
  {
    expects(!updated_, "a weight was used behind a step that did not end: it was updated, and not gathered yet (call step again)");
  }

  template <element Element>
  [[nodiscard]] pin_type<Element> fill(tensor<Element> wanted, access how)
  {
    const entry& it = entry_of(wanted);
    expects(how == access::write && !m_.is_iterating() && !rehearsing(),
            "a weight that is sharded is written whole and between iterations (acquire it with access::write before they begin)");
    auto result = std::make_unique<sharding::filling<Element, manager_type>>();
    result->all.resize(it.elements);
    const std::uint32_t at = plan_.place(it.planned).unit;
    const sharding::unit_tensors& unit = units_[at];
    const bool first = m_.state_of(unit.share) == tensor_state::free;
    result->unit = m_.acquire(unit.whole, first || !unit.is_kept ? access::write : access::read_write, at::host);
    result->kept = m_.acquire(tensor<Element>{unit.share}, first ? access::write : access::read_write, at::host);
    if (first) std::fill_n(std::as_const(*result->kept).data(), unit.share_elements, Element{});
    if (unit.is_kept) {
      result->whole = reinterpret_cast<Element*>(std::as_const(*result->unit).data());
      if (first) std::fill_n(result->whole, unit.elements, Element{});
      result->whole += plan_.place(it.planned).first;
    }
    if (const sharding::tensor_part* part = units_.part_of(at, it.planned); part != nullptr) {
      result->first = part->first;
      result->begin = part->begin - unit.share_begin;
      result->elements = part->elements;
    }
    return {std::move(result), wanted, it.elements};
  }

  void done(tensor_handle weight)
  {
    const entry& it = entry_of(weight);
    expects(it.part == role::parameter, "gradient_done of a tensor that is not trained");
    gradients_.done(m_, units_[plan_.place(it.planned).unit], it.planned);
  }

  /// What has to be the same on every rank, as a word. @param updates   so far: ranks may have loaded checkpoints of different steps
  [[nodiscard]] static std::uint64_t settings_of(const optimizer::step_options& options, std::uint64_t updates)
  {
    collective::fingerprint all;
    for (const float it : {options.learning_rate, options.clip.norm, options.clip.value, options.loss_scale != nullptr ? options.loss_scale->scale() : 0.0F})
      all.add(std::bit_cast<std::uint32_t>(it));
    for (const float it : options.group_rates) all.add(std::bit_cast<std::uint32_t>(it));
    all.add(static_cast<std::uint64_t>(options.clip.order) * 2 + (options.skip_nonfinite ? 1 : 0));
    all.add(options.seed);
    all.add(updates);
    return all.value();
  }

  /// What all gradients of all ranks measure, where the step asks for it; that all take the same step, always.
  template <class Kernel, class Executor>
  void agree_on_gradients(const Kernel& kernel, const optimizer::step_options& options, Executor& workers)
  {
    const optimizer::step_progress& progress = kernel.progress;
    const bool is_decided = progress.decision != optimizer::step_decision::open && progress.gradients == m_.gradients_opened();
    if (is_decided && progress.forgotten == m_.steps_forgotten() && !rehearsing()) return;
    if (!rehearsing())
      measure_.begin(ranks(), plan_.tensors(), [this](std::uint32_t planned) { return gradients_.is_of_step(planned); }, settings_of(options, progress.number));
    if (!options.skip_nonfinite && options.loss_scale == nullptr && !(options.clip.norm > 0.0F)) return;
    for (std::uint32_t at = 0; at < units_.size(); ++at)
      if (units_[at].is_trained) measure_unit(at, workers);
    m_.keep_measure_of_all(rehearsing() ? gradient_measure{} : measure_.total());
  }
  template <class Executor>
  void measure_unit(std::uint32_t at, Executor& workers)
  {
    const sharding::unit_tensors& it = units_[at];
    if (!m_.has_gradient(it.share)) return;
    const auto pin = m_.acquire_bytes(it.share, gradient_list, access::read, m_.place_of_update(it.share));
    if (!rehearsing()) measure_.add(ranks(), plan_, at, it.gradient_type, reinterpret_cast<const std::byte*>(pin.data()), workers);
  }

  sharding::agreed_measure measure_;
  std::vector<typename manager_type::template pin_type<std::uint8_t>> changes_;  // of a step, kept for its memory
  std::optional<optimizer::step_outcome> updated_;  // by a step that has not gathered all kept units yet
  std::uint32_t behind_ = 0;                         // the first of those
};

}  // namespace chunkmem::inline v0
