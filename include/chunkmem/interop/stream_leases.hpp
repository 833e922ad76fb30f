// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/interop/lease_table.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace chunkmem::inline v0 {
namespace interop {

/// Leases that are taken and given back in streams of a framework. stream_memory and other allocators of streams are
/// made of them.
///
///     stream_leases<Manager, Stream> leases{m};
///     void* const place = leases.take(stream, tier::device, 1'000, 256);
///     leases.give(stream, place, 1'000);
///
/// A stream is adopted the first time it is seen. A stream may give back bytes that another stream took: the other
/// stream is then ordered after it. Cost: that of a lease, and O(streams) to find a stream; no heap once steps repeat.
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
  /// An allocation of nothing has an address of its own too.
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

}  // namespace interop
}  // namespace chunkmem::inline v0
