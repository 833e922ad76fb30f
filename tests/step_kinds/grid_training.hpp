// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kind.hpp"

#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/thread_group.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_updates.hpp>
#include <chunkmem/optimizer/early_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/split_updates.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>
#include <chunkmem/pipeline/load_from_stages.hpp>
#include <chunkmem/pipeline/stage_files.hpp>
#include <chunkmem/pipeline/stage_step.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/any_manager.hpp>
#include <support/counting_ranks.hpp>
#include <support/failing.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

/// Trainings of `kind`: the same trainer in a manager, over ranks, and on stages with and without replicas.
namespace step_kinds {

using support::counting_ranks;
using support::ranks::stage_part;

/// The thread throws it at a call of its communicators, as if it had died there.
struct death : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Takes steps of every time and place, alone or as those of a stage.
/// @tparam Launcher   starts kernels
template <class Model, class Launcher>
class steps_of_kind {
  using adam = cm::optimizer::adam;
  using options_type = cm::optimizer::step_options;
  using outcome_type = cm::optimizer::step_outcome;
  using device_type = cm::optimizer::device_updates<Model, Launcher>;
  using split_type = cm::optimizer::split_updates<Model, Launcher, cm::optimizer::thread_pool>;
  using stage_step = cm::pipeline::stage_step<counting_ranks>;

 public:
  /// @param stages   all of them; null: this is no stage   @param first   number of the first weight of this stage
  steps_of_kind(Model& model, adam& kernel, const job& wanted, const kind& how, counting_ranks* stages,
                std::size_t first)
      : m_{model}, kernel_{kernel}, undo_{std::uint64_t{wanted.undo_kilobytes} * 1024}, first_{first}
  {
    if (stages != nullptr) stage_.emplace(*stages);
    switch (how.workers()) {
      case place::calling_thread: choose(how.time(), cm::on_this_thread); break;
      case place::pool: choose(how.time(), pool_.emplace(2)); break;
      case place::device: choose(how.time(), device_.emplace(model)); break;
      case place::split:
        choose(how.time(), split_.emplace(model, pool_.emplace(2)));
        place_updates(how.device_share());  // the updates of every step are metered
        break;
    }
  }
  steps_of_kind(const steps_of_kind&) = delete;

  outcome_type take(const options_type& options) { return take_(options); }
  void finish() { finish_(); }
  [[nodiscard]] std::size_t waiting() const { return waiting_(); }
  [[nodiscard]] std::size_t early() const { return early_(); }

 private:
  template <class Workers>
  void choose(updates when, Workers& workers)
  {
    if (when == updates::at_once) {
      take_ = [this, &workers](const options_type& options) {
        if (stage_) return stage_->take(m_, kernel_, options, workers, numbers());
        if constexpr (requires { m_.ranks(); })
          return m_.step(kernel_, options, workers);
        else
          return cm::optimizer::step(m_, kernel_, options, workers);
      };
    } else if (when == updates::late) {
      const auto late = std::make_shared<cm::optimizer::late_updates<Model, adam, Workers>>(m_, kernel_, workers);
      take_ = [this, late](const options_type& options) {
        return stage_ ? stage_->take(m_, *late, options, numbers()) : late->step(options);
      };
      waiting_ = [late] { return late->waiting(); };
      if constexpr (requires { m_.finish_updates(); })
        finish_ = [this] { m_.finish_updates(); };
      else
        finish_ = [late] { late->finish(); };
    } else if constexpr (!std::is_same_v<Workers, device_type> && !std::is_same_v<Workers, split_type>) {
      const auto early =
          std::make_shared<cm::optimizer::early_updates<Model, adam, Workers>>(m_, kernel_, undo_, workers);
      take_ = [early](const options_type& options) { return early->step(options); };
      early_ = [early] { return early->early(); };
    }
  }
  void place_updates(double share)
  {
    const auto place = [&](auto& m) {
      using placement_type = std::remove_cvref_t<decltype(m.placement())>;
      m.use_placement(placement_type{cm::placement::update_share{.device_share = share, .in_turn = true}});
    };
    if constexpr (requires { m_.shares(); })
      place(m_.shares());
    else
      place(m_);
  }
  /// Numbers of weights in the whole model.
  [[nodiscard]] auto numbers() const
  {
    return [first = first_](cm::tensor_handle weight) {
      return static_cast<std::uint32_t>(first + cm::index_of(weight.id));
    };
  }

  Model& m_;
  adam& kernel_;
  cm::bytes undo_;
  std::size_t first_;
  std::optional<stage_step> stage_;
  std::optional<cm::optimizer::thread_pool> pool_;
  std::optional<device_type> device_;
  std::optional<split_type> split_;
  std::function<outcome_type(const options_type&)> take_;
  std::function<std::size_t()> waiting_ = [] { return std::size_t{0}; };
  std::function<std::size_t()> early_ = [] { return std::size_t{0}; };
  std::function<void()> finish_ = [] {};
};

[[nodiscard]] inline std::vector<std::string_view> lists_of(const kind& how)
{
  std::vector<std::string_view> names{"adam/momentum", "adam/variance"};
  if (how.numbers() == precision::bf16_with_master || how.numbers() == precision::fp16_with_loss_scale)
    names.push_back(cm::master_list.name);
  return names;
}

/// One rank with a step at once, in the grouping of `how`.
template <class Element>
struct reference {
  support::ranks::history<Element> values;
  std::vector<double> norms;
  std::vector<std::vector<std::vector<float>>> lists;
};

[[nodiscard]] inline cm::optimizer::adam kernel_of(const kind& how)
{
  return cm::optimizer::adam{{.weight_decay = 0.01F}, {.masters = how.has_masters()}};
}

/// @param before   the kind of steps until step `begin`
template <class Element>
[[nodiscard]] const reference<Element>& reference_of(const kind& how, const kind& before, std::uint32_t begin)
{
  const auto key_of = [](const kind& it) {
    const job made = it.training();
    return std::tuple{made.ranks,   made.micro_batches > 1 && made.adds_each(), made.micro_batches,
                      it.numbers(), std::bit_cast<std::uint32_t>(made.clip),    made.spoilt_step};
  };
  const auto key = std::tuple{key_of(how), key_of(begin > 0 ? before : how), begin};
  static std::map<std::decay_t<decltype(key)>, reference<Element>> known;
  if (const auto found = known.find(key); found != known.end()) return found->second;
  job first = begin > 0 ? before.training() : how.training();
  if (begin > 0) first.steps = begin;
  support::ranks::one_rank<Element, cm::optimizer::adam> one{first, kernel_of(how)};
  if (begin > 0) one.go_on(how.training());
  reference<Element>& made = known[key];
  made.values = one.values;
  made.norms = one.norms;
  for (const std::string_view name : lists_of(how)) made.lists.push_back(one.list(name));
  return made;
}

/// One thread of a training: a replica of a stage, or all that there is.
/// @tparam World   backends and communicators: `backend_type`, `ranks_type`, `launcher_type`, `meeting_place`
template <class Element, class World>
class thread_of_training {
  using backend_type = typename World::backend_type;
  using counted_type = support::counting<typename World::ranks_type>;

 public:
  thread_of_training(const part_of_training& what, const reference<Element>& right, std::uint32_t stage,
                     std::uint32_t replica, const folders_type& from, folders_type& to, outcome& found)
      : what_{what},
        how_{what.how},
        right_{right},
        stage_{stage},
        replica_{replica},
        from_{from},
        to_{to},
        found_{found}
  {
    job_ = how_.training();
    const std::size_t all = support::ranks::sizes().size();
    part_ = {all * stage / how_.stages(), all * (stage + 1) / how_.stages()};
    is_last_ = stage + 1 == how_.stages() && replica + 1 == how_.replicas();
    job_.tries_again = what.faults.allocation || what.faults.copy;  // some failures are said on all ranks
  }

  void run(typename World::meeting_place& replicas, const cm::collective::thread_group& stages)
  {
    const cm::bytes frame = job_.frame_bytes();
    support::failure_plan fails;
    if (is_last_) fails.allocation = what_.faults.allocation;
    typename World::runtime_type runtime = World::make_runtime(how_);
    const auto memory = World::make(runtime, how_, fails, frame * job_.frames, frame * 256, stage_ * 8 + replica_);
    memory_ = memory.get();
    cm::collective::local_threads end_of_stages{stages, cm::rank_id{stage_}};
    counting_ranks all_stages{end_of_stages};
    count_calls(all_stages);
    counting_ranks* const given = how_.has_stages() ? &all_stages : nullptr;
    if (!how_.is_over_ranks()) {
      using model_type = support::any_manager<backend_type>;
      model_type m = support::make_manager<model_type>(*memory, {.chunk_bytes = frame},
                                                       {.gradient = support::chosen_gradient{how_.is_in_place()}});
      return train(m, given);
    }
    typename World::member member{replicas, runtime, replica_, what_.deadline};
    counted_type all_replicas{member.ranks()};
    count_calls(all_replicas);
    using model_type = cm::sharded_model<backend_type, counted_type, support::every_eviction, support::chosen_gradient,
                                         support::every_transfer, support::every_layout, placement_type>;
    model_type m{*memory,
                 all_replicas,
                 {.chunk_bytes = frame},
                 {.divided = job_.divided, .sum_scale = job_.scale},
                 support::every_eviction{"belady"},
                 support::chosen_gradient{how_.is_in_place()},
                 support::every_transfer{"lookahead"},
                 support::every_layout{"size_class_layout"},
                 placement_type{}};
    train(m, given);
  }

 private:
  using placement_type = cm::placement::update_share;

  template <class Counted>
  void count_calls(Counted& ranks)
  {
    ranks.before = [this](std::uint64_t) {
      if (!is_counting_) return;
      if (is_last_ && what_.faults.call && found_.calls == *what_.faults.call) {
        found_.has_died = true;
        throw death{"dies"};
      }
      ++found_.calls;
    };
    support::run_queues_before_words(ranks, *memory_);
  }
  template <class Model>
  void train(Model& m, counting_ranks* stages)
  {
    using steps_type = steps_of_kind<Model, typename World::launcher_type>;
    using trainer_type = support::ranks::one_of_many<Element, Model, cm::optimizer::adam, steps_type>;
    trainer_type trainer{m, kernel_of(how_), job_, right_.values, part_, how_, stages, part_.begin};
    if (job_.rehearses) (void)trainer.least_device();
    trainer.fill();
    if (what_.begin > 0) load(m, stages);
    const std::uint64_t copies = memory_->copies();  // before, ranks broadcast: a failure there is one of all
    if (is_last_ && what_.faults.copy) memory_->set_plan({.copy = copies + *what_.faults.copy});
    const std::uint32_t until = std::min(what_.saved_at, what_.end);
    trainer.train(what_.begin, until);
    if (until < what_.end) {
      save(m, stages);
      is_counting_ = true;
      trainer.train(until, what_.end);
    }
    trainer.finish();
    is_counting_ = false;
    found_.allocations = memory_->allocations();
    found_.copies = memory_->copies() - copies;
    for (std::size_t list = 0; list < right_.lists.size(); ++list)
      trainer.check_list(lists_of(how_)[list], right_.lists[list]);
    if (trainer.complaint.empty() &&
        !std::ranges::equal(trainer.norms, std::span{right_.norms}.subspan(what_.begin, trainer.norms.size())))
      trainer.complaint = "another norm";
    if (is_last_ && job_.tries_again && memory_->failures() != 1) trainer.complaint += "nothing failed";
    found_.early = trainer.early_ones;
    found_.complaint = trainer.complaint;
  }
  template <class Model>
  void save(Model& m, counting_ranks* stages)
  {
    if (stages != nullptr)
      (void)cm::pipeline::save_stages(*stages, m, to_.at(stage_));
    else
      (void)cm::checkpoint::save(m, to_.at(0));
  }
  /// Replicas load the folder of their stage, stages those of any number.
  template <class Model>
  void load(Model& m, counting_ranks* stages)
  {
    if constexpr (requires { m.ranks(); }) {
      if (stages != nullptr)
        (void)cm::pipeline::load_stages(*stages, m, from_.at(stage_));
      else
        (void)cm::checkpoint::load(m, from_.at(0));
    } else if (stages != nullptr) {
      (void)cm::pipeline::load_from_stages(*stages, m, std::span{from_});
    } else {
      (void)cm::checkpoint::load(m, from_.at(0));
    }
  }

  const part_of_training& what_;
  kind how_;
  const reference<Element>& right_;
  std::uint32_t stage_;
  std::uint32_t replica_;
  const folders_type& from_;
  folders_type& to_;
  outcome& found_;
  job job_;
  stage_part part_;
  bool is_last_ = false;
  bool is_counting_ = false;  // calls of communicators
  backend_type* memory_ = nullptr;
};

/// All threads of a training. @return   what the last one counted, and the first complaint
template <class Element, class World>
[[nodiscard]] outcome train_threads(const part_of_training& what, const folders_type& from, folders_type& to)
{
  const kind& how = what.how;
  const kind before = what.before.value_or(how);
  const reference<Element>& right = reference_of<Element>(how, before, what.begin);
  to.resize(how.stages());
  const cm::collective::thread_group_options patience{.deadline = what.deadline};
  std::deque<typename World::meeting_place> replicas;  // of each stage
  std::deque<cm::collective::thread_group> stages;     // of each replica
  for (std::uint32_t stage = 0; stage < how.stages(); ++stage) replicas.emplace_back(how.replicas(), patience);
  for (std::uint32_t replica = 0; replica < how.replicas(); ++replica) stages.emplace_back(how.stages(), patience);
  std::vector<outcome> found(std::size_t{how.stages()} * how.replicas());
  std::vector<std::string> unheard(found.size());
  const auto work = [&](std::uint32_t number) {
    const std::uint32_t stage = number / how.replicas(), replica = number % how.replicas();
    try {
      thread_of_training<Element, World>{what, right, stage, replica, from, to, found[number]}.run(replicas[stage],
                                                                                                   stages[replica]);
    } catch (const cm::comm_error& failed) {  // another thread has the cause, mostly
      if (!what.faults.call) unheard[number] = failed.what();
    } catch (const death&) {
    } catch (const std::exception& failed) {
      found[number].complaint = failed.what();
    }
  };
  if (found.size() == 1)
    work(0);
  else
    cm::collective::run_threads(static_cast<std::uint32_t>(found.size()), work);
  outcome result = found.back();
  std::size_t early = 0;
  for (const outcome& each : found) {
    if (result.complaint.empty()) result.complaint = each.complaint;
    early += each.early;
  }
  for (const std::string& each : unheard)
    if (result.complaint.empty()) result.complaint = each;
  if (result.complaint.empty() && how.training().has_early_updates() && !what.faults.call && early == 0)
    result.complaint = "no update was early";
  return result;
}

template <class World>
[[nodiscard]] outcome train_in(const part_of_training& what, const folders_type& from, folders_type& to)
{
  switch (what.how.numbers()) {
    case precision::float32: return train_threads<float, World>(what, from, to);
    case precision::fp16_with_loss_scale: return train_threads<cm::fp16, World>(what, from, to);
    default: return train_threads<cm::bf16, World>(what, from, to);
  }
}

}  // namespace step_kinds
