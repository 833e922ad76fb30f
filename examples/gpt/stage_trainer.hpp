// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backward.hpp"
#include "fnv.hpp"
#include "forward.hpp"
#include "head.hpp"
#include "layer_runs.hpp"
#include "progress.hpp"
#include "settings.hpp"
#include "stage_model.hpp"
#include "stage_run_times.hpp"
#include "virtual_clocks.hpp"
#include "windows.hpp"

#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>
#include <chunkmem/pipeline/stage_runner.hpp>
#include <chunkmem/pipeline/stage_step.hpp>
#include <chunkmem/pipeline/weight_versions.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace gpt {

/// Trains the parts of a model that belong to one stage of a pipeline. A stage_runner calls it.
///
/// An iteration of the manager is a batch. Its update runs at the begin of the next iteration. The table of tokens is
/// tied to that of the logits: the stages with a copy of the table sum both gradients before each update.
///
/// A stage may have replicas, each in a pipeline of its own and with rows of its own. The losses of a batch are added
/// up over the replicas, in their order.
/// @tparam Manager   a sharded_model where the stage has replicas
/// @tparam Place   of this rank, see thread_grid::place
template <class Manager, class Place>
class stage_trainer {
 public:
  using schedule_type = chunkmem::pipeline::schedule;
  using operation = chunkmem::pipeline::operation;
  using forward_run = chunkmem::pipeline::forward_run;
  using backward_run = chunkmem::pipeline::backward_run;

  /// @param size   of the whole model   @param plan, here, text, workers   outlive the trainer
  stage_trainer(Manager& manager, const extents& size, const schedule_type& plan, Place& here,
                const training_text& text, const trainer_settings& settings, chunkmem::optimizer::thread_pool& workers)
      : m_{manager},
        size_{size},
        plan_{plan},
        here_{here},
        text_{text},
        settings_{settings},
        workers_{workers},
        versions_{manager, plan.versions, settings.precision},
        steps_{here.all()}
  {
    for (std::uint32_t part = 0; part < plan.part_count(); ++part)
      if (plan.owners[part] == here.stage()) parts_.try_emplace(part, *this, part);
    manager.use(adam_);
    manager.use(scale_);
    losses_.resize(plan.batches);
    if (has_loss()) manager.state(losses_state, std::as_writable_bytes(std::span{losses_}));  // other stages have none
  }
  stage_trainer(const stage_trainer&) = delete;

  /// Gives the weights of all versions their first values.
  void fill()
  {
    for (auto& [number, part] : parts_) gpt::fill(m_, part.weights(), settings_.seed, workers_);
    versions_.start();
  }
  void begin() { begin("batch", true); }
  void end() { scope_.reset(); }

  void forward(const forward_run& run)
  {
    const timed_run now{*this, run.step, stage_run::forward};
    const auto& [part, place] = prepare(chunkmem::pass::forward, run.step);
    if (part.range.begins)
      for (std::size_t row = 0; row < size_.batch; ++row) place.forward.embed(row, window_of(run.step, row));
    else
      for (std::size_t row = 0; row < size_.batch; ++row) write(place.row(row).layers.front().input, run.input, row);
    place.runs.reset();
    place.runs.forward([&](std::size_t layer) { run_layer(place, layer, run.step); });
    if (part.range.ends) return;
    for (std::size_t row = 0; row < size_.batch; ++row) read(place.row(row).output, run.output, row);
  }

  void backward(const backward_run& run)
  {
    const timed_run now{*this, run.step, stage_run::backward_input};
    const auto& [part, place] = prepare(chunkmem::pass::backward, run.step);
    if (!part.range.ends)
      for (std::size_t row = 0; row < size_.batch; ++row) write(place.row(row).slope, run.output_gradient, row);
    all_gradients(part, place, run.step, true);
    if (part.range.begins) return;
    for (std::size_t row = 0; row < size_.batch; ++row) read(place.row(row).slope, run.input_gradient, row);
  }
  /// Saved activations stay: the gradients of the weights need them later.
  void backward_input(const backward_run& run)
  {
    const timed_run now{*this, run.step, stage_run::backward_input};
    const auto& [part, place] = prepare(chunkmem::pass::backward, run.step);
    if (!part.range.ends)
      for (std::size_t row = 0; row < size_.batch; ++row) write(place.row(row).start, run.output_gradient, row);
    if (part.range.begins && !part.range.ends) return;  // the gradient of its input has no reader
    place.net.keep_saved(true);
    if (part.range.ends)
      add_loss(run.step, run_head(place, run.step, false));
    else
      for (std::size_t row = 0; row < size_.batch; ++row) copy(place.row(row).start, place.row(row).slope);
    for (std::size_t layer = part.range.count; layer-- > 0;) place.backward.layer(layer, false);
    place.net.keep_saved(false);
    for (std::size_t row = 0; row < size_.batch; ++row)
      part.range.begins ? m_.drop(place.row(row).slope) : read(place.row(row).slope, run.input_gradient, row);
  }
  /// Runs the backward pass once more, now with the gradients of the weights.
  void backward_weight(const operation& step)
  {
    const timed_run now{*this, step, stage_run::backward_weight};
    const auto& [part, place] = prepare(chunkmem::pass::backward, step);
    for (std::size_t row = 0; row < size_.batch && !part.range.ends; ++row) {
      copy(place.row(row).start, place.row(row).slope);
      m_.drop(place.row(row).start);
    }
    all_gradients(part, place, step, false);
    for (std::size_t row = 0; row < size_.batch && !part.range.begins; ++row) m_.drop(place.row(row).slope);
  }

  /// All parts of a stage are updated in one step, when the last part's update is due.
  void update(const operation& step)
  {
    if (++updated_ < parts_.size()) return;
    updated_ = 0;
    add_tied_gradients();
    const std::uint32_t batch = step.version - 1;
    add_losses(batch);
    if (!m_.rehearsing() && should_end_ && end_ == no_end && should_end_())
      end_ = chunkmem::pipeline::last_begun_batch(plan_, batch);
    const bool is_saved = !m_.rehearsing() && saves_after_ && saves_after_(batch);
    const bool is_last =
        batch + 1 == plan_.batches || batch == end_ || (m_.rehearsing() && step.version > plan_.versions);
    std::optional<timed_run> now{std::in_place, *this, step, stage_run::update};
    end();
    versions_.flip();
    begin("batch", !is_saved && !is_last);
    const auto done = versions_.update([&] {
      return steps_.take(m_, adam_,
                         {.learning_rate = settings_.schedule.at(batch),
                          .clip = {.norm = settings_.clip},
                          .loss_scale = scales() ? &scale_ : nullptr},
                         workers_, [&](chunkmem::tensor_handle it) { return number_of(it); });
    });
    if (done == chunkmem::optimizer::step_result::skipped_nonfinite) ++skipped_;
    norm_ = done.norm;
    now.reset();
    if (on_update_) on_update_(batch);
    if (!is_saved) return;
    own().updates().keep_record();  // few batches are divided by a save
    end();
    save_(batch);
    begin("behind a save", !is_last);
  }
  /// Called before each update, on every rank; all ranks have to return the same. After true, the training ends with
  /// the batches that some stage has begun.
  void on_question(std::function<bool()> should_end) { should_end_ = std::move(should_end); }
  /// Called by stage_runner.
  [[nodiscard]] bool ends_before(std::uint32_t batch) const noexcept { return batch > end_; }
  /// The last batch of a training that ends early.
  [[nodiscard]] bool is_end(std::uint32_t batch) const noexcept { return batch == end_; }
  /// Called after each update with the number of its batch.
  void on_update(std::function<void(std::uint32_t)> call) { on_update_ = std::move(call); }
  /// Some updates are followed by a save, between two iterations. @param is_due   `is_due(batch)`
  void on_save(std::function<bool(std::uint32_t)> is_due, std::function<void(std::uint32_t)> save)
  {
    saves_after_ = std::move(is_due);
    save_ = std::move(save);
  }
  /// Completed updates, with those of a loaded training.
  [[nodiscard]] std::uint32_t updates() const noexcept { return versions_.newest(); }

  /// The steps of some batches with pins that have no bytes, for a rehearsal.
  void rehearse()
  {
    begin();
    for (const operation& step : plan_.stages[here_.stage()]) {
      run(step);
      if (step.kind == chunkmem::pipeline::operation_kind::update && step.version > plan_.versions) break;
    }
    end();
    updated_ = 0;
    for (auto& [number, part] : parts_) part.added = 0;
    versions_.start();
  }

  /// One step of the schedule without other stages and without bytes: in a rehearsal, or on virtual clocks.
  void run(const operation& step)
  {
    using kind = chunkmem::pipeline::operation_kind;
    if (step.kind == kind::forward) forward(forward_run{step});
    if (step.kind == kind::backward) backward(backward_run{step});
    if (step.kind == kind::backward_input) backward_input(backward_run{step});
    if (step.kind == kind::backward_weight) backward_weight(step);
    if (step.kind == kind::update) update(step);
  }
  [[nodiscard]] stage_run_times& run_times() noexcept { return run_times_; }

  [[nodiscard]] bool has_loss() const { return parts_.contains(plan_.part_count() - 1); }
  /// The mean loss of a position in a batch [nats]. @pre has_loss
  [[nodiscard]] float loss(std::size_t batch) const
  {
    return static_cast<float>(losses_[batch] / static_cast<double>(tokens_of_batch()));
  }
  /// Of all replicas.
  [[nodiscard]] std::uint64_t tokens_of_batch() const { return size_.tokens_per_step() * here_.replicas().ranks(); }
  [[nodiscard]] std::size_t skipped() const noexcept { return skipped_; }
  /// Of all gradients of the last step, before clipping; 0 where it was not computed.
  [[nodiscard]] double norm() const noexcept { return norm_; }
  [[nodiscard]] const trainer_settings& settings() const noexcept { return settings_; }

  /// Words of the newest weights: for each parameter of the whole model a hash, and 0 for those of other stages.
  [[nodiscard]] std::vector<std::uint64_t> hashes()
  {
    std::vector<std::uint64_t> all(3 + 10 * size_.layers, 0);
    for (auto& [number, part] : parts_)
      for (const parameter& each : part.weights().parameters)
        with_element(each.tensor.type, [&](auto element) {
          const auto pin = m_.acquire(each.tensor.template as<decltype(element)>(), chunkmem::access::read);
          fnv1a hash;
          hash.add_words(std::as_bytes(pin.span()));
          all[each.number] = hash.value();
        });
    return all;
  }

 private:
  static constexpr bool has_replicas = requires(Manager& m) { m.shares(); };
  using iteration_type = decltype(std::declval<Manager&>().iteration("batch", 1U));

  /// A part runs while this object lives. An update begins after the waits for other stages. A rehearsal is not timed.
  class timed_run {
   public:
    timed_run(stage_trainer& owner, const operation& step, stage_run run)
        : owner_{owner}, part_{step.part}, run_{run}, begin_{owner.m_.backend().now()}
    {
    }
    timed_run(const timed_run&) = delete;
    ~timed_run()
    {
      if (owner_.m_.rehearsing()) return;
      owner_.run_times_.add(part_, run_, static_cast<double>(owner_.m_.backend().now() - begin_) * 1e-9);
    }

   private:
    stage_trainer& owner_;
    std::uint32_t part_;
    stage_run run_;
    std::uint64_t begin_;
  };

  /// Activations of one micro-batch, and the runs that use them.
  struct one_place {
    one_place(Manager& m, const model& handles, const trainer_settings& settings)
        : net{m, handles},
          forward{net},
          backward{net},
          end{net},
          runs{net, settings.activations, plan_layer_runs(settings.activations, handles.size)}
    {
    }
    one_place(const one_place&) = delete;
    [[nodiscard]] const row_activations& row(std::size_t index) const { return net.handles().rows[index]; }

    network<Manager> net;
    forward_pass<Manager> forward;
    backward_pass<Manager> backward;
    head<Manager> end;
    layer_runs<Manager> runs;
  };
  struct one_part {
    one_part(stage_trainer& owner, std::uint32_t part)
        : range{part_of_model::of(part, owner.plan_.part_count(), owner.size_.layers)},
          handles{declare_part(owner.m_, owner.size_, owner.settings_.precision, part, owner.plan_.part_count(),
                               places_of_part(owner.plan_, part), divides_backward(owner.plan_))}
    {
      for (const model& each : handles) places.emplace_back(owner.m_, each, owner.settings_);
    }
    one_part(const one_part&) = delete;
    [[nodiscard]] const model& weights() const { return handles.front(); }
    [[nodiscard]] one_place& place_of(const operation& step) { return places[step.micro_batch % places.size()]; }

    part_of_model range;
    std::vector<model> handles;
    std::deque<one_place> places;
    std::uint32_t added = 0;  // micro-batches, to the gradients of the current batch
  };

  /// The manager of the weights that this rank updates.
  [[nodiscard]] auto& own() const noexcept
  {
    if constexpr (has_replicas)
      return m_.shares();
    else
      return m_;
  }
  /// @param has_runs   false: only an update follows
  void begin(const char* name, [[maybe_unused]] bool has_runs)
  {
    scope_.reset();
    if constexpr (has_replicas)
      scope_.reset(new iteration_type(m_.iteration(name, has_runs ? plan_.micro_batches : 1)));
    else
      scope_.reset(new iteration_type(m_.iteration(name)));
  }
  /// Prepares a run.
  [[nodiscard]] std::pair<one_part&, one_place&> prepare([[maybe_unused]] chunkmem::pass during, const operation& step)
  {
    if constexpr (has_replicas) scope_->pass(during, step.micro_batch % plan_.micro_batches);
    one_part& part = parts_.at(step.part);
    one_place& place = part.place_of(step);
    place.net.read_from(versions_.list_of(step.version));
    return {part, place};
  }

  /// The backward pass through all layers of a part. @param is_first   its loss was not counted yet
  void all_gradients(one_part& part, one_place& place, const operation& step, bool is_first)
  {
    // Where the stage has replicas, each micro-batch completes its gradients: the model adds them up and knows the last
    // one.
    const bool last = ++part.added == plan_.micro_batches || has_replicas;
    if (part.added == plan_.micro_batches) part.added = 0;
    if (part.range.ends) {
      const double loss = run_head(place, step, last);
      if (is_first) add_loss(step, loss);
    }
    place.runs.backward([&](std::size_t layer) { run_layer(place, layer, step); },
                        [&](std::size_t layer) { place.backward.layer(layer, last); });
    if (part.range.begins)
      place.backward.embed([&](std::size_t row) { return window_of(step, row).tokens; }, last, has_replicas);
  }
  [[nodiscard]] double run_head(const one_place& place, const operation& step, bool last) const
  {
    return place.end.backward([&](std::size_t row) { return window_of(step, row).tokens + 1; }, weight_of_position(),
                              last, has_replicas);
  }
  void add_loss(const operation& step, double loss) { losses_[plan_.batch_of(step.micro_batch)] += loss; }
  /// Adds up the loss of a batch over all replicas.
  void add_losses(std::uint32_t batch)
  {
    if (!has_replicas || !has_loss() || m_.rehearsing()) return;
    double sum = 0;
    for (const std::uint64_t word :
         chunkmem::collective::words_of_all(here_.replicas(), std::bit_cast<std::uint64_t>(losses_[batch])))
      sum += std::bit_cast<double>(word);
    losses_[batch] = sum;
  }

  void run_layer(const one_place& place, std::size_t layer, const operation& step) const
  {
    for (std::size_t row = 0; row < size_.batch; ++row) place.forward.layer(layer, row, window_of(step, row));
  }
  [[nodiscard]] window window_of(const operation& step, std::size_t row) const
  {
    const std::size_t batch = plan_.batch_of(step.micro_batch);
    const std::size_t before = std::size_t{plan_.micro_batches} * here_.replica();  // those of other replicas
    const std::size_t in_batch = before + step.micro_batch % plan_.micro_batches;
    return {training_tokens(text_, size_.context, settings_.seed, batch, in_batch * size_.batch + row), 0,
            static_cast<kernels::index>(size_.context)};
  }
  [[nodiscard]] bool scales() const noexcept { return settings_.precision == chunkmem::dtype::float16; }
  /// Times the loss scale. The scale changes only in updates, before any gradient of the next batch: so the whole batch
  /// has one scale, on every stage.
  [[nodiscard]] float weight_of_position() const { return scale_.scale() / static_cast<float>(tokens_of_batch()); }
  [[nodiscard]] std::size_t bytes_of_row() const { return size_.context * size_.width * sizeof(float); }

  // --- Boundaries ---

  void write(chunkmem::tensor<float> to, std::span<const std::byte> from, std::size_t row)
  {
    const auto pin = m_.acquire(to, chunkmem::access::write);
    if (computes(m_)) std::memcpy(pin.data(), from.data() + row * bytes_of_row(), bytes_of_row());
  }
  /// The tensor is not needed any more.
  void read(chunkmem::tensor<float> from, std::span<std::byte> to, std::size_t row)
  {
    {
      const auto pin = m_.acquire(from, chunkmem::access::read);
      if (computes(m_)) std::memcpy(to.data() + row * bytes_of_row(), pin.data(), bytes_of_row());
    }
    m_.drop(from);
  }

  void copy(chunkmem::tensor<float> from, chunkmem::tensor<float> to)
  {
    const auto source = m_.acquire(from, chunkmem::access::read);
    const auto target = m_.acquire(to, chunkmem::access::write);
    if (computes(m_)) std::memcpy(target.data(), source.data(), bytes_of_row());
  }

  // --- The tied table ---

  void add_tied_gradients()
  {
    const std::uint32_t last = plan_.part_count() - 1;
    if (here_.tables() == nullptr && !(parts_.contains(0) && parts_.contains(last))) return;
    with_element(settings_.precision, [&](auto element) {
      using stored = decltype(element);
      if (here_.tables() != nullptr)
        add_tied_over(gradient_of<stored>(parts_.contains(0) ? parts_.at(0).weights().token_table
                                                             : parts_.at(last).weights().head_table));
      else
        add_tied_here(gradient_of<stored>(parts_.at(0).weights().token_table),
                      gradient_of<stored>(parts_.at(last).weights().head_table));
    });
  }
  /// The gradient of a table, or of the shard that this replica updates: both copies have equal shards.
  template <class Element>
  [[nodiscard]] auto gradient_of(const weight& table)
  {
    if constexpr (has_replicas)
      return own().gradient(chunkmem::tensor<Element>{m_.share_of(table).first->share});
    else
      return m_.gradient(table.as<Element>());
  }
  template <class Pin>
  void add_tied_here(const Pin& left, const Pin& right) const
  {
    if (!computes(m_)) return;
    for (std::size_t index = 0; index < left.size(); ++index)
      left.data()[index] = right.data()[index] = sum_of(left.data()[index], right.data()[index]);
  }
  /// The stages of both copies, in their order.
  template <class Pin>
  void add_tied_over(const Pin& mine)
  {
    if (m_.rehearsing()) return;
    auto& both = *here_.tables();
    const chunkmem::bytes size{mine.size() * sizeof(*mine.data())};
    both.all_reduce(m_.backend(), chunkmem::agent::host, reinterpret_cast<std::byte*>(mine.data()),
                    chunkmem::collective::shares::of(size, 2), {.type = settings_.precision}, 0);
    both.check();
  }
  template <class Element>
  [[nodiscard]] static Element sum_of(Element left, Element right)
  {
    return chunkmem::round_to<Element>(chunkmem::to_float(left) + chunkmem::to_float(right));
  }

  [[nodiscard]] std::uint32_t number_of(chunkmem::tensor_handle it) const
  {
    for (const auto& [number, part] : parts_)
      for (const parameter& each : part.weights().parameters)
        if (each.tensor.id == it.id) return each.number;
    return UINT32_MAX;
  }

  Manager& m_;
  extents size_;
  const schedule_type& plan_;
  Place& here_;
  const training_text& text_;
  trainer_settings settings_;
  chunkmem::optimizer::thread_pool& workers_;
  adam_of<Manager> adam_ = make_adam(m_, settings_.adam);
  chunkmem::optimizer::loss_scale scale_ = scales() ? chunkmem::optimizer::loss_scale::dynamic(settings_.scale)
                                                    : chunkmem::optimizer::loss_scale::fixed(1.0f);
  chunkmem::pipeline::weight_versions<Manager> versions_;
  chunkmem::pipeline::stage_step<typename Place::communicator_type> steps_;
  std::map<std::uint32_t, one_part> parts_;
  std::vector<double> losses_;  // by batch: sums over positions
  stage_run_times run_times_{plan_.part_count()};
  std::unique_ptr<iteration_type> scope_;
  static constexpr std::uint32_t no_end = UINT32_MAX;
  std::uint32_t end_ = no_end;
  std::function<bool()> should_end_;
  std::function<void(std::uint32_t)> on_update_;
  std::function<bool(std::uint32_t)> saves_after_;
  std::function<void(std::uint32_t)> save_;
  std::size_t updated_ = 0;
  std::size_t skipped_ = 0;
  double norm_ = 0;
};

}  // namespace gpt
