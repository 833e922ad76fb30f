// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

namespace saving_bench {

/// A save, and the training that continues meanwhile.
struct save_case {
  double bytes = 0;         ///< of the save
  double writing = 1;       ///< of the thread that writes: its checksums, then its share of the disk [B/s]
  double spare = 0;         ///< memory of the host that the rank's chunks do not use [B]
  double host_memory = 1;   ///< shared by updates, copies and the thread that writes [B/s]
  double step = 1;          ///< without a save [s]
  double forward = 0;       ///< late updates: from the begin of such a step to its backward pass [s]; 0: none is late
  double step_bytes = 0;    ///< of host memory, that a step without a save reads and writes
  double update_bytes = 0;  ///< the part of these bytes in updates
  double on_device = 0;     ///< bytes of the save that are only on the device [B]
  double from_device = 1;   ///< of the link [B/s]
};

struct least_save {
  double seconds = 0;   ///< seconds that no save can hide
  double steps = 1;     ///< steps that the save spans
  double overhead = 0;  ///< [%] of these steps
};

/// A lower bound: no way to save the bytes of one moment costs less, if updates change bytes in place, and no copies
/// are made in the device's memory.
///
/// All bytes of the save are changed by the updates of the next step. They end with that step; late updates end with
/// the following forward pass, which uses the weights. Let T be the time from the begin of the save to the end of these
/// updates, and T0 the same without a save. All of these hold:
/// updates T, and the same without a save T0. All of these hold:
///
/// - A byte may be changed only once it is written or copied. At most `writing * T` bytes are written by then. The
///   others are in spare memory. So `bytes <= writing * T + spare`.
/// - A byte that is written by T is read, any other is read and written by a copy. Together with the step, and with the
///   updates of the following forward pass, this fits in the memory's rate. With `copied >= 0` and `copied >= bytes -
///   writing * T`: `step_bytes + update_bytes + bytes + copied <= host_memory * T`.
/// - Bytes on the device cross the link before they change: `on_device <= from_device * T`.
///
/// The difference of T and T0 cannot be hidden: the following steps are no faster than without a save. The save ends
/// when the disk has all bytes, `bytes / writing` after its begin or later. The bound uses no result of a run with a
/// save, except for the bytes that were on the device when the save was called.
[[nodiscard]] inline least_save least_overhead_of(const save_case& it)
{
  const double usual = it.step + it.forward;
  const double written = it.bytes / it.writing;
  const double own = it.step_bytes + (it.forward > 0 ? it.update_bytes : 0);
  const double end = std::max({usual, (it.bytes - it.spare) / it.writing, (own + it.bytes) / it.host_memory,
                               (own + 2 * it.bytes) / (it.host_memory + it.writing), it.on_device / it.from_device});
  least_save made;
  made.seconds = end - usual;
  made.steps = std::max(1.0, std::ceil((written - made.seconds) / it.step - 1e-6));
  made.overhead = 100 * made.seconds / (made.steps * it.step);
  return made;
}

}  // namespace saving_bench
