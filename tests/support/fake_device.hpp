// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_device.hpp>
#include <support/fake_cuda.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace support {

struct fake_device_options {
  chunkmem::bytes device_capacity{};
  chunkmem::bytes host_capacity{};
  fake_schedule when = fake_schedule::random;
  std::uint64_t seed = 1;
};

/// `cuda_device` on a GPU of its own that is threads, with the members by which tests ask a backend for its faults.
class fake_device : public chunkmem::backend::cuda_device<fake_cuda> {
 public:
  explicit fake_device(const fake_device_options& options) : fake_device{options, make(options)} {}
  fake_device(const fake_device_options& options, fake_cuda runtime)
      : cuda_device{{.device_capacity = options.device_capacity, .host_capacity = options.host_capacity}, runtime},
        runtime_{std::move(runtime)}
  {
  }

  [[nodiscard]] static fake_cuda make(const fake_device_options& options)
  {
    return fake_cuda{fake_cuda_options{.when = options.when, .seed = options.seed}};
  }
  [[nodiscard]] const fake_cuda& runtime() const noexcept { return runtime_; }

  /// Runs all that is queued.
  void drain() const { runtime_.finish(); }
  /// Broken rules that the runtime has no number for, one sentence each.
  [[nodiscard]] std::vector<std::string> faults() const { return runtime_.faults(); }

 private:
  fake_cuda runtime_;
};

static_assert(chunkmem::stream_backend<fake_device>);

}  // namespace support
