// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <system_error>
#include <vector>

namespace chunkmem::inline v0 {
namespace backend {

/// The environment variables of the CUDA runtime, and which of their values slow a backend down.
///
///     for (const std::string& each : memory.findings({.streams = 2})) std::cerr << each << '\n';
///
/// The runtime reads the variables once, with its first call; later changes do nothing. Source: CUDA C++ Programming
/// Guide, CUDA Environment Variables, and Lazy Loading.
class cuda_environment {
 public:
  /// Queues from the host to a device where the variable is not set.
  static constexpr std::uint32_t usual_connections = 8;
  static constexpr std::uint32_t most_connections = 32;

  /// @param connections, loading   the texts of CUDA_DEVICE_MAX_CONNECTIONS and CUDA_MODULE_LOADING; null: not set
  cuda_environment(const char* connections, const char* loading)
      : connections_{text_of(connections)}, loading_{text_of(loading)}
  {
  }
  /// The environment of this process. @pre   no other thread changes the environment meanwhile
  [[nodiscard]] static cuda_environment of_process()
  {
    return {std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), std::getenv("CUDA_MODULE_LOADING")};
  }

  /// The number of queues; 0: the text is not a number that the runtime accepts.
  [[nodiscard]] std::uint32_t connections() const noexcept
  {
    if (connections_.empty()) return usual_connections;
    std::uint32_t number = 0;
    const char* const end = connections_.data() + connections_.size();
    const auto read = std::from_chars(connections_.data(), end, number);
    return read.ec == std::errc{} && read.ptr == end && number <= most_connections ? number : 0;
  }

  /// Streams and waits on the device that are not the backend's own.
  struct neighbours {
    std::size_t streams = 0;  ///< of the user, and of libraries: NCCL makes two for each group
    bool are_ranks = false;   ///< kernels of this process wait for those of other ranks
  };

  /// Settings that should be changed before the next start, a sentence each. None of them is an error.
  /// @param streams   of the backend
  [[nodiscard]] std::vector<std::string> findings(std::size_t streams, const neighbours& others) const
  {
    std::vector<std::string> found;
    const std::size_t all = streams + others.streams;
    if (connections() == 0) {
      found.push_back(
          "CUDA_DEVICE_MAX_CONNECTIONS is '" + connections_ +
          "', which is no number from 1 to 32: the number of streams that run at the same time is unknown (set it to "
          "32, or not at all)");
    } else if (connections() < all && connections() < most_connections) {
      found.push_back("CUDA_DEVICE_MAX_CONNECTIONS is " +
                      (connections_.empty() ? "not set, which means 8" : std::to_string(connections())) +
                      ", and there are " + std::to_string(all) + " streams" +
                      (others.streams != 0 ? ", " + std::to_string(streams) + " of them of this backend" : "") +
                      ": those that share a queue wait for each other (set it to 32 before the program starts)");
    }
    if (!loading_.empty() && loading_ != "LAZY" && loading_ != "EAGER" && loading_ != "DEFAULT") {
      found.push_back("CUDA_MODULE_LOADING is '" + loading_ +
                      "', which the runtime does not know (set it to EAGER or LAZY, or not at all)");
    } else if (others.are_ranks && loading_ != "EAGER") {
      found.push_back(
          "CUDA_MODULE_LOADING is " +
          (loading_ == "LAZY" ? loading_
                              : "not EAGER, which on Linux means LAZY from CUDA "
                                "12.2 on") +
          ": the first launch of a kernel may wait for all streams, and a kernel that waits for other ranks can then "
          "wait for ever (set it to EAGER before the program starts, or run each kernel once before ranks wait)");
    }
    return found;
  }

 private:
  [[nodiscard]] static std::string text_of(const char* value) { return value != nullptr ? value : ""; }

  std::string connections_;
  std::string loading_;
};

}  // namespace backend
}  // namespace chunkmem::inline v0
