// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/graph_backend.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/expects.hpp>
#include <chunkmem/manager/chunk_table.hpp>
#include <chunkmem/manager/owner_link.hpp>
#include <chunkmem/manager/report.hpp>

#include <cstdint>
#include <utility>

namespace chunkmem::inline v0 {

/// A step of a trainer as one graph of the device: the manager's copies and the trainer's kernels, in their order.
///
/// `replay()` does it again without running the trainer's code, for the price of one launch. It is the same step at the
/// same addresses: what differs from step to step (a batch, a learning rate) is read by the kernels from device memory
/// that is not the manager's. Where the step's plan ends as it begins, nothing is added; elsewhere the device is
/// cleared at its end, which costs the way back of what had stayed. Anything may be done with the manager between
/// replays: where it moved things so that they cannot be brought back, an ordinary step has to come first. Move-only;
/// dead after its manager. Source: stream capture of CUDA graphs. Cost of a replay: O(chunks + frames) on the calling
/// thread.
/// @threads one caller per manager
template <class Engine, graph_backend Backend>
class captured_step {
 public:
  using graph_type = typename Backend::graph_type;

  /// What makes a graph good again.
  struct circumstances {
    chunk_table start;              ///< where everything lay, and lies again when it is done
    std::uint64_t arrangement = 0;  ///< which slots lie where in their chunks
    bool clears = false;            ///< it starts from a cleared device, and clears it again
  };

  captured_step(owner_link<Engine>& link, graph_type graph, circumstances around, const report& moved)
      : link_{&link}, graph_{std::move(graph)}, around_{std::move(around)}, moved_{moved}
  {
    ++link_->holders;
  }
  captured_step(captured_step&& other) noexcept
      : link_{std::exchange(other.link_, nullptr)},
        graph_{std::move(other.graph_)},
        around_{std::move(other.around_)},
        moved_{other.moved_}
  {
  }
  captured_step& operator=(captured_step&&) = delete;
  ~captured_step()
  {
    if (link_ != nullptr && --link_->holders == 0 && link_->engine == nullptr) delete link_;
  }

  /// Does the step again; returns when it is enqueued.
  ///
  /// @return   false where things lie so that it cannot be done: run the step as usual, and capture it anew if that
  ///   lasts
  /// @throws usage_error    inside an iteration, or its manager is gone
  /// @throws device_error   the device could not be cleared, or the graph not be started: call again
  [[nodiscard]] bool replay()
  try {
    expects(link_ != nullptr && link_->engine != nullptr,
            "a captured step was replayed after its manager or after it was moved from");
    Engine& engine = *link_->engine;
    engine.health().expect_alive();
    expects(!engine.schedule().is_inside(), "a captured step was replayed inside an iteration");
    engine.pending().finish();
    if (engine.schedule().arrangement() != around_.arrangement) return false;
    if (!engine.chunks().table().same_places(around_.start)) {
      engine.return_to(around_.start, around_.clears);
      if (!engine.chunks().table().same_places(around_.start)) return false;
    }
    engine.replay(graph_, moved_);
    return true;
  } catch (error& failed) {
    if (link_ != nullptr && link_->engine != nullptr) link_->engine->annotator().annotate(failed);
    throw;
  }

 private:
  owner_link<Engine>* link_;
  graph_type graph_;
  circumstances around_;
  report moved_;  // by one step: of these only what is counted in copies
};

/// Runs `step` once, its work written down as a graph and then done through it.
///
/// @throws usage_error   it does not repeat, or does what no graph holds; what was written down by then is done
/// @throws as `step`: the same, and the iteration has ended as after any exception
template <graph_backend Backend, class Engine, class Step>
[[nodiscard]] captured_step<Engine, Backend> capture_step(owner_link<Engine>& link, Backend& backend, Step&& step)
try {
  Engine& engine = *link.engine;
  engine.health().expect_alive();
  expects(!engine.schedule().is_inside(),
          "a step was to be captured inside an iteration: capture begins and ends outside");
  expects(engine.schedule().has_repeated(),
          "a step was to be captured that does not repeat yet: run it until it follows its plan (a step, a "
          "second one, and a third)");
  engine.pending().finish();
  const bool clears = !engine.schedule().is_steady();
  if (clears) engine.clear_device();
  typename captured_step<Engine, Backend>::circumstances around{engine.chunks().table(),
                                                                engine.schedule().arrangement(), clears};
  const report before = engine.snapshot();
  const auto finish = [&] {
    auto graph = backend.end_capture();
    backend.launch(graph);
    return graph;
  };
  engine.health().starting([&] { backend.begin_capture(); });
  try {
    std::forward<Step>(step)();
    if (clears && !engine.schedule().is_inside()) engine.clear_device();
  } catch (...) {
    (void)engine.health().ordering(finish);
    throw;
  }
  auto graph = engine.health().ordering(finish);
  expects(engine.snapshot().iterations == before.iterations + 1 && engine.schedule().has_repeated() &&
              !engine.schedule().is_inside() && engine.schedule().arrangement() == around.arrangement &&
              engine.chunks().table().same_places(around.start),
          "the captured step was not the recorded one: its work was done, but it cannot be replayed");
  return {link, std::move(graph), std::move(around), engine.snapshot().copies_since(before)};
} catch (error& failed) {
  link.engine->annotator().annotate(failed);
  throw;
}

}  // namespace chunkmem::inline v0
