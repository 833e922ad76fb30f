// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !__has_include(<thrust/version.h>)
#error "chunkmem: backend/thrust_device.hpp needs Thrust: link chunkmem::thrust, or name the folder of thrust/version.h"
#elif !defined(__CUDACC__) && !defined(THRUST_DEVICE_SYSTEM)
#error "chunkmem: which Thrust system? Define THRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP, _OMP or _TBB (CUDA: nvcc)"
#else

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/backend/tier_ledger.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>

#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/memory.h>
#include <thrust/system/cpp/execution_policy.h>

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/cuda_runtime.hpp>

#include <thrust/system/cuda/execution_policy.h>
#endif

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>

namespace chunkmem::inline v0 {
namespace backend {

/// Capacities of the device and of the host.
///
///     const thrust_device_options options{.device_capacity = 64_MiB, .host_capacity = 1_GiB};
///     on_caller<thrust_device<thrust::omp::tag>> memory{options};
struct thrust_device_options {
  bytes device_capacity{};  ///< of the system's memory
  bytes host_capacity{};    ///< of the host tier
};

/// The device is what Thrust calls one: memory of a Thrust system, filled and copied by its algorithms.
///
/// This is the form for systems on the CPU: `thrust::cpp::tag`, `thrust::omp::tag`, `thrust::tbb::tag`, and any type
/// that derives from the execution policy of one of them. A memory backend, on as many cores as the system uses; it has
/// no streams, so a manager takes `on_caller<thrust_device<System>>`. Both tiers are memory of the caller: a kernel is
/// any loop, or a Thrust algorithm on `pin.data()` with `System{}` as its policy. Good for trainers written in Thrust
/// that have to run without a GPU too; slower than `host_arena`, because no copy overlaps compute.
/// Memory of the device comes from `thrust::malloc`, 263 B more for each allocation. Copies and fills are one
/// `thrust::for_each_n` over parts of 1 KiB: `thrust::copy` moves single bytes on OMP and TBB, five times slower.
/// Needs a host compiler (nvcc does not know these systems) and the header of the system; OMP its compiler flag, TBB
/// its library.
/// Cost: one parallel region for each copy and fill; O(live allocations) per allocation.
///
/// @tparam System   a Thrust system
/// @threads         one caller at a time, from any thread
template <class System>
class thrust_device {
  static_assert(std::derived_from<System, thrust::cpp::execution_policy<System>>,
                "chunkmem: this Thrust system does not share the memory of the caller: use thrust::cpp::tag, "
                "thrust::omp::tag, thrust::tbb::tag or a system made of them; thrust::cuda::tag needs nvcc and "
                "THRUST_DEVICE_SYSTEM_CUDA");

 public:
  static constexpr bool host_addressable = true;

  explicit thrust_device(const thrust_device_options& options, const System& system = {})
      : ledger_{options.device_capacity, options.host_capacity}, system_{system}
  {
  }
  thrust_device(const thrust_device&) = delete;
  thrust_device& operator=(const thrust_device&) = delete;

  /// Frees memory that was not released.
  ~thrust_device()
  {
    for (const tier_ledger::allocation& entry : ledger_.allocations()) give_back(entry.where, entry.place);
  }

  [[nodiscard]] bytes capacity(tier where) const noexcept { return ledger_.capacity(where); }

  /// @throws usage_error     size is 0, or there is no such tier
  /// @throws out_of_memory   above the capacity, or the system has no more; nothing was changed
  /// @throws device_error    the system failed in another way; nothing was changed
  [[nodiscard]] std::byte* allocate(tier where, bytes size)
  {
    ledger_.require(where, size);
    std::byte* const place = where == tier::device ? take_of_system(size) : take_of_host(size);
    if (place == nullptr) ledger_.refuse(where, size);
    ledger_.add(where, place, size);
    return place;
  }

  /// Null is ignored; an address that was never allocated is counted by `unknown_releases` and left alone.
  void release(tier where, std::byte* place) noexcept
  {
    if (ledger_.remove(where, place) != bytes{}) give_back(where, place);
  }
  [[nodiscard]] std::uint64_t unknown_releases() const noexcept { return ledger_.unknown_releases(); }

  /// The two ranges share no byte.
  /// @throws usage_error    a null address; nothing was done
  /// @throws device_error   the system failed; the destination bytes are unspecified
  void copy(std::byte* to, const std::byte* from, bytes size)
  {
    require_places(to, from, size);
    for_each_part("copy", size, copy_part{to, from, size.count()});
  }
  /// @throws usage_error    a null address; nothing was done
  /// @throws device_error   the system failed; the destination bytes are unspecified
  void fill(std::byte* to, std::byte value, bytes size)
  {
    require_places(to, to, size);
    for_each_part("fill", size, fill_part{to, value, size.count()});
  }

 private:
  static constexpr std::uint64_t part = 1'024;  // small enough that a test's frame has several

  struct copy_part {
    std::byte* to;
    const std::byte* from;
    std::uint64_t size;
    void operator()(std::ptrdiff_t index) const noexcept
    {
      const std::uint64_t first = first_of(index);
      std::memcpy(to + first, from + first, length_of(first, size));
    }
  };
  struct fill_part {
    std::byte* to;
    std::byte value;
    std::uint64_t size;
    void operator()(std::ptrdiff_t index) const noexcept
    {
      const std::uint64_t first = first_of(index);
      std::memset(to + first, std::to_integer<int>(value), length_of(first, size));
    }
  };
  [[nodiscard]] static std::uint64_t first_of(std::ptrdiff_t index) noexcept
  {
    return static_cast<std::uint64_t>(index) * part;
  }
  [[nodiscard]] static std::uint64_t length_of(std::uint64_t first, std::uint64_t size) noexcept
  {
    return size - first < part ? size - first : part;
  }

  template <class Work>
  void for_each_part(const char* what, bytes size, Work work)
  {
    const auto parts = static_cast<std::ptrdiff_t>(size.count() / part + (size.count() % part == 0 ? 0 : 1));
    try {
      thrust::for_each_n(system_, thrust::counting_iterator<std::ptrdiff_t>{0}, parts, work);
    } catch (const std::exception& failed) {
      fail(what, size, failed);
    }
  }

  [[noreturn]] static void fail(const char* what, bytes size, const std::exception& failed)
  {
    throw device_error{error_text{} << "chunkmem: Thrust failed to " << what << " " << size.count()
                                    << " B: " << failed.what() << " (see what the system says)"};
  }

  // Thrust aligns as malloc does. The address to free is stored before the aligned one.
  static constexpr std::uint64_t slack = tensor_alignment.count() + sizeof(void*) - 1;

  [[nodiscard]] std::byte* take_of_system(bytes size)
  {
    if (size.count() > PTRDIFF_MAX - slack) return nullptr;
    void* block = nullptr;
    try {
      block = thrust::raw_pointer_cast(thrust::malloc(system_, size.count() + slack));
    } catch (const std::bad_alloc&) {
      return nullptr;
    } catch (const std::exception& failed) {
      fail("allocate", size, failed);
    }
    if (block == nullptr) return nullptr;
    void* place = static_cast<std::byte*>(block) + sizeof block;
    std::size_t space = size.count() + slack - sizeof block;
    std::align(tensor_alignment.count(), size.count(), place, space);
    std::memcpy(static_cast<std::byte*>(place) - sizeof block, &block, sizeof block);
    return static_cast<std::byte*>(place);
  }

  static constexpr std::align_val_t alignment{tensor_alignment.count()};
  [[nodiscard]] static std::byte* take_of_host(bytes size) noexcept
  {
    if (size.count() > PTRDIFF_MAX - tensor_alignment.count()) return nullptr;
    return static_cast<std::byte*>(::operator new(size.count(), alignment, std::nothrow));
  }

  void give_back(tier where, std::byte* place) noexcept
  {
    if (where == tier::host) return ::operator delete(place, alignment);
    void* block = nullptr;
    std::memcpy(&block, place - sizeof block, sizeof block);
    thrust::free(system_, thrust::pointer<void, System>{block});
  }

  tier_ledger ledger_;
  System system_;
};

#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_CUDA
/// On a GPU: `cuda_device` under the name of a Thrust system, for programs that choose by it.
///
/// A stream backend; a kernel is a Thrust algorithm on the stream of its agent:
/// `thrust::transform(thrust::cuda::par_nosync.on(memory.stream(agent::compute)), ...)`. The device tier is a pool of
/// the CUDA runtime, and Thrust accepts any address of it; the host tier is pinned. A device capacity of 0 takes all
/// free memory of the GPU, less a headroom. For another device than the first, or another headroom, use `cuda_device`.
/// Needs nvcc; laws, errors, costs and threads are those of `cuda_device`.
template <>
class thrust_device<thrust::cuda::tag> : public cuda_device<cuda_runtime> {
 public:
  /// @throws out_of_memory, device_error   as `cuda_device` does
  explicit thrust_device(const thrust_device_options& options)
      : cuda_device<cuda_runtime>{
            cuda_device_options{.device_capacity = options.device_capacity, .host_capacity = options.host_capacity}}
  {
  }
};

static_assert(stream_backend<thrust_device<thrust::cuda::tag>>);
#else
static_assert(memory_backend<thrust_device<thrust::cpp::tag>>);
#endif

}  // namespace backend
}  // namespace chunkmem::inline v0

#endif
