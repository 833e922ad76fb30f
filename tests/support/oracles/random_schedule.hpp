// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace support {

/// Takes possible steps of random stages in a random order, and records them. The resulting schedule runs to its end,
/// since the recorded order is possible.
class random_schedule {
 public:
  explicit random_schedule(dice& numbers) : dice_{numbers}
  {
    roll_shape();
    while (!is_done()) take_one();
  }

  [[nodiscard]] const chunkmem::pipeline::schedule& plan() const { return plan_; }

 private:
  using operation = chunkmem::pipeline::operation;
  using operation_kind = chunkmem::pipeline::operation_kind;
  using enum operation_kind;
  using place = std::pair<std::uint32_t, std::uint32_t>;  // part and micro-batch

  void roll_shape()
  {
    const std::uint32_t stages = dice_.between(1, 4);
    for (std::uint32_t stage = 0; stage < stages; ++stage) plan_.owners.push_back(stage);
    for (std::uint32_t more = dice_.below(3); more > 0; --more) plan_.owners.push_back(dice_.below(stages));
    for (std::size_t index = plan_.owners.size(); index > 1; --index)
      std::swap(plan_.owners[index - 1], plan_.owners[dice_.below(static_cast<std::uint32_t>(index))]);
    plan_.name = "random";
    plan_.stages.resize(stages);
    plan_.micro_batches = dice_.between(1, 3);
    plan_.batches = dice_.between(1, 3);
    plan_.versions = dice_.between(1, 3);
    plan_.gradient_sets = dice_.between(1, 2);
    plan_.sends_in_flight = dice_.between(1, 3);
    made_.assign(plan_.part_count(), 0);
    sent_.resize(stages);
    for (std::uint32_t part = 0; part < plan_.part_count(); ++part)
      for (std::uint32_t micro_batch = 0; micro_batch < plan_.all_micro_batches(); ++micro_batch) {
        if (dice_.one_in(3)) divided_.insert({part, micro_batch});
        if (dice_.one_in(5)) again_.insert({part, micro_batch});
        if (dice_.one_in(5) && !again_.contains({part, micro_batch})) moved_.insert({part, micro_batch});
      }
  }

  [[nodiscard]] bool is_done() const
  {
    const auto has_all = [&](std::uint32_t it) { return it == plan_.batches; };
    return std::ranges::all_of(made_, has_all) && received_ == sends_;
  }

  /// From a random step on, takes the first possible step.
  void take_one()
  {
    constexpr operation_kind kinds[] = {forward,          backward,        backward_input, backward_weight,
                                        recompute,        send_activation, send_gradient,  receive_activation,
                                        receive_gradient, offload,         reload,         update};
    const auto cells = static_cast<std::uint32_t>(plan_.part_count() * plan_.all_micro_batches());
    const std::uint32_t first = dice_.below(12 * cells);
    for (std::uint32_t offset = 0; offset < 12 * cells; ++offset) {
      const std::uint32_t index = (first + offset) % (12 * cells);
      const place where{index / 12 % plan_.part_count(), index / 12 / plan_.part_count()};
      const operation_kind kind = kinds[index % 12];
      if (!can(kind, where)) continue;
      add(kind, where);
      return;
    }
  }

  [[nodiscard]] bool has(operation_kind kind, place where) const { return done_.contains({kind, where}); }
  [[nodiscard]] bool came_back(place where) const { return has(backward, where) || has(backward_input, where); }
  [[nodiscard]] bool crosses(std::uint32_t part) const
  {
    return part + 1 < plan_.part_count() && plan_.crosses_after(part);
  }

  [[nodiscard]] bool can(operation_kind kind, place where) const
  {
    const auto [part, micro_batch] = where;
    const std::uint32_t batch = micro_batch / plan_.micro_batches;
    if (kind == update) return can_update(part, micro_batch);
    if (has(kind, where)) return false;
    switch (kind) {
      case forward: return has_input(where) && made_[part] >= plan_.version_of(micro_batch);
      case recompute: return again_.contains(where) && has(forward, where) && !came_back(where);
      case offload: return moved_.contains(where) && has(forward, where) && !came_back(where);
      case reload: return has(offload, where) && !came_back(where);
      case backward: return !divided_.contains(where) && may_come_back(where) && has_set(part, batch);
      case backward_input: return divided_.contains(where) && may_come_back(where);
      case backward_weight: return has(backward_input, where) && has_set(part, batch);
      case send_activation: return crosses(part) && has(forward, where) && may_send(part);
      case send_gradient: return part > 0 && crosses(part - 1) && came_back(where) && may_send(part);
      case receive_activation:
        return part > 0 && crosses(part - 1) && is_next(part, part - 1, {receive_activation, where});
      default: return crosses(part) && is_next(part, part + 1, {receive_gradient, where});
    }
  }
  [[nodiscard]] bool has_input(place where) const
  {
    const auto [part, micro_batch] = where;
    if (part == 0) return true;
    return crosses(part - 1) ? has(receive_activation, where) : has(forward, {part - 1, micro_batch});
  }
  [[nodiscard]] bool may_come_back(place where) const
  {
    const auto [part, micro_batch] = where;
    if (!has(forward, where) || (moved_.contains(where) && has(offload, where) && !has(reload, where))) return false;
    if (part + 1 == plan_.part_count()) return true;
    return crosses(part) ? has(receive_gradient, where) : came_back({part + 1, micro_batch});
  }
  /// Whether the gradients of the batch have a set of their own.
  [[nodiscard]] bool has_set(std::uint32_t part, std::uint32_t batch) const
  {
    return batch < made_[part] + plan_.gradient_sets;
  }
  [[nodiscard]] bool can_update(std::uint32_t part, std::uint32_t micro_batch) const
  {
    if (made_[part] == plan_.batches || micro_batch != (made_[part] + 1) * plan_.micro_batches - 1) return false;
    for (std::uint32_t it = made_[part] * plan_.micro_batches; it <= micro_batch; ++it)
      if (!has(backward, {part, it}) && !has(backward_weight, {part, it})) return false;
    return true;
  }
  using message = std::pair<operation_kind, place>;  // as the receiver knows it
  [[nodiscard]] bool may_send(std::uint32_t part) const
  {
    const auto& sent = sent_[plan_.owners[part]];
    return sent.size() < plan_.sends_in_flight || done_.contains(sent[sent.size() - plan_.sends_in_flight]);
  }
  [[nodiscard]] bool is_next(std::uint32_t part, std::uint32_t from, const message& wanted) const
  {
    for (const message& it : sent_[plan_.owners[from]])
      if (!done_.contains(it) && plan_.owners[it.second.first] == plan_.owners[part]) return it == wanted;
    return false;
  }

  void add(operation_kind kind, place where)
  {
    const auto [part, micro_batch] = where;
    std::uint32_t version = plan_.version_of(micro_batch);
    if (kind == update) {
      version = ++made_[part];
    } else {
      done_.insert({kind, where});
    }
    plan_.stages[plan_.owners[part]].push_back({kind, part, micro_batch, version});
    if (kind == send_activation) sent_[plan_.owners[part]].push_back({receive_activation, {part + 1, micro_batch}});
    if (kind == send_gradient) sent_[plan_.owners[part]].push_back({receive_gradient, {part - 1, micro_batch}});
    sends_ += chunkmem::pipeline::sends(kind) ? 1 : 0;
    received_ += chunkmem::pipeline::receives(kind) ? 1 : 0;
  }

  dice& dice_;
  chunkmem::pipeline::schedule plan_;
  std::set<place> divided_;  // divided backward runs
  std::set<place> again_;    // that may be computed again
  std::set<place> moved_;    // that may go to the host
  std::set<message> done_;
  std::vector<std::uint32_t> made_;         // by part: the newest version
  std::vector<std::vector<message>> sent_;  // by stage, in order
  std::size_t sends_ = 0;
  std::size_t received_ = 0;
};

}  // namespace support
