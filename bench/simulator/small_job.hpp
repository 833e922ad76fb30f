// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunkmem.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace simulator_bench {

/// The times of the parts of a step [ns], and the part of the model that the device holds.
struct job_shape {
  std::uint64_t forward = 0;   ///< of a layer
  std::uint64_t backward = 0;  ///< of a layer
  std::uint64_t update = 0;    ///< of a layer, on the host
  std::uint64_t device_chunks = 0;
};

inline constexpr std::uint64_t layers = 28;
inline constexpr chunkmem::bytes layer_bytes{std::uint64_t{2} << 20};

/// A training step that only takes time: forward and backward on agent::compute, then an update of each layer on the
/// host.
///
/// The manager decides when weights are loaded and evicted; gradients go to the host. The caller enqueues and runs
/// ahead, and waits where it needs a gradient. The same on every backend that has advance(agent, nanoseconds).
template <class Backend, class... Policies>
class small_job {
 public:
  small_job(Backend& backend, const job_shape& shape)
      : backend_{backend}, shape_{shape}, manager_{backend, {.chunk_bytes = layer_bytes}}
  {
    for (std::uint64_t layer = 0; layer < layers; ++layer)
      weights_.push_back(
          manager_.template add<float>({layer_bytes.count() / sizeof(float)}, chunkmem::role::parameter));
    for (const auto& it : weights_)
      (void)manager_.acquire(it, chunkmem::access::write, chunkmem::memory_location::host);
  }

  /// @return   the time by the backend's own clock [ns]
  std::uint64_t step()
  {
    const std::uint64_t begin = backend_.now();
    {
      auto scope = manager_.iteration();
      for (const auto& it : weights_) {
        const auto weight = manager_.acquire(it, chunkmem::access::read, chunkmem::agent::compute);
        backend_.advance(chunkmem::agent::compute, shape_.forward);
      }
      for (std::size_t index = weights_.size(); index-- > 0;) {
        auto weight = manager_.acquire(weights_[index], chunkmem::access::read, chunkmem::agent::compute);
        backend_.advance(chunkmem::agent::compute, shape_.backward);
        const auto gradient = manager_.gradient(std::move(weight));
        backend_.advance(chunkmem::agent::compute, 0);
      }
      for (std::size_t index = weights_.size(); index-- > 0;) {
        {
          const auto gradient = manager_.acquire_bytes(weights_[index], chunkmem::gradient_list, chunkmem::access::read,
                                                       chunkmem::memory_location::host);
          const auto weight =
              manager_.acquire(weights_[index], chunkmem::access::read_write, chunkmem::memory_location::host);
          backend_.advance(chunkmem::agent::host, shape_.update);
        }
        manager_.drop_gradient(weights_[index]);
      }
    }
    return backend_.now() - begin;
  }

  [[nodiscard]] chunkmem::report report() const { return manager_.report(); }

 private:
  Backend& backend_;
  job_shape shape_;
  chunkmem::manager<Backend, Policies...> manager_;
  std::vector<chunkmem::tensor<float>> weights_;
};

}  // namespace simulator_bench
