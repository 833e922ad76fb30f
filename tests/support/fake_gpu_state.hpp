// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/fake_cuda_calls.hpp>
#include <support/fake_cuda_capture.hpp>
#include <support/fake_cuda_memory.hpp>
#include <support/fake_cuda_types.hpp>
#include <support/fake_cuda_work.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace support {

/// The state of a fake GPU, and the lock that guards it. The bytes of allocations and the callables are not guarded.
struct fake_gpu_state {
  using lock_type = std::unique_lock<std::mutex>;

  explicit fake_gpu_state(const fake_cuda_options& its_options)
      : options{its_options}, calls{its_options}, memory{its_options}
  {
  }

  const fake_cuda_options options;
  mutable std::mutex mutex;
  fake_calls calls;
  fake_memory memory;
  fake_captures captures;
  std::vector<std::unique_ptr<fake_stream>> streams;  ///< by number - 1, as are the next three
  std::vector<fake_event> events;
  std::vector<fake_graph> graphs;
  std::vector<std::shared_ptr<fake_executable>> executables;  ///< null once destroyed
  std::vector<std::string> faults;
  std::function<void(const fake_range&)> half_way;  ///< called where a target is poisoned and not written yet

  std::vector<bool> contexts = std::vector<bool>(static_cast<std::size_t>(options.devices));  ///< by device
  std::uint64_t switches = 0;  ///< of threads, from one device to another

  /// Makes the primary context of a device, at the first call that needs one. @return   false without room
  [[nodiscard]] bool make_context(int device)
  {
    if (contexts[static_cast<std::size_t>(device)]) return true;
    if (!memory.take(device, options.context_memory)) return false;
    return contexts[static_cast<std::size_t>(device)] = true;
  }

  void note(std::string_view what, std::string_view how)
  {
    faults.push_back(std::string{what} + " " + std::string{how});
  }

  bool may_touch(const std::byte* place, std::size_t size)
  {
    const char* const objection = memory.objection(place, size);
    if (objection != nullptr) note(memory.is_device(place) ? "device memory" : "pinned memory", objection);
    return objection == nullptr;
  }

  [[nodiscard]] bool overlap(const fake_range& range)
  {
    const std::less<const std::byte*> before;
    const bool is_bad = before(range.to, range.from + range.size) && before(range.from, range.to + range.size);
    if (is_bad) note("a copy", "whose source and target overlap");
    return is_bad;
  }
};

}  // namespace support
