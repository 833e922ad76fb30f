// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/checks/check_policy.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/pipeline/find_fault.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/stage_links.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// The arguments of a forward run, and of a recomputation.
///
///     void forward(const forward_run& run) { layer(weights_of(run.step.version), run.input, run.output); }
struct forward_run {
  operation step{};
  std::span<const std::byte> input{};  ///< empty for the first part, which reads the batch
  std::span<std::byte> output{};       ///< empty for the last part, and in a recomputation
};

/// The arguments of a backward run.
///
///     void backward(const backward_run& run) { gradients(run.input, run.output_gradient, run.input_gradient); }
struct backward_run {
  operation step{};
  std::span<const std::byte> input{};            ///< input of the part; empty for the first part
  std::span<const std::byte> output_gradient{};  ///< empty for the last part
  std::span<std::byte> input_gradient{};         ///< to write; empty for the first part
};

/// The arithmetic of one stage, of all its parts.
///
///     struct my_stage {
///       void forward(const forward_run& run);
///       void backward(const backward_run& run);
///       void update(const operation& step);  // makes version step.version of the weights of part step.part
///     };
///
/// The functions compute on the calling thread, or enqueue on one agent. The bytes of a run are valid for that agent.
/// Optional members are for schedules with such steps: `backward_input(const backward_run&)` and `backward_weight(const
/// operation&)`, `recompute(const forward_run&)`, `offload(const operation&)` and `reload(const operation&)`. A
/// backward_weight has no boundaries: the stage keeps its inputs. A run on the calling thread gets received bytes.
/// Where runs are enqueued and a transfer fails, later runs have invalid bytes: these are not sent, and this stage gets
/// a comm_error before its next update.
///
/// `evaluate(const forward_run&)` is for stage_runner::evaluate.
///
/// A training that may end early has `bool ends_before(std::uint32_t batch)`. Where it is true, the steps of that batch
/// and of all later ones are left out. Every stage has to return the same, and none may have begun a step of such a
/// batch: see last_begun_batch.
template <class Stage>
concept pipeline_stage =
    requires(Stage& stage, const forward_run& ahead, const backward_run& back, const operation& step) {
      stage.forward(ahead);
      stage.backward(back);
      stage.update(step);
    };

/// The last batch with a begun step on any stage when all stages have reached their updates of `batch`. Stages that
/// agree in these updates to end early continue to the end of that batch.
///
///     if (agreed_to_end()) end_ = last_begun_batch(plan, step.version - 1);  // in update of the stage's last part
///     bool ends_before(std::uint32_t batch) const { return batch > end_; }
///
/// Cost: a pass over all steps of the schedule.
[[nodiscard]] inline std::uint32_t last_begun_batch(const schedule& plan, std::uint32_t batch) noexcept
{
  std::uint32_t last = batch;
  for (const std::vector<operation>& steps : plan.stages) {
    std::uint32_t begun = 0;
    for (const operation& step : steps) {
      begun = std::max(begun, plan.batch_of(step.micro_batch));
      if (step.kind == operation_kind::update && step.version == batch + 1) last = std::max(last, begun);
    }
  }
  return last;
}

/// Runs one stage of a schedule: calls the stage's arithmetic, sends and receives.
///
/// - Steps run in the order of the list. Receives and sends are asynchronous: each link works on an agent of its own.
///   The agent of the stage's runs (the calling thread, or another one such as `agent::compute`) waits for their bytes.
/// - Boundaries lie in memory of the caller, such as a lease. `boundary_buffers` gives their size and places.
/// - A stage that throws revokes the communicators of its links, so other stages end with a comm_error at once, before
///   their deadline. The communicator of all stages ends with the stage's place. A receive starts early, so the
///   deadline of a link has to be longer than the time in which a micro-batch passes all stages and comes back.
/// - Where runs are enqueued, the calling thread waits before an update for the received bytes, and agents of links
///   call `check` of the communicators. Communicators of NCCL are not checked there: they may send results of a failed
///   receive until the other links have ended.
///
/// Nothing is allocated while the schedule runs. Cost: a call of the communicator for each send and receive.
///
/// Use:
///
///     stage_runner runner{plan, links, memory, buffers, lease.span()};
///     runner.run(my_stage);
///
/// With `checks::full{}` as its last argument it waits for each run, and finds mistakes of a stage with boundaries: an
/// output that is not written whole, an input that changed before its backward run. After its last run a boundary is
/// NaN, so a stage that kept a pointer to it computes NaN.
///
/// @tparam Checks   as for a manager; checks bytes where the calling thread can read them
/// @threads   one caller
template <stream_backend Backend, class Links, class Checks = checks::none>
class stage_runner {
 public:
  /// All arguments but the span outlive this object. @param buffers   of this stage   @param memory   at least
  /// buffers.size() bytes
  /// @param worker   the agent of the stage's enqueued runs; host: they compute on the calling thread
  /// @throws config_error   the schedule has a fault
  /// @throws usage_error    a link is missing, links or buffers of another stage or schedule, or too little memory
  stage_runner(const schedule& plan, Links& links, Backend& backend, const boundary_buffers& buffers,
               std::span<std::byte> memory, agent worker = agent::host, Checks = {})
      : plan_{&plan}, links_{&links}, backend_{&backend}, buffers_{&buffers}, memory_{memory}, worker_{worker}
  {
    check_schedule(plan);
    if (links.stage() >= plan.stage_count() || (links.made_for() != 0 && links.made_for() != identity_of(plan)))
      throw usage_error{error_text{} << "chunkmem: stage " << links.stage() << " cannot run a schedule '" << plan.name
                                     << "' of " << plan.stage_count() << " stages, and its links are those of another"
                                     << " schedule (make the stages and the runner of one schedule)"};
    if (!buffers.are_of(plan, links.stage()))
      throw usage_error{error_text{} << "chunkmem: the boundary_buffers given to stage " << links.stage()
                                     << " are those of another stage or schedule than '" << plan.name
                                     << "' (make them of the schedule and the stage that run)"};
    if (memory.size() < buffers.size().count())
      throw usage_error{error_text{} << "chunkmem: stage " << links.stage() << " has " << memory.size()
                                     << " B for boundaries and needs " << buffers.size().count()
                                     << " B (lease as many: boundary_buffers::size)"};
    for (const stage_pair& pair : pairs_of(plan)) {
      if (pair.first != links.stage() && pair.second != links.stage()) continue;
      if (links.find(pair) == nullptr)
        throw usage_error{error_text{} << "chunkmem: the schedule sends from stage " << pair.first << " to stage "
                                       << pair.second << ", and stage " << links.stage() << " has no such link"};
    }
    arrivals_.resize(std::size_t{2} * plan.part_count() * plan.all_micro_batches());
    const auto count =
        std::ranges::count_if(plan.stages[links.stage()], [](const operation& it) { return sends(it.kind); });
    on_their_way_.resize(std::min<std::size_t>(plan.sends_in_flight, static_cast<std::size_t>(count)));
    if constexpr (looks) watch_.emplace(plan, links.stage());
  }
  stage_runner(const stage_runner&) = delete;

  /// Runs all steps, and returns when all have ended.
  /// @param first_batch   steps of earlier batches are left out, on every stage: they ran before. The stage has version
  ///   `first_batch` of the weights and the kept versions before it, as after a load
  /// @throws comm_error   another stage failed or did not come; and the errors of the stage's arithmetic. The details
  ///   of an error have the step of the stage
  /// @throws usage_error  the schedule has a step without a function of the stage
  template <pipeline_stage Stage>
  void run(Stage& stage, std::uint32_t first_batch = 0)
  {
    for (const operation& step : plan_->stages[links_->stage()]) expect_function<Stage>(step.kind);
    take_steps(
        [&](const operation& step) {
          const std::uint32_t batch = plan_->batch_of(step.micro_batch);
          if constexpr (requires { stage.ends_before(batch); })
            return batch >= first_batch && !stage.ends_before(batch);
          else
            return batch >= first_batch;
        },
        [&](const operation& step) { take(stage, step); });
  }

  /// Runs only the forward runs of one batch of the schedule, as `stage.evaluate(const forward_run&)`, and returns when
  /// all have ended. No backward run and no update follow, and no gradient is sent. Every stage calls this between the
  /// same two calls of `run`. `run.step.version` has no meaning: the stage uses its newest weights.
  ///
  ///     runner.run(stage, done);       // until stage.ends_before
  ///     runner.evaluate(stage);        // micro-batches 0 to micro_batches - 1, in order
  /// @throws comm_error   another stage failed or did not come; and what the stage's arithmetic throws
  template <class Stage>
    requires requires(Stage& stage, const forward_run& ahead) { stage.evaluate(ahead); }
  void evaluate(Stage& stage)
  {
    take_steps(
        [&](const operation& step) {
          return plan_->batch_of(step.micro_batch) == 0 &&
                 (step.kind == forward || step.kind == send_activation || step.kind == receive_activation);
        },
        [&](const operation& step) {
          if (step.kind != forward) return step.kind == send_activation ? send_output(step) : receive_input(step);
          await_input(step);
          run_forward(step, [&](const forward_run& run) { stage.evaluate(run); });
          if constexpr (looks) watch_->end(input_of(step));
        });
  }

 private:
  static constexpr bool looks = Checks::is_on && Backend::host_addressable;
  using enum operation_kind;
  using communicator_type = typename Links::communicator_type;
  /// Waits for the agents of links end by their own deadline.
  static constexpr bool ends_waits =
      !requires(communicator_type& ends, Backend& backend, event its_end) { ends.await(backend, its_end); };
  template <class Stage>
  static constexpr bool divides = requires(Stage& stage, const backward_run& run, const operation& step) {
    stage.backward_input(run);
    stage.backward_weight(step);
  };
  template <class Stage>
  static constexpr bool runs_again = requires(Stage& stage, const forward_run& run) { stage.recompute(run); };
  template <class Stage>
  static constexpr bool moves = requires(Stage& stage, const operation& step) {
    stage.offload(step);
    stage.reload(step);
  };

  /// @param is_due   `is_due(step)`; other steps are left out
  template <class IsDue, class Take>
  void take_steps(IsDue is_due, Take take_it)
  {
    const operation* now = nullptr;
    try {
      for (const operation& step : plan_->stages[links_->stage()]) {
        now = &step;
        if (!is_due(step)) {
          if (sends(step.kind)) (void)next_send();  // buffers are reused in the order of all sends
          continue;
        }
        links_->check();
        take_it(step);
      }
      now = nullptr;
      finish();
    } catch (error& failed) {
      give_up();
      tell_step(failed, now);
      throw;
    } catch (...) {
      give_up();
      throw;
    }
  }

  template <class Stage>
  static void expect_function(operation_kind kind)
  {
    const bool is_there = (divides<Stage> || (kind != backward_input && kind != backward_weight)) &&
                          (runs_again<Stage> || kind != recompute) &&
                          (moves<Stage> || (kind != offload && kind != reload));
    if (!is_there)
      throw usage_error{error_text{} << "chunkmem: the schedule has a step " << name_of(kind)
                                     << ", and the stage has no such function (give the stage all functions that "
                                        "pipeline_stage names for it, or use a schedule without such steps)"};
  }

  template <class Stage>
  void take(Stage& stage, const operation& step)
  {
    switch (step.kind) {
      case forward:
        await_input(step);
        run_forward(step, [&](const forward_run& run) { stage.forward(run); });
        break;
      case recompute:
        if constexpr (runs_again<Stage>) run_forward_again(step, [&](const forward_run& run) { stage.recompute(run); });
        break;
      case backward:
        await_gradient(step);
        run_backward(step, [&](const backward_run& run) { stage.backward(run); });
        break;
      case backward_input:
        await_gradient(step);
        if constexpr (divides<Stage>) run_backward(step, [&](const backward_run& run) { stage.backward_input(run); });
        break;
      case backward_weight:
        if constexpr (divides<Stage>) stage.backward_weight(step);
        break;
      case send_activation: send_output(step); break;
      case send_gradient: send(step, step.part - 1, boundary_kind::input_gradient); break;
      case receive_activation: receive_input(step); break;
      case receive_gradient: receive(step, step.part + 1, boundary_kind::output_gradient); break;
      case offload:
        if constexpr (moves<Stage>) stage.offload(step);
        break;
      case reload:
        if constexpr (moves<Stage>) stage.reload(step);
        break;
      case update:
        expect_received();
        stage.update(step);
        break;
    }
  }

  // --- Runs, with checks where they are on ---

  template <class Work>
  void run_forward(const operation& step, Work work)
  {
    const forward_run run{step, input_of(step), output_of(step)};
    if constexpr (looks) {
      wait_for_runs();
      watch_->begin_input(step, run.input);
      watch_->begin_output(run.output);
    }
    work(run);
    if constexpr (looks) {
      wait_for_runs();
      watch_->expect_input(step, run.input);
      watch_->expect_written(step, "output", run.output);
    }
  }
  template <class Work>
  void run_forward_again(const operation& step, Work work)
  {
    const forward_run run{step, input_of(step), {}};
    if constexpr (looks) {
      wait_for_runs();
      watch_->expect_input(step, run.input);
    }
    work(run);
  }
  template <class Work>
  void run_backward(const operation& step, Work work)
  {
    const backward_run run = backward_of(step);
    if constexpr (looks) {
      wait_for_runs();
      watch_->expect_input(step, run.input);
      watch_->begin_output(run.input_gradient);
    }
    work(run);
    if constexpr (looks) {
      wait_for_runs();
      watch_->expect_input(step, run.input);
      watch_->expect_written(step, "input_gradient", run.input_gradient);
      watch_->end(buffer(boundary_kind::input, step.part, step.micro_batch));
      watch_->end(buffer(boundary_kind::output_gradient, step.part, step.micro_batch));
    }
  }
  /// Waits until all runs so far are over and their inputs have arrived.
  void wait_for_runs()
  {
    backend_->wait(agent::host, backend_->record(worker_));
    links_->check();
  }

  // --- Bytes of runs ---

  [[nodiscard]] std::span<std::byte> buffer(boundary_kind kind, std::uint32_t part, std::uint32_t micro_batch) const
  {
    if (!buffers_->has(kind, part, micro_batch)) return {};
    const bool is_before = kind == boundary_kind::input || kind == boundary_kind::input_gradient;
    return memory_.subspan(buffers_->place_of(kind, part, micro_batch),
                           buffers_->input_of(is_before ? part : part + 1).count());
  }
  [[nodiscard]] std::span<std::byte> input_of(const operation& step) const
  {
    return buffer(boundary_kind::input, step.part, step.micro_batch);
  }
  [[nodiscard]] std::span<std::byte> output_of(const operation& step) const
  {
    if (step.part + 1 == plan_->part_count()) return {};
    return plan_->crosses_after(step.part) ? buffer(boundary_kind::output, step.part, step.micro_batch)
                                           : buffer(boundary_kind::input, step.part + 1, step.micro_batch);
  }
  [[nodiscard]] backward_run backward_of(const operation& step) const
  {
    backward_run run{step, input_of(step), buffer(boundary_kind::output_gradient, step.part, step.micro_batch), {}};
    if (step.part > 0)
      run.input_gradient = plan_->crosses_after(step.part - 1)
                               ? buffer(boundary_kind::input_gradient, step.part, step.micro_batch)
                               : buffer(boundary_kind::output_gradient, step.part - 1, step.micro_batch);
    return run;
  }

  // --- Transfers ---

  /// The arrival of a boundary in one direction, for the receiving stage.
  [[nodiscard]] event& arrival(bool is_gradient, const operation& step)
  {
    return arrivals_[(is_gradient ? arrivals_.size() / 2 : 0) + plan_->cell_of(step)];
  }
  void await_input(const operation& step)
  {
    if (plan_->crosses_before(step.part)) follow(arrival(false, step));
    links_->check();
  }
  void await_gradient(const operation& step)
  {
    if (plan_->crosses_after(step.part)) follow(arrival(true, step));
    links_->check();
  }
  /// The stage's agent waits for a transfer; the calling thread by the deadline of the link.
  void follow(event its_end)
  {
    if (worker_ == agent::host)
      bound(its_end);
    else
      followed_[static_cast<std::size_t>(its_end.source)] = its_end;
    backend_->wait(worker_, its_end);
  }
  /// Waits until all inputs of the runs so far have arrived, so that an update after them is valid.
  void expect_received()
  {
    for (const event& its_end : followed_) {
      bound(its_end);
      backend_->wait(agent::host, its_end);
    }
    links_->check();
  }
  /// Before the calling thread waits: sets the deadline for links without a deadline of their own.
  void bound(event its_end)
  {
    for (const auto& it : links_->all())
      if constexpr (!ends_waits)
        if (it.stream == its_end.source) it.ends->await(*backend_, its_end);
  }

  /// The place of a send among those in flight. Where too many are in flight, waits for the oldest: later runs reuse
  /// its buffer.
  [[nodiscard]] event& next_send()
  {
    event& oldest = on_their_way_[sent_++ % on_their_way_.size()];
    follow(oldest);
    oldest = event{};
    return oldest;
  }
  /// The bytes leave after all runs so far.
  void send(const operation& step, std::uint32_t to_part, boundary_kind kind)
  {
    event& its_end = next_send();
    const auto& out = *links_->find({links_->stage(), plan_->owners[to_part]});
    const std::span<std::byte> place = buffer(kind, step.part, step.micro_batch);
    backend_->wait(out.stream, backend_->record(worker_));
    if constexpr (ends_waits)
      if (worker_ != agent::host)  // inputs of the runs may have failed to arrive: then no result is sent
        backend_->launch(out.stream, [links = links_, ends = out.ends]() noexcept {
          if (links->has_failed()) ends->revoke();
        });
    out.ends->send(*backend_, out.stream, place.data(), bytes{place.size()}, rank_id{1}, label_of(to_part, step));
    its_end = backend_->record(out.stream);
  }
  void send_output(const operation& step) { send(step, step.part + 1, boundary_kind::output); }
  void receive_input(const operation& step) { receive(step, step.part - 1, boundary_kind::input); }
  /// Receives into a buffer that earlier runs may still use.
  void receive(const operation& step, std::uint32_t from_part, boundary_kind kind)
  {
    const auto& in = *links_->find({plan_->owners[from_part], links_->stage()});
    const std::span<std::byte> place = buffer(kind, step.part, step.micro_batch);
    backend_->wait(in.stream, backend_->record(worker_));
    in.ends->receive(*backend_, in.stream, place.data(), bytes{place.size()}, rank_id{0}, label_of(step.part, step));
    arrival(step.kind == receive_gradient, step) = backend_->record(in.stream);
  }
  /// A label of the bytes, which the communicator compares on both ends.
  [[nodiscard]] std::uint32_t label_of(std::uint32_t receiving_part, const operation& step) const noexcept
  {
    return receiving_part * plan_->all_micro_batches() + step.micro_batch;
  }

  void finish()
  {
    for (const auto& it : links_->all()) {
      if constexpr (requires { it.ends->finish(*backend_, it.stream); }) it.ends->finish(*backend_, it.stream);
      backend_->wait(agent::host, backend_->record(it.stream));
    }
    backend_->wait(agent::host, backend_->record(worker_));
    links_->check();
  }
  /// Revokes the links, and waits until no work uses the boundaries.
  void give_up() noexcept
  {
    links_->revoke();
    for (const auto& it : links_->all()) wait_for(it.stream);
    wait_for(worker_);
  }
  /// Adds the step of the stage to the details of an error.
  void tell_step(error& failed, const operation* now) const noexcept
  {
    error_text line;
    line << "stage " << links_->stage() << " of " << plan_->stage_count() << " was at ";
    if (now == nullptr)
      line << "the end of its steps";
    else
      line << name_of(now->kind) << " of part " << now->part << ", micro-batch " << now->micro_batch << ", version "
           << now->version;
    try {
      failed.append_details(line.view());
    } catch (const std::bad_alloc&) {  // the error itself names the cause
    }
  }
  void wait_for(agent stream) noexcept
  {
    try {
      backend_->wait(agent::host, backend_->record(stream));
    } catch (...) {  // the device is lost, and its work with it
    }
  }

  const schedule* plan_;
  Links* links_;
  Backend* backend_;
  const boundary_buffers* buffers_;
  std::span<std::byte> memory_;
  agent worker_;
  std::vector<event> arrivals_;               // by direction, part and micro-batch
  std::vector<event> on_their_way_;           // the last sends, in a ring
  std::array<event, max_agents> followed_{};  // by agent of a link: the last transfer that runs follow
  std::size_t sent_ = 0;
  std::optional<boundary_watch> watch_;  // with checks
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
