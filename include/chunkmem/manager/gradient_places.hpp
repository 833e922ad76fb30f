// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <algorithm>
#include <cstdint>

namespace chunkmem::inline v0 {

/// Decides which gradients lie in the bytes of their weights.
///
/// A gradient may take its weight's bytes if an iteration showed that nobody reads the weight between its gradient and
/// its update. A tied weight never qualifies, nor one that is read again for another micro-batch. `learn(record)` looks
/// at an iteration, `settle(tensors)` moves gradients that have no bytes, and `keep_apart` takes a decision back. Slots
/// keep their names, so a record stays true. Cost: O(entries) for learn, O(parameters) for settle. Source: gradients in
/// place of PatrickStar (Fang et al. 2021, arXiv 2108.05818); decided here from the record.
class gradient_places {
 public:
  /// From here on nothing but `begin` asks for memory.
  void enable(std::size_t parameters)
  {
    weights_.resize(parameters);
    enabled_ = true;
  }
  /// Gradients may lie in the bytes of their weights.
  [[nodiscard]] bool is_enabled() const noexcept { return enabled_; }
  /// Something was learnt that `settle` has not used yet.
  [[nodiscard]] bool is_pending() const noexcept { return pending_; }
  /// The gradient of this value lies in the value's own bytes.
  [[nodiscard]] bool is_lent(slot_id value_slot) const noexcept
  {
    return index_of(value_slot) < weights_.size() && weights_[index_of(value_slot)].lent;
  }

  /// Looks at what an iteration did. O(entries).
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
  /// A weight was wanted after its gradient had taken its bytes: from the next iteration on they lie apart. Not where
  /// the loop that made the gradient has begun again since: that was left over by mistake and says nothing of the loop.
  void keep_apart(slot_id value_slot) noexcept
  {
    if (!is_lent(value_slot)) return;
    weight& it = weights_[index_of(value_slot)];
    if (it.consumed_by < begun_.size() && it.consumed_in != begun_[it.consumed_by]) return;
    it.apart = true;
    pending_ = true;
  }

  /// A gradient belongs elsewhere than it lies. O(parameters).
  [[nodiscard]] bool is_wanting() const noexcept
  {
    return std::any_of(weights_.begin(), weights_.end(),
                       [](const weight& it) { return it.lent != (it.seen && !it.apart); });
  }
  /// Moves gradients that have no bytes now to where they belong. O(parameters). @return   true where one moved
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
              "the gradient list was to be exchanged under gradient::in_place");
      expects(tensors[each].state != tensor_state::gradient &&
                  tensors[tensors.gradient_of(each)].state == tensor_state::free,
              "a list was to be exchanged while gradients lie in their weights: take the step first");
    }
  }
  /// The values changed places with another list: gradients go with them. @pre nothing of them is in use
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

  /// What is known of one parameter, and what the iteration that is looked at did with it so far.
  struct weight {
    place own;           // of the gradient, while it is lent the value's
    bool seen = false;   // an iteration made its gradient
    bool apart = false;  // it can never share: 32 bits, no master, or a value that was read too late
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

  sequence<weight> weights_;       // by value slot
  sequence<std::uint64_t> begun_;  // iterations, by record
  std::size_t record_ = 0;
  bool enabled_ = false;
  bool pending_ = false;
};

}  // namespace chunkmem::inline v0
