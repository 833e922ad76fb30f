// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

namespace overlap {

enum class place { device, host };    ///< of updates
enum class moment { at_once, late };  ///< of updates: late ones run inside the next forward pass

/// A training step of at least two micro-batches, and its bytes.
struct step_work {
  place where = place::device;
  moment when = moment::at_once;
  int micro_batches = 2;
  double weights = 0;
  double gradients = 0;
  double states = 0;
  /// By each backward pass but the first: weights, saved activations, and the gradients so far.
  double read_back = 0;
};

/// Seconds of a step that copies nothing, and of its parts.
struct step_seconds {
  double whole = 0;
  double forward = 0;   ///< the first forward pass, with the late updates of the step before
  double between = 0;   ///< a backward pass between the first and the last, on average; 0: there is none
  double backward = 0;  ///< the last backward pass
  double update = 0;    ///< from the last gradient to the end
};

/// A time below which no step ends, whatever is loaded, written back and evicted, and in whatever order [s].
///
/// A window is a part of a step. It takes as long as it computes, and as long as the bytes that must cross a link in
/// it. Where the bytes take longer, the step takes the difference longer. Windows that have no part in common take
/// their differences one after the other, so these add up.
///
/// - A backward pass behind the first reads weights, saved activations and the gradients so far, all on the device. A
///   byte that is read there was there when the pass began, or came up since. When the pass began, the device had room
///   for `device` bytes. So the other bytes come up inside the pass. A byte that leaves and is read later comes up once
///   more. The first pass reads no gradient, and is not counted.
/// - Updates on the device read weights, gradients and states there, between the last gradient and the last update. As
///   in a pass, all bytes come up but those that were there at the last gradient. Late updates end with the first
///   forward pass. The windows of all backward passes end before the last gradient or begin behind that forward pass.
/// - Updates on the host read the gradients there, and the last backward pass changes each gradient on the device. So
///   the gradients go down between the begin of that pass and the last update. The updates make the weights on the
///   host, and the first forward pass reads them on the device. So the weights come up between the last gradient and
///   the end of that forward pass. Both windows contain the updates, so one of them counts. The first one contains the
///   last backward pass too, and the second one does not.
///
/// @param device   bytes that the device holds   @param rate   of each link [B/s]
[[nodiscard]] inline double least_step(const step_work& work, const step_seconds& computed, double device, double rate)
{
  const auto longer = [&](double window, double bytes) { return std::max(0.0, bytes / rate - window); };
  const double passes = (work.micro_batches - 2) * longer(computed.between, work.read_back - device);
  const double last = longer(computed.backward, work.read_back - device);
  const double with_forward = computed.update + computed.forward;
  const double updates = work.when == moment::late ? with_forward : computed.update;
  if (work.where == place::device)
    return computed.whole + passes + last + longer(updates, work.weights + work.gradients + work.states - device);
  return computed.whole + passes +
         std::max(longer(computed.backward + updates, work.gradients), last + longer(with_forward, work.weights));
}

}  // namespace overlap
