// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../interruption.hpp"
#include "../progress_line.hpp"
#include "activations.hpp"
#include "checkpoints.hpp"
#include "display.hpp"
#include "followed_training.hpp"
#include "foresight.hpp"
#include "metrics.hpp"
#include "parameters.hpp"
#include "progress.hpp"
#include "settings.hpp"
#include "update_times.hpp"

#include <chunkmem/activation/ratio_search.hpp>
#include <chunkmem/activation/sampling_report.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/configurator/model_profile.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace gpt {

/// The settings of one training, ready to run any number of times with the same result.
struct training_setup {
  const options& chosen;
  const training_text& text;
  chunkmem::optimizer::thread_pool& workers;
  chunkmem::bytes chunk;
  chunkmem::activation::activation_plan plan{};  ///< of activations; without steps: the trainer's default order
  std::size_t owners = 1;                        ///< ranks that divide the states of a model
  bool is_followed = false;                      ///< its first steps are simulated and compared, see foresight
  const clock_rates* rates = nullptr;            ///< of a training on virtual clocks

  /// Bytes that a step leases on the host.
  [[nodiscard]] chunkmem::bytes host_leases() const
  {
    const trainer_settings how = settings();
    return how.when == update_time::early ? undo_bytes(chosen.size.parameters() / owners, how.precision)
                                          : chunkmem::bytes{};
  }

  /// The same with the trainer's default order of layers and time of updates, whatever the command line says.
  [[nodiscard]] training_setup without_plan() const
  {
    training_setup plain = *this;
    plain.plan = {};
    plain.is_followed = false;
    return plain;
  }
  [[nodiscard]] trainer_settings settings() const
  {
    return {.schedule = {chosen.learning_rate, chosen.steps},
            .seed = chosen.seed,
            .precision = chosen.precision,
            .clip = clip_of(chosen),
            .owners = owners,
            .activations = plan.steps.empty() ? activation_mode::swap : chosen.activations,
            .plan = plan,
            .windows = chosen.windows,
            .runs_qkv_again = chosen.runs_qkv_again,
            .sample_ratio = chosen.sample_ratio,
            .sample_ratios = chosen.sample_ratios,
            .measures_noise = chosen.noise > 0,
            .update = chosen.update,
            .when = plan.steps.empty() ? update_time::at_once : chosen.when};
  }
};

/// The closing table's numbers.
template <class Trainer>
[[nodiscard]] memory_figures figures_of(const chunkmem::report& report, const Trainer& trainer)
{
  using enum chunkmem::tier;
  memory_figures out;
  out.device_peak = report.peak[device];
  out.device_capacity = report.capacity[device];
  out.host_peak = report.peak[host];
  out.host_capacity = report.capacity[host];
  out.loaded = report.loaded;
  out.written_back = report.written_back;
  out.loads = report.loads;
  out.evictions = report.evictions;
  out.divergences = report.divergences;
  out.replans = report.replans;
  out.stalls = report.stalls;
  out.skipped = trainer.skipped();
  if constexpr (requires { trainer.updates_apart(); }) out.updates_apart = trainer.updates_apart();
  if constexpr (requires { trainer.measured(); }) out.measured = trainer.measured();
  out.loss_scale = trainer.loss_scale();
  return out;
}

/// The figures of a step. The manager and the trainer provide copies and the norm.
/// @param before   the report before it   @param known   the other figures
template <class Trainer>
[[nodiscard]] step_figures step_of(const options& chosen, const Trainer& trainer, const chunkmem::report& before,
                                   const chunkmem::report& after, step_figures known)
{
  known.steps = chosen.steps;
  known.loaded = after.loaded - before.loaded;
  known.written_back = after.written_back - before.written_back;
  known.device_peak = after.peak[chunkmem::tier::device];
  if constexpr (requires { trainer.norm(); })
    if (chosen.clip > 0 || asks_norm(chosen)) known.norm = trainer.norm();
  return known;
}

/// The progress of the second training of --verify, which prints nothing else.
class verify_progress {
 public:
  /// @param begun   steps that were completed before
  verify_progress(bool is_second, std::size_t begun) : begun_{begun}
  {
    if (is_second) line_.emplace("verify");
  }
  void tell(std::size_t done, std::size_t of)
  {
    if (line_) line_->tell(done, of, begun_);
  }

 private:
  std::size_t begun_;
  std::optional<command_line::progress_line> line_;
};

/// The memory that one step of a trainer needs. The call allocates nothing and computes nothing.
/// @param known   see basic_manager::rehearse
template <class Manager, class Trainer>
[[nodiscard]] chunkmem::memory_requirement rehearse_step(Manager& manager, Trainer& trainer,
                                                         const chunkmem::memory_requirement* known = nullptr)
{
  const auto work = [&] {
    (void)trainer.step(0);
    if constexpr (requires { trainer.keeps_less(); })
      if (trainer.keeps_less()) (void)trainer.evaluate();
  };
  if constexpr (requires { trainer.rehearse(work); })
    return trainer.rehearse(work, known);
  else
    return manager.rehearse(work);
}

/// Prints how long a manager took to allocate its memory, where that takes long: on a device, whose host tier is
/// pinned.
template <class Backend>
class memory_watch {
 public:
  /// @param show   null prints nothing
  explicit memory_watch(const display* show) noexcept : show_{show} {}

  /// Called when the memory is allocated.
  void operator()() const
  {
    if constexpr (!Backend::host_addressable) {
      if (show_ != nullptr) show_->memory_made(std::chrono::duration<double>(clock::now() - begin_).count());
    }
  }

 private:
  using clock = std::chrono::steady_clock;
  const display* show_;
  clock::time_point begin_ = clock::now();
};

/// The backend of a training.
template <class Training>
[[nodiscard]] typename Training::backend_type memory_of(const training_setup& setup, chunkmem::bytes device,
                                                        chunkmem::bytes host)
{
  if constexpr (Training::foresees)
    return Training::memory(setup, device, host);
  else
    return typename Training::backend_type{{.device_capacity = device, .host_capacity = host}};
}

/// The bytes of the device that a plan may give to activations: those that no other part of a step needs.
/// @param start   its need is that of a step by `plan`
[[nodiscard]] inline chunkmem::bytes room_for_activations(const training_start& start,
                                                          const chunkmem::activation::activation_plan& plan)
{
  return start.device - std::min(start.device, start.need.smallest_device) + plan.costs.device_peak;
}

/// `type` follows the first steps of a training that has forecasts, and is empty for other trainings.
template <class Training>
struct followed_by {
  struct type {};
};
template <class Training>
  requires Training::foresees
struct followed_by<Training> {
  using type = std::optional<followed_training<typename Training::manager_type, typename Training::trainer_type>>;
};

/// One manager with the model in it, and the trainer that works on it: the base of session and rank_session.
///
/// @tparam Training   the types of a training, see training_on_host: `manager_type`, `backend_type`, `model_type` and
///   `trainer_type`; `declare`; `foresees`: its steps can be run on virtual clocks
template <class Training>
class any_session {
 public:
  using manager_type = typename Training::manager_type;

  any_session(const any_session&) = delete;  // the manager has the addresses of its states

  /// The need of one step. Nothing is allocated or computed, and ranks do not communicate.
  [[nodiscard]] auto rehearse()
  {
    start_.need = rehearse_step(manager_, trainer_);
    return start_.need;
  }
  /// The first steps, see followed_training. Null where they were not followed.
  [[nodiscard]] const auto* followed() const noexcept
    requires(Training::foresees)
  {
    return followed_ ? &*followed_ : nullptr;
  }
  /// The first steps of a training on virtual clocks.
  [[nodiscard]] foreseen_steps foresee(const chunkmem::activation::activation_plan& later, const training_start& start)
  {
    return foreseen_by(manager_, trainer_, net_, setup_, later, start);
  }
  [[nodiscard]] memory_figures figures() const { return figures_of(manager_.report(), trainer_); }
  [[nodiscard]] std::string report_json() const { return manager_.report().json(); }

 protected:
  /// @param how   settings of this rank   @param make_memory   `make_memory()`: the backend
  /// @param make_manager   `make_manager(memory)`: a manager on that backend
  template <class MakeMemory, class MakeManager>
  any_session(const training_setup& setup, const trainer_settings& how, chunkmem::bytes device, chunkmem::bytes host,
              MakeMemory make_memory, MakeManager make_manager)
      : setup_{setup},
        ranks_of_all_{how.ranks},
        start_{device, host},
        memory_(make_memory()),
        manager_(make_manager(memory_)),
        net_{Training::declare(manager_, setup.chosen.size, setup.chosen.precision)},
        trainer_{manager_, net_, setup.text, how, setup.workers},
        progress_{setup.chosen, how.ranks}
  {
    progress_.name_states(manager_);
  }

  void begin_step()
  {
    if constexpr (Training::foresees)
      if (followed_) followed_->begin_step();
  }
  void end_step()
  {
    if constexpr (Training::foresees)
      if (followed_)
        followed_->end_step({.is_resumed = is_resumed_ || setup_.chosen.init.has_value(), .was_saved = was_saved_});
  }

  /// Takes the remaining steps. Evaluates the held-out text before them, and after the last step of the training.
  /// @param show   null trains silently   @param saves   null saves nothing
  /// @param is_second   the training of --verify, which prints its progress
  /// @param mean   `mean(loss)`: over all ranks
  /// @param after_step   `after_step()`: the signal that ends the training, or 0
  template <class Mean, class AfterStep>
  void take_steps(const display* show, checkpoints<files_of_model>* saves, bool is_second, Mean mean,
                  AfterStep after_step)
  {
    const float before = mean(trainer_.evaluate());
    if (progress_.step() == 0) progress_.begin(before);
    if (show != nullptr) show->note("held-out", before);
    if (show != nullptr && setup_.chosen.metrics) metrics_.emplace(*setup_.chosen.metrics, progress_.step());
    verify_progress again{is_second, progress_.step()};
    int signal = 0;  // a signal before the first step ends the training after that step
    while (progress_.step() < setup_.chosen.steps && signal == 0) {
      progress_.step_is_done(one_step(progress_.step(), show, mean));
      again.tell(progress_.step(), setup_.chosen.steps);
      signal = after_step();
      const std::string saved =
          saves == nullptr ? std::string{} : saves->save_after(progress_.step(), manager_, signal != 0);
      was_saved_ = was_saved_ || !saved.empty();
      if (show != nullptr && !saved.empty()) show->line(saved);
    }
    if (metrics_) metrics_->finish();
    if (progress_.step() == setup_.chosen.steps) {
      progress_.end(mean(trainer_.evaluate()));
      if (show != nullptr) show->note("held-out", progress_.losses().back());
    }
  }

  training_setup setup_;
  std::size_t ranks_of_all_;
  training_start start_;
  bool is_resumed_ = false;
  bool was_saved_ = false;
  typename Training::backend_type memory_;
  manager_type manager_;
  typename Training::model_type net_;
  typename Training::trainer_type trainer_;
  progress progress_;
  std::optional<metrics_file> metrics_;
  typename followed_by<Training>::type followed_;

 private:
  template <class Mean>
  [[nodiscard]] float one_step(std::size_t number, const display* show, Mean mean)
  {
    using clock = std::chrono::steady_clock;
    const chunkmem::report before = manager_.report();
    const std::size_t skipped = trainer_.skipped();
    begin_step();
    const auto begin = clock::now();
    const float loss = mean(trainer_.step(number));
    const double seconds = std::chrono::duration<double>(clock::now() - begin).count();
    if (show != nullptr) {
      const auto tokens = static_cast<double>(setup_.chosen.size.tokens_per_step() * ranks_of_all_);
      const step_figures figures = step_of(setup_.chosen, trainer_, before, manager_.report(),
                                           {.number = number + 1,
                                            .loss = loss,
                                            .learning_rate = trainer_.learning_rate(number),
                                            .tokens_per_second = tokens / seconds,
                                            .skipped = trainer_.skipped() > skipped,
                                            .seconds = seconds});
      show->step(figures);
      if (metrics_) metrics_->add(figures);
    }
    end_step();
    return loss;
  }
};

/// The session of one rank.
///
/// @tparam Training   as for any_session, with `plan` and `sample`; `exports`, and `write_export` if so;
///   `places_states`: whether its manager has a placement to be chosen; `memory` makes its backend if it `foresees`
template <class Training>
class session : public any_session<Training> {
 public:
  /// Its trainer can keep some rows of inputs.
  static constexpr bool samples = requires(typename Training::trainer_type& it) { it.samples(); };

  template <class... Policies>
  session(const training_setup& setup, chunkmem::bytes device, chunkmem::bytes host, Policies... policies)
      : session::any_session{
            setup,
            setup.settings(),
            device,
            host,
            [&] { return memory_of<Training>(setup, device, host); },
            [&](auto& memory) {
              return typename Training::manager_type{memory, {.chunk_bytes = setup.chunk}, policies...};
            }}
  {
  }

  /// The bytes of all tensors in whole chunks.
  [[nodiscard]] chunkmem::bytes chunks() { return manager_.seal().chunks; }

  /// Writes the first weights and the inputs of all steps to a file. @pre filled, not trained
  void write_export(std::ostream& out) const { Training::write_export(out, trainer_, setup_.chosen.steps); }

  /// Makes the memory and gives the weights their first values. @param show   null does so silently
  void fill(const display* show = nullptr)
  {
    gpt::fill(manager_, net_, setup_.chosen.seed, setup_.workers, memory_watch<typename Training::backend_type>{show});
    if constexpr (Training::exports) {
      const std::string found = import_weights(manager_, setup_.chosen);
      if (show != nullptr && !found.empty()) show->line(found);
    }
  }

  /// Writes the weights where the command line says so. @return   a sentence, or nothing
  [[nodiscard]] std::string save_weights()
  {
    if constexpr (Training::exports) return gpt::save_weights(manager_, setup_.chosen);
    return {};
  }

  /// Resumes a saved training, if the command line says so. @return   a sentence, or nothing
  [[nodiscard]] std::string resume(const checkpoints<files_of_model>& from)
  {
    std::string found = from.resume(manager_);
    progress_.check();
    if constexpr (samples)
      if (trainer_.samples() != nullptr) trainer_.samples()->check_ratios();
    return found;
  }

  /// The inputs with sampled rows. Null: all rows are kept.
  [[nodiscard]] auto* sampled_inputs() noexcept
    requires samples
  {
    return trainer_.samples();
  }
  /// Gives the rows of some steps to a search of ratios. Their updates of the model stay. @pre filled
  void measure(chunkmem::activation::ratio_search& search, std::size_t steps)
    requires samples
  {
    trainer_.samples()->search_with(&search);
    for (std::size_t number = 0; number < steps; ++number) (void)trainer_.step(number);
    trainer_.samples()->search_with(nullptr);
  }

  /// A profile of some steps, with a part for each layer. @pre filled, not trained
  [[nodiscard]] chunkmem::configurator::model_profile profile(std::size_t steps)
    requires(Training::foresees)
  {
    const extents& size = setup_.chosen.size;
    typename std::remove_reference_t<decltype(trainer_.meter())>::profile_type meter{manager_, size.layers};
    trainer_.meter().profile(&meter);
    for (std::size_t number = 0; number < steps; ++number) {
      (void)trainer_.step(number);
      meter.end_iteration();
    }
    trainer_.meter().profile(nullptr);
    std::vector<chunkmem::configurator::profiled_part> layers(size.layers);
    for (std::size_t layer = 0; layer < size.layers; ++layer)
      layers[layer] = {.name = "layer " + std::to_string(layer), .all_reduces = 2};
    return meter.profile({.name = "gpt", .kind = setup_.chosen.kind, .rows = size.batch}, std::move(layers));
  }

  /// @param show   null trains silently
  /// @param saves  null saves nothing
  [[nodiscard]] training_result train(const display* show, checkpoints<files_of_model>* saves)
  {
    if constexpr (Training::foresees) {
      if (setup_.is_followed) {
        is_resumed_ = progress_.step() > 0;
        followed_.emplace(manager_, trainer_, net_, foresight_of(), show);
        followed_->measure_links();
      }
    }
    const auto after_step = [&] {
      tell_noise(progress_.step(), show);
      return command_line::interruption::signal();
    };
    this->take_steps(
        show, saves, show == nullptr, [](float loss) { return loss; }, after_step);
    return progress_.result(trainer_.parameter_hash(), command_line::interruption::signal());
  }

  [[nodiscard]] std::string sample(std::string_view prompt)
  {
    return Training::sample(trainer_, prompt, setup_.chosen.sample, setup_.chosen.seed);
  }

  /// The tables of noise that were shown, as a JSON array: `step`, the number of `steps` before it, and `inputs`.
  [[nodiscard]] std::string noise_json() const { return "[" + noise_tables_ + "]"; }
  /// The place of every chunk.
  [[nodiscard]] auto places() const { return manager_.residency(); }

 private:
  using base = any_session<Training>;
  using base::setup_, base::start_, base::is_resumed_, base::manager_, base::net_, base::trainer_, base::progress_,
      base::followed_;

  /// Prints the noise since the last table, where a table is due.
  void tell_noise(std::size_t step, const display* show)
  {
    const std::size_t every = setup_.chosen.noise;
    if (show == nullptr || every == 0 || step % every != 0) return;
    if constexpr (samples) {
      const chunkmem::activation::sampling_report now = trainer_.samples()->report();
      const chunkmem::activation::sampling_report since = now.since(noise_before_);
      show->noise(step, since);
      if (!noise_tables_.empty()) noise_tables_ += ",\n";
      noise_tables_ += "{\"step\": " + std::to_string(step) + ", \"inputs\": " + since.json() + "}";
      noise_before_ = now;
    }
  }
  /// The forecast of this training, which runs on one rank.
  [[nodiscard]] foresight foresight_of()
  {
    const auto look = [this](const chunkmem::activation::activation_plan& later, const clock_rates& rates) {
      return gpt::foresee(setup_, later, start_, rates);
    };
    return {setup_.chosen,
            setup_.plan,
            room_for_activations(start_, setup_.plan),
            setup_.chosen.size.parameters(),
            look,
            [](std::span<double>) {}};
  }

  chunkmem::activation::sampling_report noise_before_;
  std::string noise_tables_;
};

/// A session with the policies of the command line, and with further policies.
template <class Training, class... Others>
[[nodiscard]] session<Training> session_as_chosen(const training_setup& setup, chunkmem::bytes device,
                                                  chunkmem::bytes host, Others... others)
{
  const options& chosen = setup.chosen;
  if constexpr (Training::places_states) {
    return session<Training>{setup,           device,           host,     chosen.eviction, chosen.layout,
                             chosen.transfer, chosen.placement, others...};
  } else {
    return session<Training>{setup, device, host, chosen.eviction, chosen.layout, chosen.transfer, others...};
  }
}

}  // namespace gpt
