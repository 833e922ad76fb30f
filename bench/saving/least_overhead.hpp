// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

namespace saving_bench {

/// A save, and the training that goes on beside it.
struct save_case {
  double bytes = 0;         ///< of the save
  double writing = 1;       ///< of the thread that writes: its checksums, then its share of the disk [B/s]
  double spare = 0;         ///< of the host's memory beside all chunks of the rank [B]
  double host_memory = 1;   ///< shared by updates, copies and the thread that writes [B/s]
  double step = 1;          ///< without a save [s]
  double forward = 0;       ///< late updates: from the begin of such a step to its backward pass [s]; 0: none is late
  double step_bytes = 0;    ///< of host memory, that a step without a save reads and writes
  double update_bytes = 0;  ///< of these: of updates
  double on_device = 0;     ///< of the save: that lie on the device alone [B]
  double from_device = 1;   ///< of the link [B/s]
};

struct least_save {
  double seconds = 0;   ///< that no save can hide
  double steps = 1;     ///< that it spans
  double overhead = 0;  ///< [%] of these steps
};

/// No way to save the bytes of one moment costs less, as long as updates change bytes in their place, and no copies are
/// made in the device's memory.
///
/// All bytes of the save are changed by the updates of the next step. They end with that step; late updates end with
/// the forward pass behind it, which uses the weights. Call the time from the begin of the save to the end of these
/// updates T, and the same without a save T0. All of these hold:
///
/// - A byte may be changed only once it is written or copied. At most `writing * T` bytes are written by then. The
///   others lie in spare memory. So `bytes <= writing * T + spare`.
/// - A byte that is written by T is read, any other is read and written by a copy. Together with the step, and with the
///   updates of the forward pass behind it, this fits in the memory's rate. With `copied >= 0` and
///   `copied >= bytes - writing * T`: `step_bytes + update_bytes + bytes + copied <= host_memory * T`.
/// - Bytes on the device cross the link before they change: `on_device <= from_device * T`.
///
/// What T is longer than T0 cannot be hidden: the steps behind it are no faster than without a save. The save ends when
/// the disk has all bytes, `bytes / writing` after its begin or later. Nothing here comes from a run with a save, but
/// for the bytes that lay on the device when the save was called.
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
