// SPDX-License-Identifier: Apache-2.0
#pragma once

// CCCL 3.0 has its memory resources only with this macro; newer releases ignore it.
#if !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#endif

#include <chunkmem/core/tier.hpp>
#include <chunkmem/interop/tier_memory.hpp>

#include <cuda/memory_resource>
#include <cuda/stream_ref>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace chunkmem::inline v0 {
namespace interop {

/// Memory of a tier as a resource of CCCL (`cuda::mr`). Libraries that accept such a resource then work within a
/// manager's budget.
///
/// Every allocation is a lease, ordered in the stream that asks for it. The bytes are ready for work of this stream.
/// The next user of the bytes waits for the work of this stream before they were freed. The default streams are
/// refused, and a backend adopts few others. Models both versions of the concepts: `async_resource` of CCCL 3.0, and
/// `resource` of 3.1 and newer. In a rehearsal addresses are null. Copies are handles of one resource, as CCCL
/// requires. The end of the last copy ends all live leases. Cost: that of a lease, no heap once steps repeat.
///
/// Use:
///
///     interop::stream_memory<manager_type> device{m};   // to a library that takes a resource of CCCL
///
/// @tparam Where   tier::device, or tier::host: pinned memory, which both sides read
/// @threads        one caller per manager
template <class Manager, tier Where = tier::device>
class stream_memory {
  static_assert(Where == tier::device || Where == tier::host,
                "chunkmem: stream_memory is of the device or the host tier");

 public:
  /// @param m   of a backend whose streams are CUDA's; outlives this
  explicit stream_memory(Manager& m) : leases_{std::make_shared<leases_type>(m)} {}

  /// Ready for the calling thread, and for work that it enqueues anywhere from now on.
  /// @throws out_of_memory   a std::bad_alloc: no room, with the need of this moment; std::bad_alloc   a stricter
  ///   alignment than tensors have
  [[nodiscard]] void* allocate_sync(std::size_t size, std::size_t alignment)
  {
    return leases_->take(Where, size, alignment);
  }
  /// @pre   all work on it is done
  void deallocate_sync(void* data, std::size_t size, std::size_t) noexcept { leases_->give(data, size); }

  /// Ready for work of the stream. @throws as allocate_sync; usage_error   a default stream, or too many streams
  [[nodiscard]] void* allocate(cuda::stream_ref stream, std::size_t size, std::size_t alignment)
  {
    return leases_->take(stream.get(), Where, size, alignment);
  }
  /// All work on it was given to the stream, or to streams that it waits for.
  void deallocate(cuda::stream_ref stream, void* data, std::size_t size, std::size_t) noexcept
  {
    leases_->give(stream.get(), data, size);
  }

  // The same by the names of CCCL 3.0.
  [[nodiscard]] void* allocate(std::size_t size, std::size_t alignment) { return allocate_sync(size, alignment); }
  void deallocate(void* data, std::size_t size, std::size_t alignment) noexcept
  {
    deallocate_sync(data, size, alignment);
  }
  [[nodiscard]] void* allocate_async(std::size_t size, std::size_t alignment, cuda::stream_ref stream)
  {
    return allocate(stream, size, alignment);
  }
  void deallocate_async(void* data, std::size_t size, std::size_t alignment, cuda::stream_ref stream) noexcept
  {
    deallocate(stream, data, size, alignment);
  }

  /// Whether each can free the allocations of the other.
  [[nodiscard]] bool operator==(const stream_memory& other) const noexcept { return leases_ == other.leases_; }
  [[nodiscard]] bool operator!=(const stream_memory& other) const noexcept { return leases_ != other.leases_; }

  friend constexpr void get_property(const stream_memory&, cuda::mr::device_accessible) noexcept {}
  friend constexpr void get_property(const stream_memory&, cuda::mr::host_accessible) noexcept
    requires(Where == tier::host)
  {
  }

  /// The live leases, and counts of wrong returns: see stream_leases.
  [[nodiscard]] const auto& leases() const noexcept { return *leases_; }

 private:
  using leases_type = stream_leases<Manager, cudaStream_t>;
  std::shared_ptr<leases_type> leases_;
};

}  // namespace interop
}  // namespace chunkmem::inline v0
