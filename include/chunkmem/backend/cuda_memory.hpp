// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_api.hpp>
#include <chunkmem/backend/cuda_session.hpp>
#include <chunkmem/backend/tier_ledger.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/tier.hpp>

#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {
namespace backend {

/// The memory of a CUDA backend: a private pool of its device, and pinned memory of the host.
///
///     cuda_memory<Api> memory{session, 0, 20_GiB, 100_GiB};
///     std::byte* const place = memory.allocate(tier::device, 64_MiB, own);
///     memory.release(tier::device, place, own);
///
/// Budgets are kept by the ledger, in bytes asked for; the pool's own limit lies above, since it rounds. Nothing goes
/// back to the system before the end, so the same arena may be taken again at no cost. Where the device has no pools,
/// plain memory of the device takes their place. Cost: a call or two of the runtime, and one wait for the own stream;
/// for set-up.
///
/// @pre   the backend's device is current where this is made, and in `allocate`
/// @threads   one caller at a time
template <cuda_api Api>
class cuda_memory {
 public:
  using stream_type = typename Api::stream_type;

  /// @throws device_error   the runtime gives no pool
  cuda_memory(cuda_session<Api>& session, int ordinal, bytes device_capacity, bytes host_capacity)
      : session_{&session}, ledger_{device_capacity, host_capacity}
  {
    session.count_allocation();
    const std::size_t limit = limit_for(device_capacity.count());
    session.require("cudaMemPoolCreate", [&](const Api& api) { return api.create_pool(pool_, ordinal, limit); });
  }
  cuda_memory(const cuda_memory&) = delete;
  cuda_memory& operator=(const cuda_memory&) = delete;

  /// Destroys the pool. What `give_all_back` was not called for stays with the process.
  ~cuda_memory()
  {
    if (pool_ != typename Api::pool_type{})
      (void)session_->attempt("cudaMemPoolDestroy", [&](const Api& api) { return api.destroy_pool(pool_); });
  }

  [[nodiscard]] const tier_ledger& ledger() const noexcept { return ledger_; }

  /// True where all of these bytes are memory of this tier from here.
  [[nodiscard]] bool holds(tier where, const std::byte* place, bytes size) const noexcept
  {
    const tier_ledger::allocation* const found = ledger_.holding(place, size);
    return found != nullptr && found->where == where;
  }

  /// @param own   a stream of the calling thread, finished before the memory is used
  /// @throws usage_error     size is 0, or there is no such tier
  /// @throws out_of_memory   past the capacity, or the system has no more; nothing was changed
  /// @throws device_error    the runtime failed otherwise; nothing was changed, or the session is lost
  [[nodiscard]] std::byte* allocate(tier where, bytes size, stream_type own)
  {
    ledger_.require(where, size);
    session_->count_allocation();
    void* fresh = nullptr;
    const std::size_t count = size.count();
    const int number =
        where == tier::device
            ? session_->attempt("cudaMallocFromPoolAsync",
                                [&](const Api& api) { return api.allocate_device(fresh, count, pool_, own); })
            : session_->attempt("cudaHostAlloc", [&](const Api& api) { return api.allocate_pinned(fresh, count); });
    if (fault_of_cuda_error(number) == cuda_fault::memory && !session_->is_lost()) ledger_.refuse(where, size);
    if (number != 0) session_->raise();
    if (reinterpret_cast<std::uintptr_t>(fresh) % tensor_alignment.count() != 0) {
      free(where, fresh, own);
      throw device_error{error_text{} << "chunkmem: the runtime gave memory on the " << name_of(where)
                                      << " tier that is not aligned to " << tensor_alignment.count()
                                      << " B (report this)"};
    }
    ledger_.add(where, static_cast<std::byte*>(fresh), size);
    if (where == tier::device && !session_->finish(own)) session_->raise();  // before then, only this stream may use it
    return static_cast<std::byte*>(fresh);
  }

  /// Null is ignored, and what is not from here is counted and left alone.
  /// @pre   all work that touches it is over
  void release(tier where, std::byte* place, stream_type own) noexcept
  {
    if (ledger_.remove(where, place) != bytes{}) free(where, place, own);
  }

  /// @pre   all work is over
  void give_all_back(stream_type own) noexcept
  {
    for (const tier_ledger::allocation& entry : ledger_.allocations()) free(entry.where, entry.place, own);
  }

 private:
  /// 0, which is none, where no device has that much.
  [[nodiscard]] static std::size_t limit_for(std::uint64_t capacity) noexcept
  {
    constexpr std::uint64_t grain = std::uint64_t{32} << 20;  // pools grow in pieces; two more for what rounding takes
    return capacity > (std::uint64_t{1} << 48) ? 0 : (capacity / grain + 3) * grain;
  }

  /// Tries again where it failed: a second free of the same address is an error and no harm.
  void free(tier where, void* place, stream_type own) noexcept
  {
    const auto call = [&](const Api& api) {
      if (where == tier::host) return api.free_pinned(place);
      return api.free_device(place, own);
    };
    (void)session_->insist(where == tier::host ? "cudaFreeHost" : "cudaFreeAsync", call);
  }

  cuda_session<Api>* session_;
  tier_ledger ledger_;
  typename Api::pool_type pool_{};
};

}  // namespace backend
}  // namespace chunkmem::inline v0
