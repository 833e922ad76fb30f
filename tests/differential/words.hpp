// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// The vocabulary of programs, the plain model and the managers under test. It contains no type of the library, so that
/// a manager may be compiled with other headers than the model.
namespace differential {

/// One call of a program. Numbers are taken modulo the available objects, so that every list of calls is a
/// program.
enum class what : std::uint8_t {
  acquire,
  release,
  touch,
  move_pin,
  gradient_of_pin,
  gradient,
  done_with_pin,
  done,
  update,
  drop,
  drop_gradient,
  drop_gradients,
  lease,
  end_lease,
  begin,
  pass,
  end,
  abandon,
  keep_record,
  exchange,
  rehearse,
  use_profile,
  audit,
  release_all,
  mistake,
  step,
  late_step,
  early_step,
  finish_updates,
  end_late,
};
inline constexpr std::size_t what_count = 30;
inline constexpr const char* what_names[what_count] = {"acquire",
                                                       "release",
                                                       "touch",
                                                       "move_pin",
                                                       "gradient_of_pin",
                                                       "gradient",
                                                       "done_with_pin",
                                                       "done",
                                                       "update",
                                                       "drop",
                                                       "drop_gradient",
                                                       "drop_gradients",
                                                       "lease",
                                                       "end_lease",
                                                       "begin",
                                                       "pass",
                                                       "end",
                                                       "abandon",
                                                       "keep_record",
                                                       "exchange",
                                                       "rehearse",
                                                       "use_profile",
                                                       "audit",
                                                       "release_all",
                                                       "mistake",
                                                       "step",
                                                       "late_step",
                                                       "early_step",
                                                       "finish_updates",
                                                       "end_late"};

struct op {
  what call = what::acquire;
  std::uint32_t x = 0;
  std::uint32_t y = 0;
};
using program = std::vector<op>;

/// The manager that runs a program.
enum class world : std::uint8_t { adversarial, host_arena, fake_cuda, lenient_rules, lost_pin };
inline constexpr const char* world_names[] = {"adversarial", "host_arena", "fake_cuda", "lenient_rules", "lost_pin"};

/// A bug that is built in on purpose, by policies that can be told to do wrong. `illegal_ignored` and `lost_pin` are
/// worlds.
enum class bug : std::uint8_t { none, overlap, wrong_size, gives_up, skipped_write_back };
inline constexpr const char* bug_names[] = {"none", "overlap", "wrong_size", "gives_up", "skipped_write_back"};

/// The settings of a run, apart from its program.
struct setting {
  std::uint64_t seed = 1;  ///< of the backend's schedule
  world where = world::adversarial;
  bug planted = bug::none;
  std::uint32_t frame = 512;  ///< [bytes]
  std::uint32_t device_frames = 4;
  std::uint32_t device_rest = 0;  ///< more bytes than whole frames, in units of 256
  std::uint32_t host_frames = 200;
  std::uint32_t tensors = 0;   ///< which set of tensors and lists
  std::uint32_t eviction = 0;  ///< these by their number in the list of choices
  std::uint32_t layout = 0;
  std::uint32_t transfer = 0;
  std::uint32_t schedule = 0;
  bool async_compute = false;
  bool in_place = false;
  bool wide = false;              ///< gradients of 16-bit weights are float
  std::uint32_t faults = 0;       ///< every so manieth copy cannot start; 0: all can
  bool keeps_kernel_pins = true;  ///< pins for streams outlive the call that makes them
};

enum class access : std::uint8_t { read, read_write, write };
enum class place : std::uint8_t { device, host };
enum class pass : std::uint8_t { none, forward, backward };
enum class state : std::uint8_t { free, hold, compute, gradient };
enum class event : std::uint8_t { materialize, acquire, consume, release, drop };
enum class role : std::uint8_t { parameter, frozen, buffer, activation };
enum class element : std::uint8_t { real, brain, byte };

[[nodiscard]] constexpr bool writes(access how) noexcept
{
  return how != access::read;
}
[[nodiscard]] constexpr std::uint32_t size_of(element it) noexcept
{
  return it == element::real ? 4 : it == element::brain ? 2 : 1;
}

/// How a pin is asked for: by its tensor, by tensor and list, or as bytes of a list.
enum class route : std::uint8_t { tensor, list, bytes };

// Agents in the numbering of every backend: the calling thread, compute, and one that the machine adopts.
inline constexpr std::uint32_t on_caller = 0xFF;  ///< no agent is named: the calling thread
inline constexpr std::uint32_t on_compute = 1;
inline constexpr std::uint32_t on_adopted = 4;  ///< the first stream of the caller
inline constexpr std::uint32_t no_slot = UINT32_MAX;
inline constexpr std::uint32_t value_list = 0;
inline constexpr std::uint32_t gradient_list = 1;

struct request {
  route by = route::tensor;
  std::uint32_t tensor = 0;  ///< beyond the last one: a handle of nobody
  std::uint32_t list = value_list;
  element type = element::real;
  access how = access::read;
  place at = place::device;
  std::uint32_t agent = on_caller;
};

/// The time of a step's updates: at once, before its norm is known, or when a weight is used.
enum class updates : std::uint8_t { at_once, early, late };

struct step_request {
  updates how = updates::at_once;
  std::vector<std::uint32_t> first{};  ///< tensors whose updates do not wait
  std::uint64_t undo_bytes = 0;        ///< to bring early updates back with
  float limit = 0;                     ///< of the largest magnitude; 0: none
  bool skips_nonfinite = true;
};
/// The result of a step.
struct stepped {
  bool updated = false;
  double norm = 0;
};

enum class verdict : std::uint8_t { fine, usage, config, memory, device, other };
inline constexpr const char* verdict_names[] = {"fine",          "usage_error",  "config_error",
                                                "out_of_memory", "device_error", "another error"};

/// The answer of a call.
struct answer {
  verdict is = verdict::fine;
  std::string sentence{};
  bool on_host = false;  ///< the tier of an out_of_memory, and its numbers in bytes
  std::uint64_t requested = 0;
  std::uint64_t capacity = 0;
  std::uint64_t pinned = 0;
  std::uint64_t needed = 0;
};

/// The public state of a manager.
struct figures {
  std::uint64_t capacity[2] = {};
  std::uint64_t in_use[2] = {};
  std::uint64_t peak[2] = {};
  std::uint64_t moved[5] = {};  ///< bytes and counts of loads and write-backs, evictions
  std::uint64_t iterations = 0;
  std::uint64_t divergences = 0;
  [[nodiscard]] bool operator==(const figures&) const = default;
};

/// The bytes that a pin or lease gave.
struct granted {
  std::byte* data = nullptr;
  std::uint64_t size = 0;  ///< [bytes]
  float beta = 0;          ///< of a gradient
};

/// The model and the manager disagree.
struct divergence {
  std::string text;
};

}  // namespace differential
