// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_api.hpp>
#include <chunkmem/backend/cuda_memory_source.hpp>
#include <chunkmem/backend/cuda_session.hpp>
#include <chunkmem/backend/tier_ledger.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/tier.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {
namespace backend {

/// The memory sources of the two tiers of a CUDA backend.
///
///     const cuda_memory_sources<Api> given{.device = cuda_memory_source<Api>::slab(place, 20_GiB)};
template <cuda_api Api>
struct cuda_memory_sources {
  cuda_memory_source<Api> device{};  ///< by default a private pool of the device
  cuda_memory_source<Api> host{};    ///< by default memory that is pinned when it is allocated
};

/// The memory of a CUDA backend: of its device, and pinned memory of the host.
///
///     cuda_memory<Api> memory{session, 0, 20_GiB, 100_GiB};
///     std::byte* const place = memory.allocate(tier::device, 64_MiB, own);
///     memory.release(tier::device, place, own);
///
/// The ledger keeps the budgets, in requested bytes; the limit of the backend's own pool is larger, since a pool
/// rounds. The pool returns no memory to the system before its end, so the same arena may be allocated again at no
/// cost. Where the device has no pools, plain device memory takes their place. The user's memory has to be of the
/// tier's kind. Cost: a call or two of the runtime, and one wait for the own stream; for set-up.
///
/// @pre   the backend's device is current where this is made, and in `allocate`
/// @threads   one caller at a time
template <cuda_api Api>
class cuda_memory {
 public:
  using stream_type = typename Api::stream_type;
  using source = cuda_memory_source<Api>;

  /// @throws device_error   the runtime gives no pool   @throws config_error   the given memory is not of its tier's
  ///   kind
  cuda_memory(cuda_session<Api>& session, int ordinal, bytes device_capacity, bytes host_capacity,
              const cuda_memory_sources<Api>& given = {})
      : session_{&session}, device_{ordinal}, ledger_{device_capacity, host_capacity}
  {
    given_[tier::device] = given.device;
    given_[tier::host] = given.host;
    for (const tier where : {tier::device, tier::host})
      if (given_[where].what() == source::kind::slab) require_kind(where, given_[where].place(), given_[where].size());
    if (given.device.what() != source::kind::own) return;
    session.count_allocation();
    const std::size_t limit = limit_for(device_capacity.count());
    session.require("cudaMemPoolCreate", [&](const Api& api) { return api.create_pool(pool_, ordinal, limit); });
  }
  cuda_memory(const cuda_memory&) = delete;
  cuda_memory& operator=(const cuda_memory&) = delete;

  /// Destroys the backend's own pool. Without a call of `give_all_back`, allocations stay with the process.
  ~cuda_memory()
  {
    if (pool_ != typename Api::pool_type{})
      (void)session_->attempt("cudaMemPoolDestroy", [&](const Api& api) { return api.destroy_pool(pool_); });
  }

  /// The capacity of a tier on the user's memory: `asked`, or all of a slab where that is 0.
  /// @throws config_error   the slab has less, or the capacity on a pool or a resource is 0
  [[nodiscard]] static bytes capacity_on(const source& given, tier where, bytes asked)
  {
    if (given.what() == source::kind::own || (given.what() != source::kind::slab && asked != bytes{})) return asked;
    if (given.what() != source::kind::slab) {
      throw config_error{error_text{} << "chunkmem: memory for the " << name_of(where)
                                      << " tier is to come from a pool or a resource, and its capacity is 0 (set "
                                      << (where == tier::device ? "device_capacity)" : "host_capacity)")};
    }
    if (asked <= given.size()) return asked != bytes{} ? asked : given.size();
    throw config_error{error_text{} << "chunkmem: the slab for the " << name_of(where) << " tier has "
                                    << given.size().count() << " B from its first aligned byte on, and its capacity is "
                                    << asked.count() << " B (give more memory, or make the capacity smaller)"};
  }

  [[nodiscard]] const tier_ledger& ledger() const noexcept { return ledger_; }

  /// Bytes of the device that this backend holds: a slab; all that a pool keeps, rounding included; or the allocated
  /// bytes of a resource, or of a device without pools. @throws device_error
  [[nodiscard]] std::uint64_t held_on_device()
  {
    const source& from = given_[tier::device];
    if (from.what() == source::kind::slab) return from.size().count();
    std::size_t held = ledger_.live(tier::device).count();
    const auto pool = from.what() == source::kind::pool ? from.given_pool() : pool_;
    if (pool != typename Api::pool_type{})
      session_->require("cudaMemPoolGetAttribute", [&](const Api& api) { return api.pool_memory(pool, held); });
    return held;
  }

  /// Names the memory that is not freed because work on it does not end, with advice. @pre nothing was given back
  void tell_what_stays(error_text& into) const noexcept
  {
    std::string_view joint;
    for (const tier where : {tier::device, tier::host}) {
      const std::uint64_t live = ledger_.live(where).count();
      const auto from = given_[where].what();
      if (live == 0) continue;
      into << joint << live << " B of the " << name_of(where);
      if (from == source::kind::own) into << " stay with this process";
      if (from == source::kind::slab)
        into << " lie in your slab and may still be written (do not use or free the slab)";
      if (from == source::kind::pool)
        into << " are not given back to your pool and may still be written (do not destroy the pool)";
      if (from == source::kind::resource)
        into << " are not given back to your resource and may still be written (do not free what it handed out)";
      joint = "; ";
    }
    if (joint.empty()) into << "no memory is held";
  }

  /// Replaces the backend's own pool by an empty one, so that the memory it kept is free.
  /// @pre   the own stream has no work
  /// @throws usage_error    memory of the device is allocated, or comes from memory of the user's; nothing was changed
  /// @throws device_error   the runtime gives no pool; nothing was changed
  void renew_pool()
  {
    if (given_[tier::device].what() != source::kind::own)
      throw usage_error{"the device tier lies on the user's memory: its capacity is that of the options"};
    if (ledger_.live(tier::device) != bytes{})
      throw usage_error{error_text{} << "chunkmem: the capacity of the device tier cannot change, and "
                                     << ledger_.live(tier::device).count()
                                     << " B of it are allocated (call this before a manager uses the backend)"};
    session_->count_allocation();
    typename Api::pool_type fresh{};
    session_->require("cudaMemPoolCreate", [&](const Api& api) { return api.create_pool(fresh, device_, 0); });
    const typename Api::pool_type old = std::exchange(pool_, fresh);
    if (old != typename Api::pool_type{})
      (void)session_->insist("cudaMemPoolDestroy", [&](const Api& api) { return api.destroy_pool(old); });
  }
  /// @pre   renew_pool
  void resize_device(bytes capacity) noexcept { ledger_.resize(tier::device, capacity); }

  /// True where all of these bytes were allocated here, on this tier.
  [[nodiscard]] bool holds(tier where, const std::byte* place, bytes size) const noexcept
  {
    const tier_ledger::allocation* const found = ledger_.holding(place, size);
    return found != nullptr && found->where == where;
  }

  /// @param own   a stream of the calling thread, finished before the memory is used
  /// @throws usage_error     size is 0, or there is no such tier
  /// @throws out_of_memory   above the capacity, or the system or the source has no more; nothing was changed
  /// @throws device_error    the runtime failed otherwise; nothing was changed, or the session is lost. Or a resource
  ///   threw an exception of its own, other than std::bad_alloc: its text is in the error
  /// @throws config_error    a pool or resource gives no memory of this tier
  [[nodiscard]] std::byte* allocate(tier where, bytes size, stream_type own)
  {
    ledger_.require(where, size);
    void* const fresh = take(where, size, own);
    if (reinterpret_cast<std::uintptr_t>(fresh) % tensor_alignment.count() != 0) {
      free({.where = where, .place = static_cast<std::byte*>(fresh), .size = size}, own);
      throw device_error{error_text{} << "chunkmem: memory on the " << name_of(where) << " tier is not aligned to "
                                      << tensor_alignment.count() << " B ("
                                      << (given_[where].what() == source::kind::resource
                                              ? "make the resource respect the alignment)"
                                              : "report this)")};
    }
    ledger_.add(where, static_cast<std::byte*>(fresh), size);
    const bool is_of_stream =
        given_[where].what() == source::kind::own ? where == tier::device : given_[where].what() != source::kind::slab;
    if (is_of_stream && !session_->finish(own)) session_->raise();  // before then, only this stream may use it
    return static_cast<std::byte*>(fresh);
  }

  /// Null is ignored; an address that was not allocated here is counted and left alone.
  /// @pre   all work that touches it is over
  void release(tier where, std::byte* place, stream_type own) noexcept
  {
    const bytes size = ledger_.remove(where, place);
    if (size != bytes{}) free({.where = where, .place = place, .size = size}, own);
  }

  /// @pre   all work is over
  void give_all_back(stream_type own) noexcept
  {
    for (const tier_ledger::allocation& entry : ledger_.allocations()) free(entry, own);
  }

 private:
  /// The limit of a pool; 0, which means none, where no device has that much.
  [[nodiscard]] static std::size_t limit_for(std::uint64_t capacity) noexcept
  {
    constexpr std::uint64_t grain = std::uint64_t{32} << 20;  // pools grow in pieces; two more for what rounding takes
    return capacity > (std::uint64_t{1} << 48) ? 0 : (capacity / grain + 3) * grain;
  }

  [[nodiscard]] void* take(tier where, bytes size, stream_type own)
  {
    const source& given = given_[where];
    if (given.what() == source::kind::slab) return room_in_slab(where, size);
    void* const fresh = given.what() == source::kind::resource ? take_from_resource(where, size, own)
                                                               : take_from_runtime(where, size, own);
    if (given.what() != source::kind::own) {
      try {
        require_kind(where, static_cast<std::byte*>(fresh), size);
      } catch (...) {
        free({.where = where, .place = static_cast<std::byte*>(fresh), .size = size}, own);
        throw;
      }
    }
    return fresh;
  }

  [[nodiscard]] void* take_from_runtime(tier where, bytes size, stream_type own)
  {
    session_->count_allocation();
    void* fresh = nullptr;
    const std::size_t count = size.count();
    const auto pool = given_[where].what() == source::kind::pool ? given_[where].given_pool() : pool_;
    const int number =
        where == tier::device || given_[where].what() == source::kind::pool
            ? session_->attempt("cudaMallocFromPoolAsync",
                                [&](const Api& api) { return api.allocate_device(fresh, count, pool, own); })
            : session_->attempt("cudaHostAlloc", [&](const Api& api) { return api.allocate_pinned(fresh, count); });
    if (fault_of_cuda_error(number) == cuda_fault::memory && !session_->is_lost()) ledger_.refuse(where, size);
    if (number != 0) session_->raise();
    return fresh;
  }

  [[nodiscard]] void* take_from_resource(tier where, bytes size, stream_type own)
  {
    void* fresh = nullptr;
    try {
      fresh = given_[where].allocate(size.count(), own);
    } catch (const error&) {
      throw;
    } catch (const std::bad_alloc&) {
    } catch (const std::exception& its_own) {  // as cuda::cuda_error, whose number only its header knows
      raise_refusal(where, size, its_own.what());
    } catch (...) {
      raise_refusal(where, size, "an exception without a text");
    }
    if (fresh == nullptr) ledger_.refuse(where, size);
    return fresh;
  }

  [[noreturn]] static void raise_refusal(tier where, bytes size, std::string_view why)
  {
    throw device_error{error_text{} << "chunkmem: the resource for the " << name_of(where) << " tier did not give "
                                    << size.count() << " B: " << why
                                    << " (if it has no more, make the capacity smaller)"};
  }

  /// The first gap that is large enough: at the beginning, or after an allocation. Never null.
  [[nodiscard]] void* room_in_slab(tier where, bytes size) const
  {
    const std::uint64_t grain = tensor_alignment.count();
    const std::uint64_t start = address_of(given_[where].place());
    const std::uint64_t end = start + given_[where].size().count();
    std::uint64_t best = end;
    const auto look_at = [&](std::uint64_t from) {
      from = (from + grain - 1) / grain * grain;
      if (from >= best || size.count() > end - from) return;
      for (const tier_ledger::allocation& it : ledger_.allocations()) {
        const std::uint64_t other = address_of(it.place);
        if (it.where == where && other < from + size.count() && from < other + it.size.count()) return;
      }
      best = from;
    };
    look_at(start);
    for (const tier_ledger::allocation& it : ledger_.allocations())
      if (it.where == where) look_at(address_of(it.place) + it.size.count());
    if (best == end) ledger_.refuse(where, size);
    return given_[where].place() + (best - start);
  }

  /// Checks that the first and the last byte are of the tier's kind, not those between (CUDA Runtime API, Unified
  /// Addressing, cudaPointerGetAttributes).
  void require_kind(tier where, const std::byte* place, bytes size)
  {
    int kind = 0;
    int device = 0;
    const auto look_at = [&](const std::byte* at) {
      session_->require("cudaPointerGetAttributes", [&](const Api& api) { return api.place_of(at, kind, device); });
      return where == tier::device ? kind == memory_of_device && device == device_ : kind == memory_of_host;
    };
    error_text text;
    text << "chunkmem: the memory that was given for the " << name_of(where) << " tier ";
    if (look_at(place)) {
      if (look_at(place + (size.count() - 1))) return;
      throw config_error{text << "does not have all of its " << size.count()
                              << " B (give the size that was allocated)"};
    }
    if (where == tier::device && kind == memory_of_device)
      throw config_error{text << "is of device " << device << ", and this backend is on device " << device_
                              << " (give memory of its own device)"};
    throw config_error{text << (where == tier::device
                                    ? "is no memory of a device (allocate it with cudaMalloc)"
                                    : "is not pinned (allocate it with cudaMallocHost, or register it "
                                      "with cudaHostRegister)")};
  }
  static constexpr int memory_of_host = 1;  ///< cudaMemoryTypeHost
  static constexpr int memory_of_device = 2;

  [[nodiscard]] static std::uint64_t address_of(const std::byte* place) noexcept
  {
    return std::uint64_t{reinterpret_cast<std::uintptr_t>(place)};
  }

  /// Tries again where it failed: a second free of the same address is a harmless error. Not in the user's pool: a call
  /// that returns an error of earlier work may have freed the address, which another allocation may have by then.
  void free(const tier_ledger::allocation& it, stream_type own) noexcept
  {
    const source& from = given_[it.where];
    if (from.what() == source::kind::slab) return;
    if (from.what() == source::kind::resource) return give_to_resource(from, it, own);
    const bool is_pinned = it.where == tier::host && from.what() == source::kind::own;
    const auto call = [&](const Api& api) {
      return is_pinned ? api.free_pinned(it.place) : api.free_device(it.place, own);
    };
    const std::string_view function = is_pinned ? "cudaFreeHost" : "cudaFreeAsync";
    (void)(from.what() == source::kind::pool ? session_->attempt(function, call) : session_->insist(function, call));
  }
  void give_to_resource(const source& to, const tier_ledger::allocation& it, stream_type own) noexcept
  {
    typename cuda_session<Api>::visit here;
    if (!session_->may_call() || session_->enter(device_, here) != 0) return;  // the memory stays with the process
    try {
      to.deallocate(it.place, it.size.count(), own);
    } catch (...) {  // a destructor cannot throw
    }
    session_->leave(here);
  }

  cuda_session<Api>* session_;
  int device_;
  tier_ledger ledger_;
  per_tier<source> given_;
  typename Api::pool_type pool_{};
};

}  // namespace backend
}  // namespace chunkmem::inline v0
