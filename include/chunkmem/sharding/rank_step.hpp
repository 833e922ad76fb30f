// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/step_driver.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/sharding/agreed_measure.hpp>
#include <chunkmem/sharding/first_values.hpp>
#include <chunkmem/sharding/gathered_units.hpp>
#include <chunkmem/sharding/gathering.hpp>
#include <chunkmem/sharding/model_tensors.hpp>
#include <chunkmem/sharding/share_site.hpp>
#include <chunkmem/sharding/unit_gradients.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace sharding {

/// Drives the updates of shares on the calling thread, with its workers.
template <class Manager, class Kernel, class Executor>
using rank_driver =
    optimizer::detail::step_driver<Manager, Kernel, share_site<optimizer::detail::caller_site<Manager, Executor>>>;

/// The steps of a sharded model: ranks agree on the step, each rank updates its shares, and kept units are gathered. A
/// part of sharded_model, which passes its communicator to each call:
///
///     rank_step<Manager, Plan> steps{m, plan, units, gradients, runs, tensors, filled, ahead};
///     rank_driver<Manager, Kernel, Executor> driver{m, kernel, {{m.backend(), workers}, units.runs()}};
///     const auto outcome = steps.take(ranks, settle, driver, kernel, options, workers, timing, decide);
///
/// Where the timing guesses, ranks agree on the settings before the first update, and on the measure when the timing
/// requests the decision: by `agree_on_measure`.
///
/// The update itself is driven as on one rank (optimizer::detail::step_driver). Only its decision is by the measure of
/// the gradients of all ranks. A waiting update runs when its unit is used, and the unit is gathered after it: every
/// rank uses units in the same order, so the gathers of late updates have one order too.
/// @tparam Manager   of one rank, with a gathering_mover   @tparam Plan   a unit_plan
template <class Manager, class Plan>
class rank_step {
 public:
  /// All arguments outlive this object.
  /// @param ahead   sharding_options::gathers_ahead
  rank_step(Manager& m, const Plan& plan, gathered_units& units, unit_gradients<Manager>& gradients,
            const unit_runs& runs, const model_tensors& tensors, first_values& filled, std::uint32_t ahead) noexcept
      : m_{m},
        plan_{plan},
        units_{units},
        gradients_{gradients},
        runs_{runs},
        tensors_{tensors},
        filled_{filled},
        ahead_{ahead}
  {
  }
  rank_step(const rank_step&) = delete;

  /// Takes one step. @param settle   waits until the work of the group is done
  /// @param driver   a rank_driver   @param timing   of the updates, see update_at_once
  /// @param decide   `decide(agree, updates, measures)`: calls `agree()`, and returns the measure for the decision
  /// @throws comm_error; usage_error   ranks have gradients of different weights, or different options; as
  ///   optimizer::step: call again to continue
  template <class Ranks, class Settle, class Driver, optimizer_kernel Kernel, executor Executor, class Timing,
            class Decide>
  optimizer::step_outcome take(Ranks& ranks, Settle settle, Driver& driver, Kernel& kernel,
                               const optimizer::step_options& options, Executor& workers, Timing timing, Decide decide)
  {
    units_.runs().expect_tensors(tensors_.size());
    driver.finish_waiting();  // with the gradient flags of its step, which change below
    for (std::uint32_t index = 0; index < units_.size(); ++index) gradients_.finish(m_, units_[index], index);
    waits_ = Timing::lets_wait;
    if constexpr (Timing::guesses) {
      // also of a step whose first call has updated nothing, where a gradient was opened or dropped since
      if (!m_.rehearsing() && (!driver.is_begun() || driver.has_other_gradients())) {
        expect_agreed({driver.version(), word_of(options, kernel)});
        agree_on_settings_once(ranks, driver, kernel, options);
        expect_any_gradient();
      }
    } else {
      if (!m_.rehearsing()) driver.expect_not_guessed();  // before other ranks are involved
      agree_on_measure(ranks, settle, driver, kernel, options, workers, decide);
    }
    tell_runs_of_gradients();
    if (!waits_) make_room();  // where updates wait, the next pass still reads old units
    is_updating_ = !m_.rehearsing();
    try {
      const optimizer::step_outcome outcome = driver.run(options, renewing_timing<Timing>{*this, timing});
      gradients_.forget_step();
      agreed_on_.reset();
      decided_by_.reset();
      forget();
      return outcome;
    } catch (...) {
      is_updating_ = is_updating_ && m_.updates().gradients().is_updated_in_part();
      throw;
    }
  }

  /// Ranks agree on the measure for the driver's decision. @param settle, decide   as of take
  /// @throws as take; does nothing where the step is decided
  template <class Ranks, class Settle, class Driver, class Kernel, class Executor, class Decide>
  void agree_on_measure(Ranks& ranks, Settle settle, Driver& driver, Kernel& kernel,
                        const optimizer::step_options& options, Executor& workers, Decide decide)
  {
    if (m_.rehearsing()) return rehearse_measures(ranks, driver, options, workers);
    // else a share is updated as soon as its sum is complete, while other sums run
    if (optimizer::detail::step_rules{options}.needs_measures()) settle();
    if (driver.is_decided()) return;
    const step_key now{driver.version(), word_of(options, kernel)};
    expect_agreed(now);
    if (!decided_by_ || decided_by_->first != now) {
      const auto these_agree = [&] { agree(ranks, driver, kernel, options, workers); };
      try {
        decided_by_ = {now, decide(these_agree, driver.progress().number, measure_)};
      } catch (const usage_error&) {  // on every rank: a retry may have other settings
        agreed_on_.reset();
        throw;
      }
    }
    driver.decide_by(decided_by_->second);
  }

  /// Measures a share before its early update, which may overwrite its gradient. Ranks agree by this measure.
  /// @param ordinal   of the share among the parameters of the manager   @throws out_of_memory, device_error
  template <class Ranks, class Driver, class Executor>
  void measure_early(Ranks& ranks, Driver& driver, std::uint32_t ordinal, Executor& workers)
  {
    const std::uint32_t index = units_.trained(ordinal);
    if (m_.updates().measure_of(units_[index].share) != nullptr) return;
    m_.updates().keep_measure(units_[index].share, measure_share(ranks, driver, index, workers));
  }
  /// Before a unit is used: runs its waiting update, and those of the same chunk. @throws the errors of the updates,
  /// and comm_error: call again
  void catch_up(const unit_tensors& unit)
  {
    if (m_.updates_pending() != 0) [[unlikely]]
      m_.updates().catch_up(unit.share);
  }
  /// Runs the update of a share that waited, and gathers its unit from the new share. @param ordinal   of the share
  /// among the parameters of the manager   @param work   `work()`: the update, which runs once, also over retries
  /// @throws the errors of the update; comm_error, out_of_memory, device_error: call it again
  template <class Work>
  void update_waiting(std::uint32_t ordinal, Work work)
  {
    if (m_.rehearsing()) return work(), make_new(ordinal);
    if (has_new_share_.size() <= ordinal) has_new_share_.resize(units_.size());
    if (has_new_share_[ordinal] == 0) work();
    has_new_share_[ordinal] = 1;
    make_new_late(ordinal);
    has_new_share_[ordinal] = 0;
  }
  /// Gathers all weights again from their shares, in all versions. A step that did not end is void.
  /// @throws usage_error   in an iteration; a weight is pinned; gradients have the bytes of shares
  /// @throws comm_error, out_of_memory, device_error: call it again
  void gather_weights()
  {
    expects(!m_.is_iterating() && !m_.rehearsing(), "weights cannot be gathered in an iteration (end it first)");
    m_.updates().finish_updates();
    for (const unit_tensors& unit : units_.all())
      expects(m_.state_of(unit.share) != tensor_state::gradient,
              "weights cannot be gathered while gradients have the bytes of their shares (take the step first, or call "
              "drop_gradients)");
    std::ranges::fill(has_new_share_, std::uint8_t{0});  // of discarded updates
    units_.runs().forget_updates();
    forget();
    agreed_on_.reset();
    decided_by_.reset();
    for (const unit_tensors& unit : units_.all())
      unit.for_each_whole([&](tensor<std::uint8_t> whole) {
        if (unit.is_kept)
          gather(whole);
        else
          change(whole).release();
      });
  }

  /// @throws usage_error   a step did not end: some weights are updated and not gathered yet
  void expect_whole() const
  {
    expects(
        !is_updating_,
        "a weight was used after a step that did not end: some were updated and not gathered yet (call step again)");
  }
  /// Voids a step that did not end, or that was rehearsed.
  void forget() noexcept
  {
    has_room_ = false;
    passed_ = 0;
    renewed_ = 0;
    std::ranges::fill(is_passed_, std::uint8_t{0});
    is_updating_ = false;
  }
  /// Units that are not kept and have no pin are gathered again at their next use. Their shares had lent their bytes to
  /// gradients and are made again; a plan may have gathered the bytes of gradients. @throws out_of_memory,
  /// device_error: call it again
  void forget_wholes()
  {
    for (const unit_tensors& unit : units_.all())
      if (unit.is_trained && !unit.is_kept && m_.state_of(unit.whole) == tensor_state::hold)
        change(unit.whole).release();
  }
  /// The gradients of a step were dropped before its first update.
  void drop() noexcept
  {
    forget();
    agreed_on_.reset();
    decided_by_.reset();
  }

 private:
  static constexpr std::uint64_t refused = 0;  // the word of a rank that cannot take the step
  using gradient_version = optimizer::detail::gradient_version;
  using step_key = std::pair<gradient_version, std::uint64_t>;  // gradients and settings

  /// As `Timing`; and the unit of each updated share is renewed at once.
  template <class Timing>
  struct renewing_timing {
    static constexpr bool lets_wait = Timing::lets_wait;
    static constexpr bool guesses = Timing::guesses;

    rank_step& self;
    Timing inner;

    template <class Driver>
    void begin(Driver& driver, typename Driver::place_type from)
    {
      inner.begin(driver, from);
      std::uint32_t place = self.passed_;  // of a failed call: the last share is updated, and its unit is old
      driver.for_each_from(place, [&](tensor_handle, const tensor_info& info) {
        if (place++ < driver.progress().reached) passed(info.ordinal);
      });
    }
    template <class Driver>
    void decide(Driver& driver)
    {
      inner.decide(driver);
    }
    [[nodiscard]] bool is_due(std::uint32_t place) const noexcept { return inner.is_due(place); }
    /// The last update of the order runs in this call, so all do.
    [[nodiscard]] bool makes_all() const noexcept { return inner.is_due(self.units_.trained() - 1); }
    void passed(std::uint32_t ordinal) { self.renew(ordinal, guesses, makes_all()); }
    template <class Driver>
    void end(Driver& driver) noexcept
    {
      inner.end(driver);
    }
  };

  /// The share of this ordinal has its bytes of the next step. Kept units are renewed in the order of their ordinals,
  /// which is that of the next forward pass: gathers and sums share the network, so in the order of updates the gather
  /// of the first unit, which is updated last, would come too late.
  /// @param guesses     every rank has another order of updates: all units are renewed in the order of their ordinals
  /// @param makes_all   no update of the step waits
  /// @throws as gather: call it again
  void renew(std::uint32_t ordinal, bool guesses, bool makes_all)
  {
    const bool is_kept = units_[units_.trained(ordinal)].is_kept;
    if (m_.rehearsing() && guesses) return make_new(ordinal);
    if (!m_.rehearsing() && is_kept)
      m_.updates().gradients().begin_update();  // also in a skipped step: a failed gather leaves a unit without bytes
    if (!guesses && (!makes_all || !is_kept)) make_new_ahead(ordinal);
    if (guesses || makes_all) {
      is_passed_.resize(units_.size());
      is_passed_[ordinal] = 1;
      for (; renewed_ < units_.size() && is_passed_[renewed_] != 0; ++renewed_)
        if (guesses || units_[units_.trained(renewed_)].is_kept) make_new(renewed_);
    }
    if (!m_.rehearsing()) ++passed_;
  }
  /// A kept unit is gathered. Another unit is dropped, and gathered at its next use.
  void make_new(std::uint32_t ordinal)
  {
    const unit_tensors& unit = units_[units_.trained(ordinal)];
    if (unit.is_kept)
      gather(unit.whole);
    else
      change(unit.whole).release();  // also without an update: the share may be of an older version
  }
  /// As make_new; some units are gathered for the next pass. Compute waits for them in that pass, whose gathers come
  /// after them in any case.
  void make_new_ahead(std::uint32_t ordinal)
  {
    const unit_tensors& unit = units_[units_.trained(ordinal)];
    m_.updates().whole([&] {
      make_new(ordinal);
      if (!unit.is_kept && is_gathered_ahead(ordinal, units_.trained(), ahead_))
        m_.acquire(unit.whole, access::read, agent::compute).release();
    });
  }

  /// Units that are not kept leave the device before the first update of a step, which makes room for updates.
  void make_room()
  {
    if (has_room_) return;
    m_.updates().whole([&] {
      for (const unit_tensors& unit : units_.all())
        if (!unit.is_kept) change(unit.whole).release();
    });
    has_room_ = !m_.rehearsing();
  }
  /// Marks the runs that have a gradient in this step.
  void tell_runs_of_gradients()
  {
    for (std::uint32_t index = 0; index < units_.size(); ++index) {
      const unit_tensors& unit = units_[index];
      units_.runs().overwrites(unit.share, gradients_.is_whole_of_step(index));
      for (std::size_t part = 0; part < unit.parts.size(); ++part)
        units_.runs()[unit.share][part].has_gradient = gradients_.is_of_step(unit.parts[part].tensor);
    }
    std::vector<std::uint32_t>& missing = units_.runs().missing();
    missing.clear();
    for (std::uint32_t planned = 0; planned < plan_.tensors(); ++planned)
      if (is_trained(planned) && !gradients_.is_of_step(planned)) missing.push_back(tensors_.tensor_of_plan(planned));
  }

  [[nodiscard]] bool is_trained(std::uint32_t planned) const noexcept
  {
    return tensors_[tensors_.tensor_of_plan(planned)].part == role::parameter;
  }
  /// A hash of the settings of a step and of the time of its updates.
  template <class Kernel>
  [[nodiscard]] std::uint64_t word_of(const optimizer::step_options& options, Kernel& kernel) const
  {
    collective::fingerprint all;
    all.add(optimizer::settings_word(options, kernel));
    all.add(waits_ ? 1 : 0);
    return all.value();
  }

  /// While this pin lives the shares of `whole` change: it is not resident, and is gathered again at its next use.
  /// @throws usage_error   `whole` is pinned on the device
  [[nodiscard]] auto change(tensor<std::uint8_t> whole)
  {
    return m_.acquire(whole, access::write, memory_location::host);
  }
  /// Gathers a kept tensor from the present shares of all ranks. @throws out_of_memory, device_error, comm_error   the
  /// bytes of the tensor are undefined until the next call succeeds
  void gather(tensor<std::uint8_t> whole)
  {
    m_.updates().whole([&] {
      const auto pin = m_.acquire(whole, access::write, agent::compute);
      m_.gathered().gather_now(whole.id);
    });
  }

  /// @throws as gather; a comm_error names the order that ranks have to keep
  void make_new_late(std::uint32_t ordinal)
  {
    try {
      make_new(ordinal);
    } catch (const comm_error& failed) {
      throw comm_error{error_text{} << failed.what()
                                    << " (an update waited until its weight was read: after a late step every rank "
                                       "reads the same weights in the same order; call finish() of late_updates on "
                                       "every rank before one reads alone)",
                       failed.fault()};
    }
  }
  /// Ranks agree on the step, and measure all their gradients if the step needs a measure. A rank that repeats a failed
  /// step continues its exchange where it stopped.
  template <class Ranks, class Driver, class Kernel, class Executor>
  void agree(Ranks& ranks, Driver& driver, Kernel& kernel, const optimizer::step_options& options, Executor& workers)
  {
    agree_on_settings_once(ranks, driver, kernel, options);
    if (!optimizer::detail::step_rules{options}.needs_measures()) return;
    for (; measured_ < units_.size(); ++measured_) measure(ranks, driver, measured_, workers);
  }
  /// @throws usage_error   ranks have agreed on this step with other settings
  void expect_agreed(const step_key& now) const
  {
    expects(!agreed_on_ || agreed_on_->first != now.first || *agreed_on_ == now,
            "a step over ranks was called again with other settings than ranks have agreed on (give it those of its "
            "first call: other ranks update by them)");
  }
  /// @throws usage_error   no rank has a gradient: they may agree on other settings
  void expect_any_gradient()
  {
    try {
      measure_.expect_any();
    } catch (const usage_error&) {
      agreed_on_.reset();
      throw;
    }
  }
  template <class Ranks, class Driver, class Kernel>
  void agree_on_settings_once(Ranks& ranks, Driver& driver, Kernel& kernel, const optimizer::step_options& options)
  {
    const step_key now{driver.version(), word_of(options, kernel)};
    if (agreed_on_ == now) return;
    agree_on_settings(ranks, driver, kernel, options, now.second);
    filled_.forget();
    agreed_on_ = now;
    measured_ = 0;
  }
  template <class Ranks, class Driver, class Executor>
  void rehearse_measures(Ranks& ranks, Driver& driver, const optimizer::step_options& options, Executor& workers)
  {
    if (!optimizer::detail::step_rules{options}.needs_measures()) return;
    for (std::uint32_t index = 0; index < units_.size(); ++index) measure(ranks, driver, index, workers);
    driver.decide_by(gradient_measure{});
  }
  template <class Ranks, class Driver, class Executor>
  void measure(Ranks& ranks, Driver& driver, std::uint32_t index, Executor& workers)
  {
    const unit_tensors& unit = units_[index];
    if (!unit.is_trained || !driver.has_gradient(unit.share)) return;
    if (m_.updates().measure_of(unit.share) == nullptr) (void)measure_share(ranks, driver, index, workers);
    if (!m_.rehearsing()) measure_.add(ranks, plan_, index);
  }
  template <class Ranks, class Driver, class Executor>
  gradient_measure measure_share(Ranks& ranks, Driver& driver, std::uint32_t index, Executor& workers)
  {
    const unit_tensors& unit = units_[index];
    gradient_measure found;
    driver.read_gradient(unit.share, [&](const std::byte* gradient, auto place) {
      constexpr bool has_bytes = Manager::engine_type::has_bytes;  // else the measure is 0
      found =
          measure_.take(plan_, ranks.rank(), index, unit.gradient_type, has_bytes ? gradient : nullptr, workers, place);
    });
    return found;
  }
  /// If one rank cannot take the step, no rank takes it: that rank throws the reason, and the others throw that ranks
  /// differ. @param settings   as a word
  /// @throws usage_error   on every rank: a rank has invalid options, or ranks have different options, kernels with
  ///   different settings, or different values of weights
  template <class Ranks, class Driver, class Kernel>
  void agree_on_settings(Ranks& ranks, Driver& driver, Kernel& kernel, const optimizer::step_options& options,
                         std::uint64_t settings)
  {
    std::optional<usage_error> wrong;
    try {
      optimizer::detail::check_missed(driver.progress().number, driver.progress().missed.all(),
                                      [this](std::uint32_t which) { return tensors_.name_of(which); });
      driver.check(options);
      driver.prepare(options);
      expect_no_weight_pinned();
    } catch (const usage_error& found) {
      wrong = found;
    }
    const optimizer::step_progress& progress = driver.progress();
    const std::uint64_t word = wrong ? refused : same_in_step(settings, progress) | 1U;
    try {
      measure_.begin(
          ranks, plan_.tensors(), [this](std::uint32_t planned) { return gradients_.is_of_step(planned); }, word,
          [&](bool of_settings, const std::vector<std::uint64_t>& words) {
            of_settings ? refuse(ranks, words, kernel, options, progress) : refuse_gradients(ranks);
          });
    } catch (const usage_error&) {
      if (wrong) throw *wrong;
      throw;
    }
    if (wrong) throw *wrong;
  }
  /// An update of a share would change a pinned weight. @throws usage_error
  void expect_no_weight_pinned()
  {
    for (std::uint32_t index = 0; index < units_.size(); ++index) {
      if (!units_[index].is_trained || m_.state_of(units_[index].whole) != tensor_state::compute) continue;
      error_text text;
      text << "chunkmem: a step while a weight has a pin: it is one of";
      for (std::uint32_t planned = 0; planned < plan_.tensors(); ++planned)
        if (plan_.place(planned).unit == index)
          text << " '" << tensors_.name_of(tensors_.tensor_of_plan(planned)) << '\'';
      throw usage_error{text << " (release the pins of weights before the step)"};
    }
  }
  /// A hash that has to be the same on every rank: the settings of a step, the updates so far and the missed updates of
  /// weights (ranks may have loaded checkpoints of different steps), the micro-batches of the iteration, the values of
  /// weights filled since the last comparison, and all gathers and sums. Computed in every step; allocates nothing.
  [[nodiscard]] std::uint64_t same_in_step(std::uint64_t settings, const optimizer::step_progress& progress) const
  {
    collective::fingerprint all;
    all.add(settings);
    all.add(progress.number);
    for (std::uint32_t tensor = 0; tensor < tensors_.size(); ++tensor) all.add(progress.missed.of(tensor));
    all.add(m_.updates().gradients().micro_batches().expected());
    all.add(filled_.word());
    all.add(runs_.moved.value());
    return all.value();
  }
  /// The words of ranks differ: finds the difference. Every rank calls it. @throws usage_error   on every rank: the
  /// first difference, and the ranks; comm_error
  template <class Ranks, class Kernel>
  [[noreturn]] void refuse(Ranks& ranks, const std::vector<std::uint64_t>& words, Kernel& kernel,
                           const optimizer::step_options& options, const optimizer::step_progress& progress) const
  {
    if (const auto found = std::ranges::find(words, refused); found != words.end())
      throw usage_error{
          error_text{} << "chunkmem: ranks take different steps: rank "
                       << static_cast<std::uint64_t>(found - words.begin())
                       << " cannot take this one, and its error has the reason (fix it there, and call step again on "
                          "every rank)"};
    collective::named_words mine;
    const auto add = [&](std::string_view what, std::uint64_t word) {
      const optimizer::setting it{what, word};
      mine.add(it.name(), it.word(), it.text());
    };
    optimizer::for_each_setting(options, kernel,
                                [&](const optimizer::setting& it) { mine.add(it.name(), it.word(), it.text()); });
    mine.add("updates of this step", waits_ ? 1 : 0, waits_ ? "updates that wait" : "updates at once");
    add("number of updates so far", progress.number);
    for (std::uint32_t tensor = 0; tensor < tensors_.size(); ++tensor)
      if (tensors_[tensor].part == role::parameter)
        add("number of updates that " + tensors_.name_of(tensor) + " missed", progress.missed.of(tensor));
    add("number of micro-batches", m_.updates().gradients().micro_batches().expected());
    for (std::uint32_t planned = 0; planned < plan_.tensors(); ++planned)
      filled_.add_to(mine, planned, tensors_.name_of(tensors_.tensor_of_plan(planned)));
    add("checksum of all gathers and sums so far", runs_.moved.value());
    throw usage_error{mine.difference(
        ranks, {"ranks take different steps", "rank",
                "give all ranks the same settings, calls and values, and load checkpoints of the same step"})};
  }

  /// As above, for the gradients of ranks.
  template <class Ranks>
  [[noreturn]] void refuse_gradients(Ranks& ranks) const
  {
    collective::named_words mine;
    for (std::uint32_t planned = 0; planned < plan_.tensors(); ++planned) {
      const bool is_there = gradients_.is_of_step(planned);
      error_text text;
      text << "a gradient of " << tensors_.name_of(tensors_.tensor_of_plan(planned));
      mine.add(std::to_string(planned), is_there ? 1 : 0,
               std::string{(is_there ? text : text << " is missing").view()});
    }
    throw usage_error{mine.difference(
        ranks,
        {"ranks have gradients of different weights in one step", "rank",
         "compute the gradients of the same weights on every rank: gradient_zero where a rank has nothing to add"})};
  }

  Manager& m_;
  const Plan& plan_;
  gathered_units& units_;
  unit_gradients<Manager>& gradients_;
  const unit_runs& runs_;
  const model_tensors& tensors_;
  first_values& filled_;
  std::uint32_t ahead_;  // units that a step gathers, where they are not kept
  agreed_measure measure_;
  std::optional<step_key> agreed_on_;
  std::optional<std::pair<step_key, gradient_measure>> decided_by_;  // of a step that did not end: not exchanged again
  std::uint32_t measured_ = 0;                                       // units, of these gradients
  bool has_room_ = false;                // units have left the device for the step that did not end
  std::uint32_t passed_ = 0;             // updated shares, of a step that did not end
  std::uint32_t renewed_ = 0;            // units, where ranks update in orders of their own
  std::vector<std::uint8_t> is_passed_;  // by ordinal of the share, where ranks update in orders of their own
  bool is_updating_ = false;
  bool waits_ = false;                       // updates of the present or last step wait
  std::vector<std::uint8_t> has_new_share_;  // by parameter whose update waited: its unit is not gathered yet
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
