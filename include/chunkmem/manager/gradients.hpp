// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

// The parts of a manager for its gradients: micro_batch_ledger, update_order and gradient_places, and model_gradients,
// which has them.

namespace chunkmem::inline v0 {

/// The micro-batches of an iteration that its trainer has named by `pass`. A forgotten micro-batch would silently give
/// gradients of a part of the batch. An iteration of one micro-batch need not name it.
///
///     micro_batch_ledger named;
///     named.reserve(2);
///     named.begin(2);
///     named.name(0, pass::forward);
///     named.expect_complete();  // throws: the second was not named
///
/// Cost: two bits for each micro-batch of the longest iteration so far; allocates where one is longer than all before.
class micro_batch_ledger {
 public:
  /// Makes room for an iteration. Guarantee: strong; an iteration that runs goes on.
  void reserve(std::uint32_t micro_batches) { named_.reserve(2 * words_of(micro_batches)); }
  /// @pre reserve
  void begin(std::uint32_t micro_batches) noexcept
  {
    named_.assign(2 * words_of(micro_batches), 0);
    expected_ = micro_batches;
    count_ = differentiated_ = 0;
    current_ = last_ = none;
    runs_ = true;
    ++iterations_;
  }
  /// The iteration is over.
  void end() noexcept { runs_ = false; }
  /// @pre the iteration was begun with more micro-batches than this index
  void name(std::uint32_t micro_batch, pass during) noexcept
  {
    if (marks(micro_batch)) ++count_;
    if (during == pass::backward && marks(micro_batch + words_of(expected_) * bits)) {
      ++differentiated_;
      last_ = micro_batch;
    }
    current_ = micro_batch;
  }
  /// The micro-batch that was named last; `none` where no pass was named yet, as in an iteration of one micro-batch.
  static constexpr std::uint32_t none = UINT32_MAX;
  [[nodiscard]] std::uint32_t current() const noexcept { return current_; }
  [[nodiscard]] std::uint32_t expected() const noexcept { return expected_; }  ///< micro-batches
  [[nodiscard]] bool is_complete() const noexcept { return expected_ == 1 || count_ == expected_; }
  /// An iteration runs that has not named all of its micro-batches: gradients are of a part of the batch so far.
  [[nodiscard]] bool expects_more() const noexcept { return runs_ && !is_complete(); }
  /// The gradients of this micro-batch are the last ones of the iteration: every other micro-batch has had a backward
  /// pass. A forward pass does not count: schedules of pipelines run forward passes of the next iteration early.
  [[nodiscard]] bool is_last() const noexcept
  {
    return !runs_ || expected_ == 1 || (differentiated_ == expected_ && current_ == last_);
  }
  /// A number for this micro-batch of this iteration, never 0: numbers of one iteration differ in the lower 16 bits.
  [[nodiscard]] std::uint64_t moment() const noexcept
  {
    return iterations_ << 16U | (current_ == none ? 1U : current_ + std::uint64_t{1});
  }

  /// A gradient that was declared done at this moment may be requested: in another micro-batch of the same iteration,
  /// whose gradients add up. @param done   0: it was not declared done
  [[nodiscard]] bool is_open(std::uint64_t done) const noexcept
  {
    return done == 0 || (done != moment() && is_now(done));
  }
  /// Before a gradient is requested. @param label   `label()` names the gradient   @throws usage_error   it is not open
  template <class Label>
  void expect_open(std::uint64_t done, Label label) const
  {
    if (is_open(done)) [[likely]]
      return;
    error_text text;
    text << "chunkmem: " << label() << ": a gradient was requested after gradient_done";
    if (is_now(done))
      text << ", in micro-batch " << (moment() & 0xffffU) << " of " << expected_
           << " (call gradient_done after its last write; for several passes that add up, begin the iteration with as "
              "many micro-batches and name each by pass())";
    else
      text << ", and no step was taken since (take the step, or drop the gradient; for iterations that add up, begin "
              "one with as many micro-batches and name each by pass())";
    throw usage_error{text};
  }

  /// A micro-batch was missing at an end that cannot throw: `expect_told` throws for it.
  void keep() noexcept { kept_ = {count_, expected_}; }
  /// @throws usage_error   the iteration was not complete
  void expect_complete() const
  {
    if (!is_complete()) refuse({count_, expected_});
  }
  /// Before an optimizer step. A step before the first micro-batch belongs to the iteration before, for example with
  /// weight versions. @param opened   the moment of the last gradient that was opened
  /// @throws usage_error   the running iteration has gradients of some micro-batches, and has not named all
  void expect_no_more(std::uint64_t opened) const
  {
    if (!expects_more() || count_ == 0 || !is_now(opened)) [[likely]]
      return;
    throw usage_error{error_text{} << "chunkmem: an optimizer step after " << count_ << " of the " << expected_
                                   << " micro-batches of an iteration: its gradients are of a part of the batch (take "
                                      "the step after the last one, name each by pass(), or begin the iteration with "
                                      "as many as there are)"};
  }
  /// Throws once after `keep`. @throws usage_error   the last iteration was not complete
  void expect_told()
  {
    if (kept_.expected == 0) [[likely]]
      return;
    const short_iteration last = kept_;
    kept_ = {};
    refuse(last);
  }

 private:
  static constexpr std::uint32_t bits = 64;
  [[nodiscard]] static constexpr std::uint32_t words_of(std::uint32_t micro_batches) noexcept
  {
    return (micro_batches + bits - 1) / bits;
  }
  /// @return   the bit was not set before
  bool marks(std::uint32_t at) noexcept
  {
    std::uint64_t& word = named_[at / bits];
    const std::uint64_t before = std::exchange(word, word | std::uint64_t{1} << at % bits);
    return word != before;
  }

  /// A moment of the iteration that runs, or ran last.
  [[nodiscard]] bool is_now(std::uint64_t moment) const noexcept { return moment >> 16U == iterations_; }

  struct short_iteration {
    std::uint32_t named = 0;
    std::uint32_t expected = 0;
  };

  [[noreturn, gnu::noinline, gnu::cold]] static void refuse(const short_iteration& it)
  {
    throw usage_error{error_text{} << "chunkmem: an iteration of " << it.expected << " micro-batches ended after "
                                   << it.named
                                   << " of them: its gradients are of a part of the batch (name each by pass(), or "
                                      "begin it with as many as there are)"};
  }

  sequence<std::uint64_t> named_;  // a bit for each that was named, then a bit for each that a backward pass named
  std::uint32_t expected_ = 1;
  std::uint32_t count_ = 0;
  std::uint32_t differentiated_ = 0;
  std::uint32_t current_ = none;
  std::uint32_t last_ = none;  // that a backward pass named for the first time
  bool runs_ = false;
  std::uint64_t iterations_ = 0;
  short_iteration kept_{};
};

/// The order in which an optimizer step visits the parameters: the order of declaration until `arrange`. The new order
/// stays until `reset`, so that a step that is tried again continues at its place.
///
///     update_order order;
///     order.reset(completed.size());
///     order.arrange([&](std::uint32_t parameter) { return completed[parameter]; });
///     for (const std::uint32_t parameter : order.all()) std::cout << parameter << '\n';
class update_order {
 public:
  /// No later call allocates.
  void reset(std::size_t parameters)
  {
    keys_.resize(parameters);
    order_.resize(parameters);
    reset();
  }
  void reset() noexcept
  {
    for (std::size_t index = 0; index < order_.size(); ++index) order_[index] = static_cast<std::uint32_t>(index);
  }

  /// Parameters by their number, the order of declaration.
  [[nodiscard]] std::span<const std::uint32_t> all() const noexcept { return order_; }

  /// Sorts by `key(parameter)`, lowest first; equal keys stay in the order of declaration. O(parameters log
  /// parameters).
  template <class Key>
  void arrange(Key key)
  {
    for (std::uint32_t index = 0; index < keys_.size(); ++index) keys_[index] = key(index);
    sort_records(std::span{order_},
                 [&](std::uint32_t a, std::uint32_t b) { return keys_[a] != keys_[b] ? keys_[a] < keys_[b] : a < b; });
  }

 private:
  sequence<std::uint32_t> order_;
  sequence<std::uint64_t> keys_;
};

/// Decides which gradients lie in the bytes of their weights.
///
/// A gradient may take its weight's bytes if an iteration showed no read of the weight between its gradient and its
/// update. A tied weight never qualifies, nor does a weight that is read again for another micro-batch. Over ranks the
/// weight is a share, and a read of a tensor that is gathered from the share counts. `learn(record)` looks at an
/// iteration, `settle(tensors)` moves gradients that have no bytes, and `keep_apart` undoes a decision. Slots keep
/// their numbers, so a record stays valid. Cost: O(entries) for learn, O(parameters) for settle. Source: gradients in
/// place of PatrickStar (Fang et al. 2021, arXiv 2108.05818); decided here from the record.
class gradient_places {
 public:
  /// No later call but `begin` allocates.
  void enable(std::size_t parameters)
  {
    weights_.resize(parameters);
    enabled_ = true;
  }
  /// A use of this tensor may gather it again, which reads the value. @param slots   of the manager
  void derive(slot_id whole, slot_id value_slot, std::size_t slots)
  {
    source_.resize(slots, slot_id::none);
    source_[index_of(whole)] = value_slot;
  }
  /// Gradients may lie in the bytes of their weights.
  [[nodiscard]] bool is_enabled() const noexcept { return enabled_; }
  /// `learn` or `keep_apart` changed a decision that `settle` has not applied yet.
  [[nodiscard]] bool is_pending() const noexcept { return pending_; }
  /// The gradient of this value lies in the value's own bytes.
  [[nodiscard]] bool is_lent(slot_id value_slot) const noexcept
  {
    return index_of(value_slot) < weights_.size() && weights_[index_of(value_slot)].lent;
  }

  /// Learns from the record of an iteration. O(entries).
  void learn(const access_record& record, const registry& tensors) noexcept
  {
    if (!enabled_) return;
    for (weight& it : weights_) it.begin();
    for (std::uint32_t now = 0; now < record.size(); ++now) {
      const access_entry& entry = record.entries()[now];
      const slot_id slot{entry.slot};
      if (tensors.is_value_of_parameter(slot))
        weights_[index_of(slot)].see_value(entry, record.details()[now].until);
      else if (tensors.is_gradient(slot))
        weights_[index_of(tensors.value_of(slot))].see_gradient(entry, now);
      else if (const slot_id source = source_of(slot); source != slot_id::none)
        weights_[index_of(source)].see_gathered(entry);
    }
    for (const slot_id each : values())
      if (tensors.master_of(each) == slot_id::none) weights_[index_of(each)].apart = true;
    pending_ = true;
  }

  /// An iteration of this record begins.
  void begin(std::size_t record)
  {
    if (record >= begun_.size()) begun_.resize(record + 1);
    ++begun_[record];
    record_ = record;
  }
  /// The gradient took the bytes of the value.
  void note_consumed(slot_id value_slot) noexcept
  {
    weight& it = weights_[index_of(value_slot)];
    it.consumed_by = record_;
    it.consumed_in = record_ < begun_.size() ? begun_[record_] : 0;
  }
  /// A weight was used after its gradient had taken its bytes: from the next iteration on they lie apart. Not where the
  /// loop that made the gradient has begun again since: then the gradient was left over by mistake.
  void keep_apart(slot_id value_slot) noexcept
  {
    if (!is_lent(value_slot)) return;
    weight& it = weights_[index_of(value_slot)];
    if (it.consumed_by < begun_.size() && it.consumed_in != begun_[it.consumed_by]) return;
    it.apart = true;
    pending_ = true;
  }

  /// Some gradient does not lie where `learn` wants it. O(parameters).
  [[nodiscard]] bool is_wanting() const noexcept
  {
    return std::any_of(weights_.begin(), weights_.end(),
                       [](const weight& it) { return it.lent != (it.seen && !it.apart); });
  }
  /// Moves gradients without bytes to their wanted places. O(parameters). @return   true where one moved
  bool settle(registry& tensors) noexcept
  {
    pending_ = false;
    bool moved = false;
    for (const slot_id each : values()) {
      weight& it = weights_[index_of(each)];
      const bool wanted = it.seen && !it.apart;
      if (it.lent == wanted) continue;
      const slot& value = tensors[each];
      const slot& gradient = tensors[tensors.gradient_of(each)];
      if (gradient.state != tensor_state::free || value.state == tensor_state::gradient) {
        pending_ = true;
        continue;
      }
      if (wanted) it.own = {gradient.chunk, gradient.offset};
      const place target = wanted ? place{value.chunk, value.offset} : it.own;
      tensors.move_gradient(each, target.chunk, target.offset);
      it.lent = wanted;
      moved = true;
    }
    return moved;
  }

  /// @throws usage_error   the lists cannot change places while gradients lie in their weights
  void refuse_exchange(const registry& tensors, list_id left, list_id right) const
  {
    for (const slot_id each : values()) {
      if (!is_lent(each)) continue;
      expects(left != gradient_list && right != gradient_list,
              "the gradient list cannot be exchanged under gradient::in_place");
      expects(tensors[each].state != tensor_state::gradient &&
                  tensors[tensors.gradient_of(each)].state == tensor_state::free,
              "a list cannot be exchanged while gradients lie in their weights: take the step first");
    }
  }
  /// The values changed places with another list: their gradients follow. @pre none of them is in use
  void follow_values(registry& tensors) noexcept
  {
    for (const slot_id each : values())
      if (is_lent(each)) tensors.move_gradient(each, tensors[each].chunk, tensors[each].offset);
  }

 private:
  struct place {
    chunk_id chunk = chunk_id::none;
    std::uint64_t offset = 0;
  };

  /// The knowledge of one parameter, and its uses so far in the iteration that `learn` reads.
  struct weight {
    place own;           // of the gradient, while it is lent the value's
    bool seen = false;   // an iteration made its gradient
    bool apart = false;  // it never shares: 32 bits, no master, or a value that was read after its gradient
    bool lent = false;
    bool consumed = false;          // its gradient came and its update did not yet
    std::size_t consumed_by = 0;    // record that was followed when it last was
    std::uint64_t consumed_in = 0;  // which of its iterations
    std::uint32_t held_until = 0;   // access at which its last pin was released

    void begin() noexcept
    {
      consumed = false;
      held_until = 0;
    }
    void see_value(const access_entry& entry, std::uint32_t until) noexcept
    {
      if (consumed && (!is_access(entry.kind) || access_of(entry.kind) != access::write)) apart = true;
      consumed = false;
      if (is_access(entry.kind)) held_until = std::max(held_until, until);
    }
    /// The gathered tensor has frames of its own: a pin that began before the gradient may live on. A write of it means
    /// that the value changed.
    void see_gathered(const access_entry& entry) noexcept
    {
      if (consumed && is_access(entry.kind) && access_of(entry.kind) == access::read) apart = true;
    }
    void see_gradient(const access_entry& entry, std::uint32_t now) noexcept
    {
      if (entry.kind == entry_kind::drop) consumed = false;  // dropped without an update: the weight was made again
      if (!is_access(entry.kind) || !writes(access_of(entry.kind))) return;
      if (!consumed && held_until > now) apart = true;
      seen = consumed = true;
    }
  };

  [[nodiscard]] id_range<slot_id> values() const noexcept
  {
    return ids<slot_id>(static_cast<std::uint32_t>(weights_.size()));
  }

  /// The value that this tensor is gathered from, or none.
  [[nodiscard]] slot_id source_of(slot_id slot) const noexcept
  {
    return index_of(slot) < source_.size() ? source_[index_of(slot)] : slot_id::none;
  }

  sequence<weight> weights_;       // by value slot
  sequence<slot_id> source_;       // by slot; empty where nothing is gathered
  sequence<std::uint64_t> begun_;  // iterations, by record
  std::size_t record_ = 0;
  bool enabled_ = false;
  bool pending_ = false;
};

/// The gradients of a model: when each may be written, where it lies, when it is complete, and its norms.
///
///     model_gradients all;
///     all.reset(1);
///     if (all.is_open(weight)) all.note_opened(weight);  // in the micro-batch that was named last
///     if (all.places().is_lent(weight)) std::cout << "it lies in its weight\n";
///     all.finish(weight, measure);
///
/// `note_opened` when a pin on a gradient was given out, `finish` when it is complete, `forget` when it was consumed.
/// From `begin_update` to `end_update` and from `begin_load` to `end_load`, weights are of two versions;
/// `expect_no_update` and `expect_no_load` refuse calls then. Cost: O(1) for each call; O(parameters) for a rehearsal.
class model_gradients {
 public:
  /// The micro-batches of the running or last iteration.
  [[nodiscard]] micro_batch_ledger& micro_batches() noexcept { return micro_batches_; }
  [[nodiscard]] const micro_batch_ledger& micro_batches() const noexcept { return micro_batches_; }
  [[nodiscard]] gradient_places& places() noexcept { return places_; }
  [[nodiscard]] const gradient_places& places() const noexcept { return places_; }

  void reset(std::size_t parameters)
  {
    if (notes_.size() != parameters) order_.reset(parameters);
    notes_.resize(parameters);
  }

  /// False after the gradient was declared done, in this micro-batch or in another iteration.
  [[nodiscard]] bool is_open(slot_id value_slot) const noexcept { return micro_batches_.is_open(done(value_slot)); }
  /// The moment at which it was declared done; 0: it was not.
  [[nodiscard]] std::uint64_t done(slot_id value_slot) const noexcept { return notes_[index_of(value_slot)].done; }
  /// A pin on a gradient was given out for writing: its measure and its completion are void.
  void note_opened(slot_id value_slot) noexcept
  {
    ++opened_;
    opened_at_ = micro_batches_.moment();
    of_all_.reset();
    notes_[index_of(value_slot)] = {{}, ++touched_, 0, false};
  }
  /// The gradient was dropped, and its parameter is left out of the next step.
  void note_dropped() noexcept
  {
    ++opened_;
    of_all_.reset();
  }
  /// The count of gradients that were opened or dropped: while it stays the same, a step has the same gradients.
  [[nodiscard]] std::uint64_t opened() const noexcept { return opened_; }
  /// Before an optimizer step. @throws usage_error   the running iteration has gradients of only some of its
  /// micro-batches; or the last iteration had named too few, which is reported once
  void expect_whole_iteration()
  {
    micro_batches_.expect_told();
    micro_batches_.expect_no_more(opened_at_);
  }
  /// The gradient is complete, without a measure.
  void finish(slot_id value_slot) noexcept
  {
    notes_[index_of(value_slot)].touched = ++touched_;
    notes_[index_of(value_slot)].done = micro_batches_.moment();
  }
  /// @param measure   of all its elements as they are stored
  void finish(slot_id value_slot, const gradient_measure& measure) noexcept
  {
    notes_[index_of(value_slot)] = {measure, ++touched_, micro_batches_.moment(), true};
  }
  /// Keeps the measure of a gradient that was not declared done.
  void keep_measure(slot_id value_slot, const gradient_measure& measure) noexcept
  {
    notes_[index_of(value_slot)].measure = measure;
    notes_[index_of(value_slot)].measured = true;
  }
  /// The measure of all gradients of this step together, where other ranks or stages take part: the step decides by it
  /// and measures none. Valid until a gradient is requested or dropped, or the step is over.
  void keep_measure_of_all(const gradient_measure& measure) noexcept { of_all_ = measure; }
  /// @return   null where it was not given
  [[nodiscard]] const gradient_measure* measure_of_all() const noexcept { return of_all_ ? &*of_all_ : nullptr; }
  void forget_measure_of_all() noexcept { of_all_.reset(); }
  /// The gradient was consumed or dropped. The measure of all stays: updates that waited use gradients of the step
  /// before.
  void forget(slot_id value_slot) noexcept { notes_[index_of(value_slot)] = {}; }
  /// The order in which the gradients of this step were completed: opened for the last time, or declared done.
  [[nodiscard]] std::uint64_t completed(slot_id value_slot) const noexcept
  {
    return notes_[index_of(value_slot)].touched;
  }
  [[nodiscard]] update_order& order() noexcept { return order_; }

  /// The gradients have other bytes now: none is measured or done, and the step decides again.
  void forget_gradients() noexcept
  {
    for (note& it : notes_) it = {};
    of_all_.reset();
    ++opened_;
  }

  /// @return   null where it was not measured
  [[nodiscard]] const gradient_measure* measure_of(slot_id value_slot) const noexcept
  {
    return notes_[index_of(value_slot)].measured ? &notes_[index_of(value_slot)].measure : nullptr;
  }

  /// Some parameters have their update, others may not: no gradient may be added or dropped now.
  void begin_update() noexcept { weights_ = weights::updated_in_part; }
  [[nodiscard]] bool is_updated_in_part() const noexcept { return weights_ == weights::updated_in_part; }
  void end_update() noexcept
  {
    weights_ = weights::whole;
    of_all_.reset();
    order_.reset();
  }
  /// Weights are overwritten from here to `end_load`, and the progress of a step is void.
  void begin_load() noexcept
  {
    weights_ = weights::loaded_in_part;
    ++loads_;
    forget_step();
  }
  [[nodiscard]] std::uint64_t loads() const noexcept { return loads_; }  ///< loads that were begun
  void end_load() noexcept { weights_ = weights::whole; }
  /// A step that had updated nothing yet is void.
  void forget_step() noexcept
  {
    ++forgotten_;
    of_all_.reset();
    order_.reset();
  }
  /// The number of voided steps: a step that was cut short goes on only while this number stays the same.
  [[nodiscard]] std::uint64_t forgotten() const noexcept { return forgotten_; }

  /// @throws usage_error   some parameters have an update that others do not have
  void expect_no_update(std::string_view what) const
  {
    if (weights_ == weights::updated_in_part) [[unlikely]]
      throw usage_error{error_text{} << "chunkmem: " << what
                                     << " while an optimizer step is half done (call step again; over one rank a load "
                                        "outside of the iteration ends it too)"};
  }
  /// @throws usage_error   a load was cut short
  void expect_no_load(std::string_view what) const
  {
    if (weights_ == weights::loaded_in_part) [[unlikely]]
      throw usage_error{
          error_text{} << "chunkmem: " << what
                       << " while a checkpoint is loaded in part (load again, or begin with a new manager)"};
  }

  /// A rehearsal starts with nothing finished and leaves everything as it was.
  void begin_rehearsal()
  {
    kept_ = notes_;
    kept_order_ = order_;
    kept_of_all_ = of_all_;
    of_all_.reset();
    notes_.assign(notes_.size(), {});
    order_.reset();
    kept_weights_ = std::exchange(weights_, weights::whole);
    kept_opened_ = opened_;
    kept_opened_at_ = opened_at_;
  }
  void end_rehearsal() noexcept
  {
    notes_.swap(kept_);
    of_all_ = kept_of_all_;
    std::swap(order_, kept_order_);
    weights_ = kept_weights_;
    opened_at_ = kept_opened_at_;
    opened_ = kept_opened_;  // else a step that is half done would decide again
  }

 private:
  enum class weights : std::uint8_t { whole, updated_in_part, loaded_in_part };

  struct note {
    gradient_measure measure;
    std::uint64_t touched = 0;
    std::uint64_t done = 0;  // the moment of it; 0: it is open
    bool measured = false;
  };

  micro_batch_ledger micro_batches_;
  gradient_places places_;
  sequence<note> notes_;  // by parameter, in the order of declaration
  sequence<note> kept_;
  std::optional<gradient_measure> of_all_, kept_of_all_;
  update_order order_, kept_order_;
  std::uint64_t opened_ = 0, kept_opened_ = 0;
  std::uint64_t opened_at_ = 0, kept_opened_at_ = 0;
  std::uint64_t touched_ = 0;
  std::uint64_t loads_ = 0;
  std::uint64_t forgotten_ = 0;
  weights weights_ = weights::whole;
  weights kept_weights_ = weights::whole;
};

}  // namespace chunkmem::inline v0
