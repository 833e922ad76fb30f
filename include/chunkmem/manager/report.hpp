// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/tier.hpp>

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace chunkmem::inline v0 {

/// How often the calling thread was blocked, or a kernel stream by a copy, by cause. An event that had already
/// completed is no wait. A step that follows its plan and works on one agent has no `other`. On threads the counts
/// differ from run to run.
///
///     const std::uint64_t waits = seen.waits.demand_miss;
///
/// Where the backend cannot tell, such as on CUDA, each wait of the calling thread for work that is not known to be
/// complete counts, and no wait of a stream.
struct wait_counts {
  std::uint64_t demand_miss = 0;      ///< for a load, or the room it needs; of streams for any copy
  std::uint64_t optimizer_input = 0;  ///< for bytes on their way to the host; over ranks also for sums
  std::uint64_t throttle = 0;         ///< for room in a queue of the backend
  std::uint64_t other = 0;            ///< of the calling thread, for agents that only read what it overwrites
};

/// The time of these waits: the most by which a step could be shorter. Waits of copy agents do not count, nor do waits
/// of one kernel stream for another. In virtual time on `simulated`.
///
///     const double waited = after.stalls.seconds() - before.stalls.seconds();
struct wait_times {
  std::uint64_t demand_miss_nanoseconds = 0;
  std::uint64_t optimizer_input_nanoseconds = 0;
  std::uint64_t throttle_nanoseconds = 0;  ///< 0 where the backend counts such waits alone, as on CUDA
  std::uint64_t other_nanoseconds = 0;

  /// The sum [s]. Two streams that wait at once are added up.
  [[nodiscard]] double seconds() const noexcept
  {
    return static_cast<double>(demand_miss_nanoseconds + optimizer_input_nanoseconds + throttle_nanoseconds +
                               other_nanoseconds) /
           1e9;
  }
};

/// The counts of a manager since it was made. A snapshot: plain numbers.
///
///     const report seen = m.report();
///     std::cout << seen.loads << " loads, " << seen.stalls.seconds() << " s of waits\n";
struct report {
  per_tier<bytes> capacity;
  per_tier<bytes> in_use;  ///< now: frames of chunks, and leases
  per_tier<bytes> peak;    ///< the most that was ever in use; never above capacity
  bytes external_peak;  ///< of the device, outside of the arena: the highest answer of watch_external_memory's source
  bytes loaded;         ///< copied to the device
  bytes written_back;   ///< copied to the host
  std::uint64_t loads = 0;        ///< copies of chunks to the device
  std::uint64_t write_backs = 0;  ///< copies of chunks to the host
  std::uint64_t evictions = 0;    ///< times a chunk gave up its device frames for another
  wait_counts waits;
  wait_times stalls;  ///< in text and JSON as `waited_..._seconds`
  std::uint64_t iterations = 0;
  std::uint64_t divergences = 0;      ///< iterations that were not the recorded one
  std::uint64_t replans = 0;          ///< plans made after the first one of each name
  std::uint64_t abandoned_plans = 0;  ///< plans given up inside an iteration or impossible to make
  /// iterations that cleared the device first, since they did not fit from the present residency
  std::uint64_t clean_starts = 0;
  std::uint64_t skipped_moves = 0;  ///< planned moves that were out of date at their access

  /// The copies since `earlier`, another report of the same manager; all other counts are 0.
  [[nodiscard]] report copies_since(const report& earlier) const
  {
    report result;
    result.loaded = loaded - earlier.loaded;
    result.written_back = written_back - earlier.written_back;
    result.loads = loads - earlier.loads;
    result.write_backs = write_backs - earlier.write_backs;
    result.evictions = evictions - earlier.evictions;
    return result;
  }

  /// One JSON object; keys are the names above, sizes in bytes, times in seconds.
  [[nodiscard]] std::string json() const
  {
    std::string out = "{";
    visit([&](std::string_view name, const auto& value) {
      if (out.size() > 1) out += ", ";
      out.append("\"").append(name).append("\": ").append(text_of(value));
    });
    return out + "}";
  }

  /// One line for each number: `name value`. A template, so that programs that print nothing need not compile
  /// `<ostream>`.
  template <class Traits>
  friend std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, const report& it)
  {
    it.visit([&](std::string_view name, const auto& value) { out << name << ' ' << text_of(value) << '\n'; });
    return out;
  }

 private:
  /// A time that is printed in seconds.
  struct time_in_seconds {
    std::uint64_t nanoseconds = 0;
  };
  [[nodiscard]] static std::string text_of(std::uint64_t number) { return std::to_string(number); }
  [[nodiscard]] static std::string text_of(time_in_seconds time)
  {
    const std::string parts = std::to_string(1'000'000'000 + time.nanoseconds % 1'000'000'000);
    return std::to_string(time.nanoseconds / 1'000'000'000) + "." + parts.substr(1);
  }

  template <class Visit>
  void visit(Visit see) const
  {
    see("capacity_device_bytes", capacity[tier::device].count());
    see("capacity_host_bytes", capacity[tier::host].count());
    see("in_use_device_bytes", in_use[tier::device].count());
    see("in_use_host_bytes", in_use[tier::host].count());
    see("peak_device_bytes", peak[tier::device].count());
    see("peak_host_bytes", peak[tier::host].count());
    see("external_peak_bytes", external_peak.count());
    see("loaded_bytes", loaded.count());
    see("written_back_bytes", written_back.count());
    see("loads", loads);
    see("write_backs", write_backs);
    see("evictions", evictions);
    see("waits_demand_miss", waits.demand_miss);
    see("waits_optimizer_input", waits.optimizer_input);
    see("waits_throttle", waits.throttle);
    see("waits_other", waits.other);
    see("waited_demand_miss_seconds", time_in_seconds{stalls.demand_miss_nanoseconds});
    see("waited_optimizer_input_seconds", time_in_seconds{stalls.optimizer_input_nanoseconds});
    see("waited_throttle_seconds", time_in_seconds{stalls.throttle_nanoseconds});
    see("waited_other_seconds", time_in_seconds{stalls.other_nanoseconds});
    see("iterations", iterations);
    see("divergences", divergences);
    see("replans", replans);
    see("abandoned_plans", abandoned_plans);
    see("clean_starts", clean_starts);
    see("skipped_moves", skipped_moves);
  }
};

}  // namespace chunkmem::inline v0
