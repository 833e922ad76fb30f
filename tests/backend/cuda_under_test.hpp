// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_device.hpp>
#include <support/catch.hpp>
#include <support/fake_cuda.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace under_test {

using cuda = chunkmem::backend::cuda_device<support::fake_cuda>;
using tested_session = chunkmem::backend::cuda_session<support::fake_cuda>;

inline constexpr chunkmem::bytes some{64 * 1024};

/// Fails the case where the GPU saw a broken rule, or where an object was not released.
inline void check_clean(const support::fake_cuda& gpu)
{
  gpu.finish();
  for (const std::string& fault : gpu.faults()) FAIL_CHECK(fault);
  CHECK(gpu.live() == support::fake_live{});
}

/// A fake GPU with a backend on it. `end()` destroys the backend and checks that nothing is left.
struct rig {
  explicit rig(const support::fake_cuda_options& options = {}) : gpu{options} { start(); }
  explicit rig(support::fake_schedule when, std::uint64_t seed = 1)
      : rig{support::fake_cuda_options{.when = when, .seed = seed}}
  {
  }

  void start()
  {
    before = gpu.calls();
    device.emplace(chunkmem::backend::cuda_device_options{.device_capacity = some, .host_capacity = some}, gpu);
  }
  void end()
  {
    device.reset();
    check_clean(gpu);
  }

  [[nodiscard]] cuda& mem() noexcept { return *device; }
  [[nodiscard]] std::byte* there(std::uint64_t size)
  {
    return mem().allocate(chunkmem::tier::device, chunkmem::bytes{size});
  }
  [[nodiscard]] std::byte* here(std::uint64_t size)
  {
    return mem().allocate(chunkmem::tier::host, chunkmem::bytes{size});
  }
  [[nodiscard]] std::vector<std::byte> bytes_at(const std::byte* place, std::uint64_t size)
  {
    std::vector<std::byte> found(size);
    mem().copy(found.data(), place, chunkmem::bytes{size});
    return found;
  }

  support::fake_cuda gpu;
  std::optional<cuda> device;
  std::uint64_t before = 0;  ///< calls of the GPU that were not the backend's
};

/// Memory that a user allocates on a fake GPU, without any backend.
struct users_memory {
  explicit users_memory(support::fake_cuda its_gpu, int device = 0) : gpu{std::move(its_gpu)}
  {
    REQUIRE(gpu.use_device(device) == 0);
    REQUIRE(gpu.create_stream(stream) == 0);
    if (gpu.create_pool(pool, device, 0) != 0) FAIL("no pool");
  }
  users_memory(const users_memory&) = delete;
  users_memory& operator=(const users_memory&) = delete;
  ~users_memory()
  {
    for (std::byte* const each : there) CHECK(gpu.free_device(each, stream) == 0);
    for (std::byte* const each : here) CHECK(gpu.free_pinned(each) == 0);
    CHECK(gpu.destroy_stream(stream) == 0);
    if (pool != support::fake_pool_handle{}) CHECK(gpu.destroy_pool(pool) == 0);
  }

  [[nodiscard]] std::byte* on_device(std::size_t size)
  {
    void* fresh = nullptr;
    REQUIRE(gpu.allocate_device(fresh, size, pool, stream) == 0);
    REQUIRE(gpu.synchronize_stream(stream) == 0);
    return there.emplace_back(static_cast<std::byte*>(fresh));
  }
  [[nodiscard]] std::byte* pinned(std::size_t size)
  {
    void* fresh = nullptr;
    REQUIRE(gpu.allocate_pinned(fresh, size) == 0);
    return here.emplace_back(static_cast<std::byte*>(fresh));
  }

  support::fake_cuda gpu;
  support::fake_stream_handle stream;
  support::fake_pool_handle pool;
  std::vector<std::byte*> there{}, here{};
};

/// A kernel for `launch(agent, callable)`.
template <class Body>
[[nodiscard]] auto kernel(Body body)
{
  return [body](support::fake_stream_handle stream) { support::launch_kernel(stream, body); };
}

/// What a call threw, as a device_error; fails the case where it threw none.
template <class Call>
[[nodiscard]] chunkmem::device_fault fault_of(Call&& call)
{
  try {
    std::forward<Call>(call)();
  } catch (const chunkmem::device_error& error) {
    return error.fault();
  }
  FAIL_CHECK("no device_error was thrown");
  return {};
}

[[nodiscard]] inline bool all_are(const std::vector<std::byte>& found, int value)
{
  return std::ranges::all_of(found, [value](std::byte it) { return it == static_cast<std::byte>(value); });
}
[[nodiscard]] inline bool all_are(const std::byte* place, std::uint64_t size, int value)
{
  return std::all_of(place, place + size, [value](std::byte it) { return it == static_cast<std::byte>(value); });
}

}  // namespace under_test
