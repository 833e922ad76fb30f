#pragma once

#include <chunkmem/backend/graph_backend.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/manager/owner_link.hpp>
#include <chunkmem/manager/report.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace chunkmem::inline v0 {

/// The plan of one record, as it was when somebody relied on it.
struct plan_mark {
  std::size_t record = 0;
  std::uint64_t made = 0;  ///< plans made for this record by then; 0: none
};

/// A step of a trainer as one graph of the device: the manager's copies and the trainer's kernels, in their order.
///
/// `replay()` does it again without running the trainer's code: for the price of one launch and O(frames) on the calling
/// thread. It is the same step with the same addresses, so what differs from step to step (a batch, a learning rate) must be
/// read by the kernels from device memory that is not the manager's. Between replays nothing of the manager may be used, or
/// an ordinary step has to come first: `can_replay()` tells. Move-only; may not be used after its manager.
/// Source: stream capture of CUDA graphs.
/// @threads one caller per manager
template <class Engine, graph_backend Backend>
class captured_step {
 public:
  using graph_type = typename Backend::graph_type;

  captured_step(owner_link<Engine>& link, graph_type graph, const plan_mark& plan, const report& moved)
      : link_{&link}, graph_{std::move(graph)}, plan_{plan}, moved_{moved}
  {
    ++link_->holders;
  }
  captured_step(captured_step&& other) noexcept
      : link_{std::exchange(other.link_, nullptr)}, graph_{std::move(other.graph_)}, plan_{other.plan_}, moved_{other.moved_}
  {
  }
  captured_step& operator=(captured_step&&) = delete;
  ~captured_step()
  {
    if (link_ != nullptr && --link_->holders == 0 && link_->engine == nullptr) delete link_;
  }

  /// Everything lies where the captured step found it. O(1) after a replay or a step; else O(chunks).
  [[nodiscard]] bool can_replay() const noexcept
  {
    return link_ != nullptr && link_->engine != nullptr && link_->engine->starts_here(plan_);
  }

  /// Does the step again; returns when it is enqueued.
  /// @throws usage_error    something moved since: run the step as usual, which brings everything back where it can
  /// @throws device_error   the device is lost, or the graph could not be started, which ends the manager
  void replay()
  {
    expects(link_ != nullptr && link_->engine != nullptr, "a captured step was replayed after its manager or after it was moved from");
    link_->engine->expect_alive();
    expects(can_replay(), "a captured step was replayed from another start than its own: run the step as usual before");
    link_->engine->replay(graph_, moved_);
  }

 private:
  owner_link<Engine>* link_;
  graph_type graph_;
  plan_mark plan_;
  report moved_;  // by one step: of these only what is counted in copies
};

/// Runs `step` once, its work written down as a graph and then done through it.
///
/// @param link   of a manager whose last iteration can be repeated from where everything lies
/// @throws as `step`: what was written down by then is done, and the iteration has ended as after any exception
template <class Engine, graph_backend Backend, class Step>
[[nodiscard]] captured_step<Engine, Backend> capture_step(owner_link<Engine>& link, Backend& backend, Step&& step)
{
  Engine& engine = *link.engine;
  engine.expect_alive();
  expects(!engine.is_inside(), "a step was to be captured inside an iteration: capture begins and ends outside");
  const plan_mark plan = engine.closed_plan();
  expects(plan.made != 0 && engine.starts_here(plan),
          "a step was to be captured that does not repeat yet: run it until its plan ends where it begins (drifted() is false)");
  const report before = engine.snapshot();
  engine.health().starting([&] { backend.begin_capture(); });
  try {
    std::forward<Step>(step)();
  } catch (...) {
    engine.health().ordering([&] {
      auto part = backend.end_capture();
      backend.launch(part);
    });
    throw;
  }
  auto graph = engine.health().ordering([&] {
    auto whole = backend.end_capture();
    backend.launch(whole);
    return whole;
  });
  expects(!engine.is_inside() && engine.snapshot().iterations == before.iterations + 1 && engine.starts_here(plan),
          "the captured step was not the recorded one: its work was done, but it cannot be replayed");
  return {link, std::move(graph), plan, engine.snapshot().copies_since(before)};
}

}  // namespace chunkmem::inline v0
