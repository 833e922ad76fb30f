// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/agent_worker.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/own_process.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/step_driver.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/optimizer/update_site.hpp>
#include <chunkmem/sharding/first_values.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// One task at a time on a thread of its own, which starts with the first task and stays.
///
///     task_aside aside;
///     aside.start([&]() noexcept { answer = ask_others(); });
///     go_on();
///     aside.wait();
///
/// Cost: nothing without a task; two wake-ups for each. No allocation after the first. Its destructor waits for the
/// task, but not in a forked child.
/// @threads   one caller
class task_aside {
 public:
  task_aside() = default;
  task_aside(const task_aside&) = delete;

  /// @pre no task is running   @param work   does not throw   @throws device_error   no thread can be started
  template <class Work>
  void start(Work work)
  {
    if (!thread_) thread_ = std::make_unique<process_owned<own_thread>>();
    (*thread_)->worker.enqueue(backend::operation::launching(std::move(work)));
    is_running_ = true;
  }
  /// A task was started, and `wait` was not called yet.
  [[nodiscard]] bool is_running() const noexcept { return is_running_ && thread_->is_owner(); }
  /// @pre a task is running
  void wait() noexcept
  {
    (*thread_)->done[index_of(agent::host)].wait_for((*thread_)->worker.given());
    is_running_ = false;
  }

 private:
  /// A thread with its data, absent in a forked child.
  struct own_thread {
    backend::progress_table done{};
    backend::wait_totals waits{};
    backend::agent_worker worker{agent::host, done, waits};
  };

  std::unique_ptr<process_owned<own_thread>> thread_;
  bool is_running_ = false;
};

/// Takes an optimizer's step on one stage, as part of a step of all stages.
///
/// All stages clip by one norm, and skip together if a gradient of any stage is not finite. The norm has the bits of
/// one device that has all parameters: stages exchange the measure of every gradient, and add them up in the order of
/// the whole model. Without a norm and without skips, stages wait for each other only to compare their options.
///
/// Use, on every stage in each update:
///
///     stage_step steps{here.all()};
///     const auto done = steps.take(m, adam, options, pool, [&](tensor_handle it) { return number_in_model(it); });
///
/// Where the schedule has updates later than their batches (`pipedream_2bw{.for_all_stages = true}`), `begin` after the
/// last backward run of a batch lets stages communicate while they compute.
///
/// Where a stage has replicas, `m` is its sharded_model. Each replica is in one pipeline, and constructs a stage_step
/// of the stages of that pipeline. All replicas then have the norm of all stages.
///
/// Stages compare the options of the step, the loss scale, the type and lists of the kernel, the options that all
/// groups share, and the number of updates. They compare the options of a group with parameters on more than one stage,
/// and the updates that copies of a tied weight have missed. A stage may have no gradient in a step, if another one
/// has.
///
/// If one stage cannot begin the step, no stage takes it, and each throws the reason. If a step throws, call it again
/// on every stage on which it threw, as optimizer::step. Cost: one pass over the gradients that gradient_done did not
/// measure, and 32 B from each stage to each other stage for each parameter and group; 32 B more for each parameter
/// where some have missed updates. A stage waits for all others.
/// @tparam Ranks   a communicator of all stages: exchanges words
template <class Ranks>
class stage_step {
 public:
  /// @param stages   outlives this object
  explicit stage_step(Ranks& stages) : stages_{stages} {}
  stage_step(const stage_step&) = delete;
  ~stage_step()
  {
    if (talk_aside_.is_running()) stages_.revoke();  // this stage failed: others may have its words, and updated
  }

  /// Takes one step. @param number_of   `number_of(handle)`: index of a parameter in the whole model. Copies of a tied
  ///   weight have one number and equal gradients, and count once
  /// @throws comm_error    another stage failed or did not come
  /// @throws usage_error   a step was begun with other gradients or options, on this stage alone: call it again with
  ///   those of `begin`; on every stage: one cannot begin the step, stages have different options or numbers of
  ///   updates, none has a gradient, or two parameters with one number have different gradients or missed updates; and
  ///   as optimizer::step
  template <class Manager, optimizer_kernel Kernel, executor Executor, class NumberOf>
  optimizer::step_outcome take(Manager& m, Kernel& kernel, const optimizer::step_options& options, Executor& workers,
                               NumberOf number_of)
  {
    if constexpr (requires { m.ranks(); }) {
      return m.step_by(kernel, options, workers, decision_of(m, kernel, options, number_of));
    } else {
      driver_of<Manager, Kernel, Executor> driver{m, kernel, {m.backend(), workers}};
      return take_alone(driver, m, kernel, options, optimizer::detail::update_at_once{}, number_of);
    }
  }
  /// As above, with late updates on this stage; other stages may update at once.
  ///
  ///     optimizer::late_updates late{m, adam, pool};
  ///     const auto done = steps.take(m, late, options, [&](tensor_handle it) { return number_in_model(it); });
  ///
  /// @param late   optimizer::late_updates of `m`   @throws as above
  template <class Manager, class Late, class NumberOf>
    requires requires { typename Late::part_of_a_step; }
  optimizer::step_outcome take(Manager& m, Late& late, const optimizer::step_options& options, NumberOf number_of)
  {
    return late.step_by(options, [&](auto& taker, const optimizer::step_options& kept, auto timing) {
      if constexpr (requires { m.ranks(); })
        return taker.take_by(kept, timing, decision_of(m, taker.kernel(), kept, number_of));
      else
        return take_alone(taker.driver(), m, taker.kernel(), kept, timing, number_of);
    });
  }
  /// Begins a step whose gradients are complete, while this stage continues: gradients of other stages come later.
  /// `take` then waits for them, with the same options. Until then, these gradients must not change, and no other call
  /// may use the communicator of the stages. One step is begun at a time: an update comes before the gradients of the
  /// next batch are complete.
  /// @throws device_error   no thread can be started   @throws usage_error   a step was begun and not taken. `take`
  ///   throws mistakes in the step itself, on every stage
  /// @param workers   measure the gradients; on the device, where `take` gets device_updates
  template <class Manager, optimizer_kernel Kernel, class NumberOf, executor Executor = const serial>
  void begin(Manager& m, Kernel& kernel, const optimizer::step_options& options, NumberOf number_of,
             Executor& workers = on_this_thread)
  {
    static_assert(
        !requires { m.ranks(); }, "chunkmem: the step of a stage with replicas is not begun before it is taken");
    expects(!talk_aside_.is_running(), "a step of all stages was begun twice (take the first one before)");
    driver_of<Manager, Kernel, Executor> driver{m, kernel, {m.backend(), workers}};
    if (m.rehearsing()) {
      rehearse_measures(driver, m, options);
      has_rehearsed_measures_ = true;
      return;
    }
    propose_gradients(driver, m, kernel, options, number_of);
    begun_ = key_of(driver, options);
    talk_aside_.start([this]() noexcept {
      failure_ = nullptr;
      try {
        answer_ = talk();
      } catch (...) {
        failure_ = std::current_exception();
      }
    });
  }
  /// Copies of one weight on several stages, such as a tied table, are filled stage by stage: compares their bits.
  /// Every stage calls it, between iterations and before the first step. A stage without a copy gives none. With
  /// replicas of a stage, it compiles only for devices that the host can address.
  ///
  ///     steps.expect_equal_copies(m, here.stage() == 0 ? std::optional{table} : std::nullopt);
  ///
  /// @throws usage_error   on every stage: the stages with other values, or without a filled copy; comm_error; as
  ///   acquire
  template <class Manager, element Element>
  void expect_equal_copies(Manager& m, const std::optional<tensor<Element>>& copy)
  {
    if constexpr (requires { m.ranks(); })
      static_assert(Manager::engine_type::host_addressable,
                    "chunkmem: a stage with replicas gathers its weights on a device that the host cannot read; "
                    "compare the values with which copies of a weight are filled (collective::words_of_all)");
    std::uint64_t word = 0;
    collective::all_or_none(stages_, [&] {
      if (!copy) return;
      const auto pin = m.acquire(*copy, access::read, memory_location::host);
      word = sharding::first_values::word_of(std::as_bytes(pin.span())) | 1U;
    });
    const std::vector<std::uint64_t> words = collective::words_of_all(stages_, word);
    const auto first = std::ranges::find_if(words, [](std::uint64_t it) { return it != 0; });
    const auto other =
        std::ranges::find_if(first, words.end(), [&](std::uint64_t it) { return it != 0 && it != *first; });
    if (other != words.end())
      throw usage_error{error_text{} << "chunkmem: copies of a weight have other values on stage "
                                     << static_cast<std::uint64_t>(other - words.begin()) << " than on stage "
                                     << static_cast<std::uint64_t>(first - words.begin())
                                     << " (fill all copies with the same values)"};
  }
  /// Voids a step that was begun, for example after drop_gradients or a load. Call it on every stage. Waits until the
  /// stages have communicated.
  void forget() noexcept
  {
    if (talk_aside_.is_running()) talk_aside_.wait();
    failure_ = nullptr;
    missed_.reset();
    heard_.reset();
  }

 private:
  static constexpr std::size_t words_of_gradient = 1 + words_of_measure;
  static constexpr std::uint64_t mark_of_group = std::uint64_t{1} << 33;   // numbers of parameters lie below
  static constexpr std::uint64_t mark_of_missed = std::uint64_t{1} << 34;  // numbers of groups lie below
  static constexpr std::uint64_t nothing_set = collective::fingerprint{}.value();
  enum fact : std::uint64_t { has_gradient = 1, has_group_settings = 2, has_missed = 4 };
  struct group_word {
    std::uint64_t group = 0;
    std::uint64_t stage = 0;
    std::uint64_t word = 0;
  };
  struct missed_of_copy {
    std::uint64_t number = 0;  // of the parameter, in the model
    std::uint64_t stage = 0;
    std::uint64_t missed = 0;
  };
  struct numbered_measure {
    std::uint32_t number = 0;
    gradient_measure measure{};
  };

  using step_key = std::pair<optimizer::detail::gradient_version, std::uint64_t>;  // gradients, and all options
  template <class Manager, class Kernel, class Executor>
  using driver_of = optimizer::detail::step_driver<Manager, Kernel, optimizer::detail::caller_site<Manager, Executor>>;

  /// The decision of a stage with replicas. All arguments outlive it.
  template <class Model, class Kernel, class NumberOf>
  [[nodiscard]] auto decision_of(Model& m, Kernel& kernel, const optimizer::step_options& options, NumberOf& number_of)
  {
    expects(static_cast<const void*>(&stages_) != &m.ranks(),
            "a step of all stages was given the communicator of a stage's replicas (give it that of the stages: "
            "here.all())");
    return [&](auto agree, std::uint64_t updates, const auto& measures) {
      const auto begin = [&] {
        agree();
        bool has_any = false;
        measures.for_each([&](tensor_handle, const gradient_measure&) { has_any = true; });
        return has_any;
      };
      const auto weights = [&](auto visit) { measures.for_each_weight(visit); };
      propose(
          m.shares(), kernel, options, updates, begin, [&](auto visit) { measures.for_each(visit); }, weights,
          number_of);
      const gradient_measure all = talk();
      if (missed_) refuse_missed(m, weights, number_of);
      return all;
    };
  }
  /// The step of a stage that is one rank.
  template <class Driver, class Manager, class Kernel, class Timing, class NumberOf>
  optimizer::step_outcome take_alone(Driver& driver, Manager& m, Kernel& kernel, const optimizer::step_options& options,
                                     Timing timing, NumberOf number_of)
  {
    if (m.rehearsing()) {
      if (!std::exchange(has_rehearsed_measures_, false)) rehearse_measures(driver, m, options);
      driver.decide_by(gradient_measure{});
    } else if (!driver.is_decided()) {
      const step_key now = key_of(driver, options);
      const bool has_heard_others = heard_ && heard_->first.first == now.first && heard_->first != now;
      if (has_heard_others || (talk_aside_.is_running() && begun_ != now))
        throw usage_error{
            "a step was begun with other gradients or options than it is taken with (give take the options of begin, "
            "and "
            "begin a step when its gradients are complete; forget it on every stage to begin again)"};
      if (!heard_ || heard_->first != now) {
        if (!talk_aside_.is_running()) propose_gradients(driver, m, kernel, options, number_of);
        const gradient_measure all = hear();
        if (missed_) refuse_missed(m, weights_of(m), number_of);
        heard_ = {now, all};
      }
      driver.decide_by(heard_->second);  // also of a stage without a gradient
    }
    const optimizer::step_outcome done = driver.run(options, timing);
    heard_.reset();
    return done;
  }
  /// Reads the gradients that a step would read, so that the record has these accesses.
  template <class Driver, class Manager>
  static void rehearse_measures(Driver& driver, Manager& m, const optimizer::step_options& options)
  {
    if (!needs_measures(options)) return;
    m.for_each_parameter([&](tensor_handle it, const tensor_info& info) {
      if (driver.has_gradient(it)) driver.measure(it, info);
    });
  }
  template <class Driver, class Manager, class Kernel, class NumberOf>
  void propose_gradients(Driver& driver, Manager& m, Kernel& kernel, const optimizer::step_options& options,
                         NumberOf number_of)
  {
    const auto begin = [&] {
      driver.expect_not_guessed();
      driver.check(options);
      driver.prepare(options);
      return m.updates().has_gradients_of_part();  // checks run before any stage updates
    };
    const auto measure = [&](auto visit) {
      m.for_each_parameter([&](tensor_handle it, const tensor_info& info) {
        if (!driver.has_gradient(it)) return;
        driver.measure(it, info);
        visit(it, driver.measure_of(it));
      });
    };
    propose(m, kernel, options, driver.progress().number, begin, measure, weights_of(m), number_of);
  }
  /// Calls a visitor with each parameter.
  template <class Manager>
  [[nodiscard]] static auto weights_of(Manager& m)
  {
    return [&m](auto visit) { m.for_each_parameter([&](tensor_handle it, const tensor_info&) { visit(it); }); };
  }
  [[nodiscard]] static bool needs_measures(const optimizer::step_options& options)
  {
    return optimizer::detail::step_rules{options}.needs_measures();
  }
  /// Collects the words that stages compare. @param own   manager of this rank
  template <class Manager, class Kernel>
  void say_settings(Manager& own, Kernel& kernel, const optimizer::step_options& options, std::uint64_t updates)
  {
    settings_.clear();
    optimizer::for_each_setting(options, kernel, [&](const optimizer::setting& it) { settings_.push_back(it); });
    settings_.push_back({"number of updates so far", updates});
    word_ = word_of(std::nullopt);
    groups_.clear();
    own.for_each_parameter([&](tensor_handle, const tensor_info& info) {
      if (groups_.empty() || groups_.back() != info.group) groups_.push_back(info.group);
    });
    std::ranges::sort(groups_);
    groups_.erase(std::unique(groups_.begin(), groups_.end()), groups_.end());
    for (const group_id group : groups_) {
      const std::uint64_t word = word_of(group);
      if (word != nothing_set) facts_ |= has_group_settings;
      mine_.insert(mine_.end(), {mark_of_group + index_of(group), word});
      mine_.resize(mine_.size() + words_of_gradient - 2);
    }
  }
  /// A hash of the settings of a group, or of the settings without a group.
  [[nodiscard]] std::uint64_t word_of(std::optional<group_id> group) const
  {
    collective::fingerprint word;
    for (const optimizer::setting& it : settings_)
      if (it.group() == group) word.add(it.word());
    return word.value();
  }

  /// The key of this stage's step, in this process: includes the options of the kernel.
  template <class Driver>
  [[nodiscard]] static step_key key_of(const Driver& driver, const optimizer::step_options& options)
  {
    collective::fingerprint all;
    all.add(driver.word_of(options));
    all.add(driver.progress().number);
    return {driver.version(), all.value()};
  }

  /// Collects the words of this stage. @param own   manager of this rank
  /// @param begin   this stage's part of the begin: `begin()` returns whether it has a gradient
  /// @param measure   `measure(visit)`: `visit(handle, measure)` for each gradient of this stage
  /// @param weights   `weights(visit)`: `visit(handle)` for each parameter of this stage
  template <class Manager, class Kernel, class Begin, class Measure, class Weights, class NumberOf>
  void propose(Manager& own, Kernel& kernel, const optimizer::step_options& options, std::uint64_t updates, Begin begin,
               Measure measure, Weights weights, NumberOf number_of)
  {
    needs_measures_ = needs_measures(options);
    wrong_ = nullptr;
    mine_.clear();
    missed_of_mine_.clear();
    facts_ = 0;
    try {
      if (begin()) facts_ |= has_gradient;
      say_settings(own, kernel, options, updates);
      weights([&](tensor_handle it) {
        const std::uint64_t missed = kernel.progress.missed.of(index_of(it.id));
        if (missed != 0) facts_ |= has_missed;
        missed_of_mine_.push_back({number_of(it), index_of(stages_.rank()), missed});
      });
      if (!needs_measures_) return;
      measure([&](tensor_handle it, const gradient_measure& found) {
        mine_.push_back(number_of(it) + std::uint64_t{1});
        for (const std::uint64_t word : words_of(found)) mine_.push_back(word);
      });
    } catch (...) {
      wrong_ = std::current_exception();
    }
  }
  /// Errors that stages cannot exchange revoke their communicator.
  void tell_what_is_wrong()
  {
    try {
      collective::all_or_none(stages_, [this] {
        if (wrong_) std::rethrow_exception(wrong_);
      });
    } catch (const comm_error&) {
      stages_.revoke();
      throw;
    } catch (const error&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (...) {
      stages_.revoke();
      throw;
    }
  }
  /// The measure of all stages, if the step needs one.
  [[nodiscard]] gradient_measure talk()
  {
    tell_what_is_wrong();
    missed_.reset();
    const std::uint64_t first[] = {word_, facts_, mine_.size(), missed_of_mine_.size() * words_of_gradient};
    all_.resize(std::size(first) * stages_.ranks());
    stages_.exchange(first, all_);
    std::uint64_t facts = 0, most = 0, most_with_missed = 0;
    bool is_same = true;
    for (std::size_t at = 0; at < all_.size(); at += std::size(first)) {
      is_same = is_same && all_[at] == word_;
      facts |= all_[at + 1];
      most = std::max(most, all_[at + 2]);
      most_with_missed = std::max(most_with_missed, all_[at + 2] + all_[at + 3]);
    }
    if (!is_same) refuse_settings();
    expects((facts & has_gradient) != 0,
            "a step of all stages, and none of them has a gradient (write gradients before each step, and take one "
            "step for them; leave the step out on every stage where there are none)");
    const bool compares_missed = (facts & has_missed) != 0;
    if (!needs_measures_ && !compares_missed && (facts & has_group_settings) == 0) return {};
    if (compares_missed) say_missed();
    mine_.resize(compares_missed ? most_with_missed : most);  // a number of 0 is no gradient
    all_.resize(mine_.size() * stages_.ranks());
    stages_.exchange(mine_, all_);
    expect_equal_groups();
    if (compares_missed && find_other_missed()) return {};
    return needs_measures_ ? sum_in_order() : gradient_measure{};
  }
  /// All parameters of this stage: a copy on another stage may have missed none.
  void say_missed()
  {
    for (const missed_of_copy& it : missed_of_mine_) {
      mine_.insert(mine_.end(), {mark_of_missed + it.number, it.missed});
      mine_.resize(mine_.size() + words_of_gradient - 2);
    }
  }
  /// Every stage finds the same. @return   copies of a weight have missed different numbers of updates: `missed_` has
  /// them
  [[nodiscard]] bool find_other_missed()
  {
    missed_of_all_.clear();
    for (std::size_t at = 0; at < all_.size(); at += words_of_gradient)
      if (all_[at] >= mark_of_missed)
        missed_of_all_.push_back({all_[at] - mark_of_missed, at / mine_.size(), all_[at + 1]});
    std::ranges::stable_sort(missed_of_all_, {}, &missed_of_copy::number);
    const auto found =
        std::ranges::adjacent_find(missed_of_all_, [](const missed_of_copy& one, const missed_of_copy& other) {
          return one.number == other.number && one.missed != other.missed;
        });
    if (found != missed_of_all_.end()) missed_.emplace(*found, *std::next(found));
    return missed_.has_value();
  }
  /// On the calling thread, which may read names. @throws usage_error   on every stage
  template <class Model, class Weights, class NumberOf>
  void refuse_missed(const Model& m, Weights weights, NumberOf number_of)
  {
    const auto [one, other] = *std::exchange(missed_, std::nullopt);
    collective::all_or_none(stages_, [&, one = one, other = other] {
      if (one.stage != index_of(stages_.rank())) return;
      error_text all;
      all << "chunkmem: stages take different steps: ";
      std::string_view before;
      weights([&](tensor_handle it) {
        if (number_of(it) == one.number) all << std::exchange(before, ", ") << m.name_of(it);
      });
      throw usage_error{all << " has missed " << one.missed << " updates on stage " << one.stage
                            << ", and its copy on stage " << other.stage << " has missed " << other.missed
                            << " (make gradients of all copies of a weight in the same steps, and load checkpoints of "
                               "the same step)"};
    });
  }
  /// @throws usage_error   on every stage: the first setting that differs, and the stages
  [[noreturn]] void refuse_settings()
  {
    collective::named_words mine;
    for (const optimizer::setting& it : settings_)
      if (!it.group()) mine.add(it.name(), it.word(), it.text());
    throw usage_error{mine.difference(
        stages_, {"stages take different steps", "stage",
                  "give all stages the same options and one type of kernel, and load checkpoints of the same step; "
                  "options that differ are those of a group, which owns weights on one stage alone"})};
  }
  /// Checks that stages with parameters of one group have equal settings for it. @throws usage_error   on every stage:
  /// the settings of one of two stages
  void expect_equal_groups()
  {
    groups_of_all_.clear();
    for (std::size_t at = 0; at < all_.size(); at += words_of_gradient)
      if (all_[at] >= mark_of_group && all_[at] < mark_of_missed)
        groups_of_all_.push_back({all_[at] - mark_of_group, at / mine_.size(), all_[at + 1]});
    std::ranges::stable_sort(groups_of_all_, {}, &group_word::group);
    for (std::size_t index = 1; index < groups_of_all_.size(); ++index) {
      const group_word& one = groups_of_all_[index - 1];
      const group_word& other = groups_of_all_[index];
      if (one.group == other.group && one.word != other.word)
        one.word != nothing_set ? refuse_group(one, other) : refuse_group(other, one);
    }
  }
  /// @throws usage_error   on every stage: with the settings of `one`
  void refuse_group(const group_word& one, const group_word& other)
  {
    collective::all_or_none(stages_, [&] {
      if (one.stage != index_of(stages_.rank())) return;
      error_text all;
      all << "chunkmem: stages take different steps: ";
      std::string_view between;
      for (const optimizer::setting& it : settings_)
        if (it.group() && index_of(*it.group()) == one.group) all << std::exchange(between, ", ") << it.text();
      throw usage_error{all << " on stage " << one.stage << ", and other settings of this group on stage "
                            << other.stage << " (give all stages that own weights of a group the same options for it)"};
    });
  }
  /// The result of the exchange that runs on its own thread, or of an exchange now.
  [[nodiscard]] gradient_measure hear()
  {
    if (!talk_aside_.is_running()) return talk();
    talk_aside_.wait();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    return answer_;
  }

  [[nodiscard]] gradient_measure sum_in_order()
  {
    measures_.clear();
    for (std::size_t at = 0; at < all_.size(); at += words_of_gradient)
      if (all_[at] != 0 && all_[at] < mark_of_group)
        measures_.push_back({static_cast<std::uint32_t>(all_[at] - 1), measure_in(&all_[at + 1])});
    std::ranges::stable_sort(measures_, {}, &numbered_measure::number);
    const float_environment standard;
    gradient_measure sum;
    for (std::size_t index = 0; index < measures_.size(); ++index) {
      const bool is_copy = index > 0 && measures_[index].number == measures_[index - 1].number;
      expects(!is_copy || words_of(measures_[index].measure) == words_of(measures_[index - 1].measure),
              "two parameters of a step have one number and different gradients (number them as in the whole model, "
              "and add "
              "the gradients of a tied weight up before the step)");
      if (!is_copy) sum.add(measures_[index].measure);
    }
    return sum;
  }

  Ranks& stages_;
  std::uint64_t word_ = 0;   // of the settings of no group
  std::uint64_t facts_ = 0;  // bits of fact
  bool needs_measures_ = false;
  step_key begun_{};                                            // of an exchange on its own thread
  std::optional<std::pair<step_key, gradient_measure>> heard_;  // of a step that did not end: not exchanged again
  std::exception_ptr wrong_;                                    // the reason why this stage cannot take the step
  std::vector<optimizer::setting> settings_;                    // of the step, for the sentence of a refusal
  std::vector<group_id> groups_;                                // that own parameters on this stage
  std::vector<group_word> groups_of_all_;
  std::vector<std::uint64_t> mine_;  // groups, and gradients
  std::vector<std::uint64_t> all_;
  std::vector<missed_of_copy> missed_of_mine_;  // one for each parameter of this stage
  std::vector<missed_of_copy> missed_of_all_;
  std::optional<std::pair<missed_of_copy, missed_of_copy>> missed_;  // two copies that differ
  std::vector<numbered_measure> measures_;
  gradient_measure answer_{};            // of an exchange on its own thread
  std::exception_ptr failure_;           // of an exchange on its own thread
  bool has_rehearsed_measures_ = false;  // by a rehearsed begin
  task_aside talk_aside_;                // the last member: it ends before the members that it uses
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
