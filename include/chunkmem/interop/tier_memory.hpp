// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/tier.hpp>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {
namespace interop {

/// Finds the lease of an address: allocators free an address, and a lease is an object.
///
///     lease_table table{m};
///     std::byte* const place = table.take(tier::device, 1_MiB, agent::compute);
///     table.give(place, 1_MiB);
///
/// The search begins with the last lease: containers and frameworks mostly free the last allocation first. Room for
/// entries is kept, so a step with as many leases as the step before allocates nothing on the heap. Cost: O(1) in stack
/// order, else O(live leases).
///
/// @threads   one caller per manager
template <class Manager>
class lease_table {
 public:
  using lease_type = decltype(std::declval<Manager&>().lease(tier::device, bytes{}, agent::host));

  explicit lease_table(Manager& m) noexcept : m_{&m} {}

  /// @return   its address; null in a rehearsal, which has no bytes
  /// @throws out_of_memory, usage_error   as lease
  [[nodiscard]] std::byte* take(tier where, bytes size, agent stream)
  {
    const std::size_t before = leases_.size();
    leases_.emplace_back();  // first, so that nothing can fail once there is a lease
    try {
      leases_.back() = {m_->lease(where, size, stream), size, stream};
    } catch (...) {
      leases_.resize(before);
      throw;
    }
    return leases_.back().held.data();
  }

  /// Ends the lease at an address, after `before_end(its agent)`. @return   whether there was such a lease
  template <class BeforeEnd>
  bool give(const void* address, bytes size, BeforeEnd before_end)
  {
    for (std::size_t index = leases_.size(); index-- > 0;) {
      entry& it = leases_[index];
      if (it.size != size || !it.held.is_live() || it.held.data() != address) continue;
      before_end(it.stream);
      leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(index));
      return true;
    }
    return false;
  }
  bool give(const void* address, bytes size)
  {
    return give(address, size, [](agent) {});
  }

  [[nodiscard]] std::size_t live() const noexcept { return leases_.size(); }
  [[nodiscard]] Manager& manager() const noexcept { return *m_; }

 private:
  struct entry {
    lease_type held;
    bytes size;
    agent stream = agent::host;
  };

  Manager* m_;
  std::vector<entry> leases_;
};

/// Leases that are allocated and freed in streams of a framework: the base of stream_memory and other stream-ordered
/// allocators.
///
///     stream_leases<Manager, Stream> leases{m};
///     void* const place = leases.take(stream, tier::device, 1'000, 256);
///     leases.give(stream, place, 1'000);
///
/// A stream is adopted at its first use. A stream may free bytes that another stream allocated: the other stream is
/// then ordered after it. Cost: that of a lease, and O(streams) to find a stream; no heap once steps repeat.
///
/// @tparam Stream   the type that `adopt` of the manager's backend takes, such as cudaStream_t
/// @threads         one caller per manager
template <class Manager, class Stream>
class stream_leases {
 public:
  explicit stream_leases(Manager& m) noexcept : leases_{m} {}

  /// Ready for the calling thread. @return   null in a rehearsal
  /// @throws std::bad_alloc   a stricter alignment than tensors have; out_of_memory, usage_error   as lease
  [[nodiscard]] void* take(tier where, std::size_t size, std::size_t alignment)
  {
    return take_for(agent::host, where, size, alignment);
  }
  /// Ready for work of the stream. @throws usage_error   also a default stream, or too many streams
  [[nodiscard]] void* take(const Stream& stream, tier where, std::size_t size, std::size_t alignment)
  {
    return take_for(agent_of(stream), where, size, alignment);
  }

  /// @pre   all work on it that is no stream's own is done
  void give(const void* data, std::size_t size) noexcept
  {
    if (!leases_.give(data, size_of_lease(size))) ++unknown_returns_;
  }
  /// All work on it was given to the stream, or to streams that it waits for.
  void give(const Stream& stream, const void* data, std::size_t size) noexcept
  {
    const auto follow = [&](agent owner) {
      try {
        if (const agent last = agent_of(stream); last != owner) backend().wait(owner, backend().record(last));
      } catch (...) {
        ++unordered_returns_;
      }
    };
    if (!leases_.give(data, size_of_lease(size), follow)) ++unknown_returns_;
  }

  [[nodiscard]] std::size_t live() const noexcept { return leases_.live(); }
  /// Counts addresses that never came from here, or came back twice. They are left alone.
  [[nodiscard]] std::uint64_t unknown_returns() const noexcept { return unknown_returns_; }
  /// Counts addresses that came back in a stream that could not be ordered: the device is lost, or the stream cannot be
  /// adopted. The next user of these bytes may be too early.
  [[nodiscard]] std::uint64_t unordered_returns() const noexcept { return unordered_returns_; }

 private:
  struct known_stream {
    Stream stream;
    agent who;
  };

  [[nodiscard]] auto& backend() const noexcept { return leases_.manager().backend(); }
  /// An allocation of 0 bytes has its own address too.
  [[nodiscard]] static bytes size_of_lease(std::size_t size) noexcept { return bytes{size > 0 ? size : 1}; }

  void* take_for(agent stream, tier where, std::size_t size, std::size_t alignment)
  {
    if (alignment > tensor_alignment.count()) throw std::bad_alloc{};
    return leases_.take(where, size_of_lease(size), stream);
  }

  agent agent_of(const Stream& stream)
  {
    for (const known_stream& it : streams_)
      if (it.stream == stream) return it.who;
    streams_.reserve(streams_.size() + 1);  // first: an agent that was adopted stays
    streams_.push_back({stream, backend().adopt(stream)});
    return streams_.back().who;
  }

  lease_table<Manager> leases_;
  std::vector<known_stream> streams_;
  std::uint64_t unknown_returns_ = 0;
  std::uint64_t unordered_returns_ = 0;
};

/// Memory of a tier for the containers of the standard library: `std::pmr::vector` and others within a manager's
/// budget.
///
/// Every allocation is a lease. It is counted, and evicts chunks where there is no other room. It is in the record, so
/// a step with the same allocations each time is planned with them. Good for workspaces and batches of a step. Poor for
/// many small objects, since a lease takes at least 256 bytes: put a `std::pmr::monotonic_buffer_resource` on top for
/// them. Reserve vectors, so that their growth makes no leases. In a rehearsal a lease is counted and has no bytes:
/// containers then write to bytes of `std::pmr::new_delete_resource`. The end of this resource ends all live leases.
/// Source: memory_resource of C++17. Cost: that of a lease, no heap once steps repeat.
///
/// Use:
///
///     interop::tier_memory device{m, tier::device};
///     std::pmr::vector<float> workspace(2048, &device);   // a lease of 8 KiB
///
/// @threads   one caller per manager
template <class Manager>
class tier_memory final : public std::pmr::memory_resource {
 public:
  /// @param m   outlives this   @param where   a tier that the calling thread can read and write
  /// @throws config_error       it cannot reach that tier
  explicit tier_memory(Manager& m, tier where = tier::host) : leases_{m}, where_{where}
  {
    if (where != tier::host && !(where == tier::device && Manager::engine_type::host_addressable))
      throw config_error{error_text{} << "chunkmem: containers of the standard library cannot lie on the "
                                      << name_of(where)
                                      << " tier, whose bytes the calling thread does not reach (use tier::host)"};
  }
  tier_memory(const tier_memory&) = delete;
  tier_memory& operator=(const tier_memory&) = delete;
  ~tier_memory() override
  {
    for (const stand_in& it : stand_ins_)
      std::pmr::new_delete_resource()->deallocate(it.data, it.size, tensor_alignment.count());
  }

  /// The number of live allocations.
  [[nodiscard]] std::size_t live() const noexcept { return leases_.live(); }
  /// Counts frees of addresses that never came from here, or that were freed twice: an error of the user. They are
  /// ignored.
  [[nodiscard]] std::uint64_t unknown_returns() const noexcept { return unknown_returns_; }

 private:
  struct stand_in {
    void* data = nullptr;
    std::size_t size = 0;
  };

  /// @throws out_of_memory   a std::bad_alloc: no room, with the need of this moment; std::bad_alloc   a stricter
  ///   alignment than tensors have
  void* do_allocate(std::size_t size, std::size_t alignment) override
  {
    if (alignment > tensor_alignment.count()) throw std::bad_alloc{};
    const bytes wanted = size_of_lease(size);
    std::byte* const data = leases_.take(where_, wanted, agent::host);
    if (data != nullptr) return data;
    try {
      stand_ins_.emplace_back();
      stand_ins_.back() = {std::pmr::new_delete_resource()->allocate(size, tensor_alignment.count()), size};
    } catch (...) {
      if (!stand_ins_.empty() && stand_ins_.back().data == nullptr) stand_ins_.pop_back();
      leases_.give(nullptr, wanted);
      throw;
    }
    return stand_ins_.back().data;
  }

  void do_deallocate(void* data, std::size_t size, std::size_t) override
  {
    if (leases_.give(data, size_of_lease(size))) return;
    for (std::size_t index = stand_ins_.size(); index-- > 0;) {
      if (stand_ins_[index].data != data) continue;
      std::pmr::new_delete_resource()->deallocate(data, stand_ins_[index].size, tensor_alignment.count());
      stand_ins_.erase(stand_ins_.begin() + static_cast<std::ptrdiff_t>(index));
      leases_.give(nullptr, size_of_lease(size));
      return;
    }
    ++unknown_returns_;
  }

  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override
  {
    return this == &other;
  }

  /// An allocation of 0 bytes has its own address too.
  [[nodiscard]] static bytes size_of_lease(std::size_t size) noexcept { return bytes{size > 0 ? size : 1}; }

  lease_table<Manager> leases_;
  tier where_;
  std::vector<stand_in> stand_ins_;
  std::uint64_t unknown_returns_ = 0;
};

}  // namespace interop
}  // namespace chunkmem::inline v0
