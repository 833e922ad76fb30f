// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/manager/replay.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

/// Records of a GPT's training step, and the bytes that the engine moves when the step repeats.
namespace eviction_bench {

namespace cm = chunkmem;

inline constexpr std::uint64_t frame_bytes = 4096;

/// A model whose every chunk has one slot, and one iteration of it.
struct trace {
  std::vector<std::uint32_t> frames_of_chunk;
  cm::access_record record;

  [[nodiscard]] std::uint32_t chunks() const { return static_cast<std::uint32_t>(frames_of_chunk.size()); }
  [[nodiscard]] std::vector<std::uint32_t> own_chunks() const
  {
    std::vector<std::uint32_t> own(chunks());
    for (std::uint32_t index = 0; index < chunks(); ++index) own[index] = index;
    return own;
  }
};

/// Writes the entries of a record.
class trace_writer {
 public:
  std::uint32_t access(std::uint32_t chunk, cm::entry_kind kind) { return add({chunk, 0, 0, kind, false, 0}, 0); }
  std::uint32_t lease(std::uint64_t bytes)
  {
    return add({cm::access_record::never, 0, 0, cm::entry_kind::lease_device, false, 0}, bytes);
  }
  void release(std::uint32_t access_index) { record_.release(access_index); }
  void brief(std::uint32_t chunk, cm::entry_kind kind) { release(access(chunk, kind)); }

  trace finish(std::vector<std::uint32_t> frames_of_chunk)
  {
    trace made{std::move(frames_of_chunk), {}};
    record_.finish(made.own_chunks(), made.chunks());
    made.record = record_;
    return made;
  }

 private:
  std::uint32_t add(const cm::access_entry& entry, std::uint64_t bytes)
  {
    record_.make_room();
    return record_.append(entry, {bytes, cm::entry_detail::never, {}});
  }
  cm::access_record record_;
};

/// The part of a step's updates that runs on the device; the rest runs on the host.
enum class updates : std::uint8_t { on_device, half, half_alternating, on_host };

struct gpt_shape {
  std::uint32_t layers = 24;
  std::uint32_t chunks_per_layer = 4;
  updates where = updates::on_device;
  bool windows = false;  ///< optimizer states as windows of two frames
};

/// 16-bit chunks of one frame; master, momentum and variance take twice the bytes: two chunks each, as a manager lays
/// them out, or windows of two frames. Gradients are in place. Activations are leased: a checkpoint for each layer from
/// its forward to its backward pass, which recomputes the layer, and a layer's working set of one and a half times its
/// weights.
class gpt_writer {
 public:
  explicit gpt_writer(const gpt_shape& shape) : shape_{shape}, weights_{shape.layers * shape.chunks_per_layer} {}

  trace operator()()
  {
    std::vector<std::uint32_t> checkpoints;
    for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) checkpoints.push_back(forward(layer));
    for (std::uint32_t layer = shape_.layers; layer-- > 0;) backward(layer, checkpoints[layer]);
    for (std::uint32_t index = 0; index < weights_; ++index) update(index);
    std::vector<std::uint32_t> frames(weights_, 1);
    frames.resize(weights_ * (shape_.windows ? 4 : 7), shape_.windows ? 2 : 1);
    return log_.finish(std::move(frames));
  }

 private:
  std::uint32_t forward(std::uint32_t layer)
  {
    const std::uint32_t checkpoint = log_.lease(shape_.chunks_per_layer * frame_bytes / 16);
    const std::uint32_t set = log_.lease(working_set());
    for (std::uint32_t index = 0; index < shape_.chunks_per_layer; ++index)
      log_.brief(first_of(layer) + index, cm::entry_kind::read);
    log_.release(set);
    return checkpoint;
  }

  void backward(std::uint32_t layer, std::uint32_t checkpoint)
  {
    const std::uint32_t set = log_.lease(working_set());
    for (std::uint32_t index = 0; index < shape_.chunks_per_layer; ++index)
      log_.brief(first_of(layer) + index, cm::entry_kind::read);
    for (std::uint32_t index = shape_.chunks_per_layer; index-- > 0;)
      log_.brief(first_of(layer) + index, cm::entry_kind::read_write);
    log_.release(set);
    log_.release(checkpoint);
  }

  void update(std::uint32_t index)
  {
    const cm::entry_kind kind =
        is_updated_on_device(index) ? cm::entry_kind::read_write : cm::entry_kind::read_write_on_host;
    const std::uint32_t weight = log_.access(index, kind);
    const std::uint32_t parts = shape_.windows ? 1 : 2;
    for (std::uint32_t part = 0; part < parts; ++part) {
      std::vector<std::uint32_t> pins;
      for (std::uint32_t list = 0; list < 3; ++list)
        pins.push_back(log_.access(weights_ + (3 * index + list) * parts + part, kind));
      for (const std::uint32_t pin : pins) log_.release(pin);
    }
    log_.release(weight);
  }

  [[nodiscard]] bool is_updated_on_device(std::uint32_t index) const
  {
    switch (shape_.where) {
      case updates::on_device: return true;
      case updates::half: return index < weights_ / 2;
      case updates::half_alternating: return index % 2 == 0;
      default: return false;
    }
  }
  [[nodiscard]] std::uint32_t first_of(std::uint32_t layer) const { return layer * shape_.chunks_per_layer; }
  [[nodiscard]] std::uint64_t working_set() const { return shape_.chunks_per_layer * frame_bytes * 3 / 2; }

  gpt_shape shape_;
  std::uint32_t weights_;
  trace_writer log_;
};

/// The frames that an iteration moved.
struct moved {
  double loads = 0;
  double write_backs = 0;
  [[nodiscard]] double all() const { return loads + write_backs; }
};

/// Repeats a trace with an engine's decisions.
template <class Eviction>
class repeated_run {
 public:
  repeated_run(const trace& what, std::uint32_t device_frames, Eviction policy = {})
      : trace_{what}, state_{std::move(policy)}
  {
    state_.reset(what.frames_of_chunk, what.chunks());
    std::uint32_t all = 0;
    for (const std::uint32_t frames : what.frames_of_chunk) all += frames;
    state_.reset_tier(cm::tier::device, cm::bytes{device_frames * frame_bytes}, cm::bytes{frame_bytes}, device_frames);
    state_.reset_tier(cm::tier::host, cm::bytes{all * frame_bytes}, cm::bytes{frame_bytes}, all);
    for (std::uint32_t index = 0; index < what.chunks(); ++index) {
      state_.acquire(cm::slot_id{index}, cm::chunk_id{index}, cm::entry_kind::write_on_host, cm::access_record::never,
                     cm::access_index{0}, log_);
      state_.unpin(cm::tier::host, cm::chunk_id{index}, true);
    }
  }

  /// One iteration. @param retold   the policy is reset, as when a plan is made   @throws cm::out_of_memory
  moved run(bool retold)
  {
    if (retold || first_) {
      state_.start_of(trace_.record);
      state_.tell_policy(trace_.record);
    }
    first_ = false;
    log_.clear();
    replay_.run(trace_.record, own_, state_, log_, true);
    moved sum;
    for (const auto& it : log_.moves()) {
      if (it.kind == cm::transfer::move_kind::load) sum.loads += it.frames;
      if (it.kind == cm::transfer::move_kind::write_back) sum.write_backs += it.frames;
    }
    return sum;
  }

  /// Sets the policy's parameter as a manager would for a plan that starts here.
  void tune()
  {
    cm::variant_trial<Eviction> trial;
    state_.choose(trial.best(state_, trace_.record, own_));
  }
  /// The number of chunks that the last iteration loaded.
  [[nodiscard]] std::uint32_t count_loads() const
  {
    return static_cast<std::uint32_t>(
        std::ranges::count(log_.moves(), cm::transfer::move_kind::load, &cm::transfer::move::kind));
  }

 private:
  const trace& trace_;
  std::vector<std::uint32_t> own_ = trace_.own_chunks();
  cm::chunk_cache<Eviction> state_;
  cm::replay<Eviction> replay_;
  cm::decision_log log_;
  bool first_ = true;
};

inline constexpr int warm_up = 8;
inline constexpr int measured = 12;  ///< decisions may settle in a cycle of a few steps
inline constexpr double never = std::numeric_limits<double>::infinity();

struct settled {
  double frames = never;  ///< moved by a step, on average; infinity where it does not fit
  bool repeats = true;    ///< every step moved as many; else decisions repeat in a cycle of many steps
};

/// The frames that a step moves in the steady state.
template <class Eviction>
[[nodiscard]] settled steady(const trace& what, std::uint32_t frames, const Eviction& policy = {})
{
  try {
    repeated_run<Eviction> run{what, frames, policy};
    run.run(true);
    run.tune();
    for (int step = 0; step < warm_up; ++step) run.run(true);
    double sum = 0;
    double least = never;
    double most = 0;
    for (int step = 0; step < measured; ++step) {
      const double moved = run.run(true).all();
      sum += moved;
      least = std::min(least, moved);
      most = std::max(most, moved);
    }
    return {sum / measured, least == most};
  } catch (const cm::out_of_memory&) {
    return {};
  }
}

}  // namespace eviction_bench
