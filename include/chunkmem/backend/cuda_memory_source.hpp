// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_api.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace chunkmem::inline v0 {

/// Memory resources that a CUDA backend can take memory from, stream-ordered or synchronous.
///
/// Four forms are accepted, and the first that exists is used: `allocate(stream, size, alignment)`,
/// `allocate_async(size, alignment, stream)`, `allocate_sync(size, alignment)`, `allocate(size, alignment)`, each with
/// its `deallocate`. They are those of `cuda::mr`, whose names differ between versions of CCCL, and of `std::pmr`; no
/// header of them is needed. The stream is a `cudaStream_t`, from which a `cuda::stream_ref` is made. A failed
/// allocation throws `std::bad_alloc`, or an exception of the resource's own.
template <class Resource, class Stream>
concept gives_memory_on_stream =
    requires(Resource& from, Stream stream, void* place, std::size_t size, std::size_t alignment) {
      {
        from.allocate(stream, size, alignment)
      } -> std::convertible_to<void*>;
      from.deallocate(stream, place, size, alignment);
    };
template <class Resource, class Stream>
concept gives_memory_async =
    requires(Resource& from, Stream stream, void* place, std::size_t size, std::size_t alignment) {
      {
        from.allocate_async(size, alignment, stream)
      } -> std::convertible_to<void*>;
      from.deallocate_async(place, size, alignment, stream);
    };
template <class Resource>
concept gives_memory_sync = requires(Resource& from, void* place, std::size_t size, std::size_t alignment) {
  {
    from.allocate_sync(size, alignment)
  } -> std::convertible_to<void*>;
  from.deallocate_sync(place, size, alignment);
};
template <class Resource>
concept gives_memory_at_once = requires(Resource& from, void* place, std::size_t size, std::size_t alignment) {
  {
    from.allocate(size, alignment)
  } -> std::convertible_to<void*>;
  from.deallocate(place, size, alignment);
};

namespace backend {

/// The memory source of a tier of a CUDA backend. Made without arguments: the backend's own.
///
///     using source = device::memory_source;                                   // device is a cuda_device<...>
///     device memory{{}, {.device = source::slab(place, 20_GiB)}};             // the user's, left alone at the end
///     device other{{.device_capacity = 8_GiB}, {.device = source::pool(p)}};  // from a pool that others use too
///
/// The backend never frees a slab or destroys a pool or a resource, and returns to them the memory that it took. They
/// outlive the backend. Memory of the host has to be pinned: cudaMallocHost, or cudaHostRegister for your own mapping.
///
/// Streams of the backend are not ordered with the user's streams. So finish all work on this memory before the backend
/// is made (cudaStreamSynchronize), and use a slab again only after the backend's destructor. Where the destructor
/// reports that an operation does not end, the memory may still be written: neither use nor free it, and end the
/// process. After an error that ends CUDA nothing is returned to a pool or a resource.
///
/// Cost: nothing after set-up; an allocation in a slab scans the live allocations.
template <cuda_api Api>
class cuda_memory_source {
 public:
  using stream_type = typename Api::stream_type;
  using pool_type = typename Api::pool_type;

  enum class kind : std::uint8_t { own, slab, pool, resource };

  cuda_memory_source() = default;

  /// One piece of memory, for the backend alone; bytes before its first multiple of `tensor_alignment` are not used.
  /// The backend checks its first and its last byte: a hole between them, or a size that reaches into another
  /// allocation, is not detected. @throws config_error   the place is null, or has no room for a tensor
  [[nodiscard]] static cuda_memory_source slab(void* place, bytes size)
  {
    const std::uint64_t grain = tensor_alignment.count();
    const std::uint64_t skipped = (grain - std::uint64_t{reinterpret_cast<std::uintptr_t>(place)} % grain) % grain;
    if (place == nullptr || size.count() <= skipped) {
      throw config_error{error_text{} << "chunkmem: a slab of " << size.count() << " B at "
                                      << (place == nullptr ? "no address" : "its address")
                                      << " has no place for a tensor (" << grain
                                      << " B of alignment: give a larger one)"};
    }
    cuda_memory_source result;
    result.kind_ = kind::slab;
    result.place_ = static_cast<std::byte*>(place) + skipped;
    result.size_ = bytes{size.count() - skipped};
    return result;
  }

  /// A pool of the backend's device, such as the one that cudaDeviceGetDefaultMemPool names.
  /// @throws config_error   the handle is null
  [[nodiscard]] static cuda_memory_source pool(pool_type given)
  {
    if (given == pool_type{}) throw config_error{"no pool was given (make one, or take the device's default pool)"};
    cuda_memory_source result;
    result.kind_ = kind::pool;
    result.pool_ = given;
    return result;
  }

  /// A memory resource; it is called with the backend's device current, and with a stream of the backend. Its address
  /// is kept: a reference to a resource, as `cuda::mr::resource_ref`, has to outlive the backend too.
  template <class Resource>
    requires gives_memory_on_stream<Resource, stream_type> || gives_memory_async<Resource, stream_type> ||
             gives_memory_sync<Resource> || gives_memory_at_once<Resource>
  [[nodiscard]] static cuda_memory_source resource(Resource& given)
  {
    cuda_memory_source result;
    result.kind_ = kind::resource;
    result.resource_ = const_cast<void*>(static_cast<const void*>(std::addressof(given)));
    result.allocate_ = [](void* it, std::size_t size, stream_type stream) -> void* {
      Resource& from = *static_cast<Resource*>(it);
      const std::size_t alignment = tensor_alignment.count();
      if constexpr (gives_memory_on_stream<Resource, stream_type>)
        return from.allocate(stream, size, alignment);
      else if constexpr (gives_memory_async<Resource, stream_type>)
        return from.allocate_async(size, alignment, stream);
      else if constexpr (gives_memory_sync<Resource>)
        return from.allocate_sync(size, alignment);
      else
        return from.allocate(size, alignment);
    };
    result.deallocate_ = [](void* it, void* place, std::size_t size, stream_type stream) {
      Resource& to = *static_cast<Resource*>(it);
      const std::size_t alignment = tensor_alignment.count();
      if constexpr (gives_memory_on_stream<Resource, stream_type>)
        to.deallocate(stream, place, size, alignment);
      else if constexpr (gives_memory_async<Resource, stream_type>)
        to.deallocate_async(place, size, alignment, stream);
      else if constexpr (gives_memory_sync<Resource>)
        to.deallocate_sync(place, size, alignment);
      else
        to.deallocate(place, size, alignment);
    };
    return result;
  }
  template <class Resource>
  static cuda_memory_source resource(const Resource&& passing) = delete;  // a temporary would end before its first call

  [[nodiscard]] kind what() const noexcept { return kind_; }
  [[nodiscard]] std::byte* place() const noexcept { return place_; }
  [[nodiscard]] bytes size() const noexcept { return size_; }
  [[nodiscard]] pool_type given_pool() const noexcept { return pool_; }
  /// @pre   this is a resource   @throws what the resource throws
  [[nodiscard]] void* allocate(std::size_t size, stream_type stream) const
  {
    return allocate_(resource_, size, stream);
  }
  void deallocate(void* place, std::size_t size, stream_type stream) const
  {
    deallocate_(resource_, place, size, stream);
  }

 private:
  kind kind_ = kind::own;
  std::byte* place_ = nullptr;
  bytes size_;
  pool_type pool_{};
  void* resource_ = nullptr;
  void* (*allocate_)(void* resource, std::size_t size, stream_type stream) = nullptr;
  void (*deallocate_)(void* resource, void* place, std::size_t size, stream_type stream) = nullptr;
};

}  // namespace backend
}  // namespace chunkmem::inline v0
