// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_device.hpp>
#include <support/fake_cuda.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

namespace support {

struct fake_device_options {
  chunkmem::bytes device_capacity{};
  chunkmem::bytes host_capacity{};
  fake_schedule when = fake_schedule::random;
  std::uint64_t seed = 1;
  bool on_slabs = false;  ///< both tiers on memory that a user has allocated
};

/// `cuda_device` on a GPU of its own that is threads, with the members by which tests ask a backend for its faults.
class fake_device : public chunkmem::backend::cuda_device<fake_cuda> {
 public:
  explicit fake_device(const fake_device_options& options) : fake_device{options, make(options)} {}
  fake_device(const fake_device_options& options, fake_cuda runtime)
      : cuda_device{{.device_capacity = options.device_capacity, .host_capacity = options.host_capacity},
                    options.on_slabs ? slabs(options, runtime) : memory_sources{},
                    runtime},
        runtime_{std::move(runtime)}
  {
  }

  [[nodiscard]] static fake_cuda make(const fake_device_options& options)
  {
    return fake_cuda{fake_cuda_options{.when = options.when, .seed = options.seed}};
  }
  [[nodiscard]] const fake_cuda& runtime() const noexcept { return runtime_; }

  /// Runs all queued work.
  void drain() const { runtime_.finish(); }
  /// Broken rules that the runtime has no number for, one sentence each.
  [[nodiscard]] std::vector<std::string> faults() const { return runtime_.faults(); }

 private:
  /// Slabs of the runtime, which frees them at its end; sizes are rounded up, as places in a slab are.
  [[nodiscard]] static memory_sources slabs(const fake_device_options& options, const fake_cuda& runtime)
  {
    fake_stream_handle stream;
    fake_pool_handle pool;
    void* there = nullptr;
    void* here = nullptr;
    const std::size_t sizes[] = {options.device_capacity.count() + 4'096, options.host_capacity.count() + 4'096};
    if (runtime.create_stream(stream) != 0 || runtime.create_pool(pool, 0, 0) != 0 ||
        runtime.allocate_device(there, sizes[0], pool, stream) != 0 || runtime.synchronize_stream(stream) != 0 ||
        runtime.allocate_pinned(here, sizes[1]) != 0)
      throw std::bad_alloc{};
    return {.device = memory_source::slab(there, chunkmem::bytes{sizes[0]}),
            .host = memory_source::slab(here, chunkmem::bytes{sizes[1]})};
  }

  fake_cuda runtime_;
};

static_assert(chunkmem::stream_backend<fake_device>);

}  // namespace support
