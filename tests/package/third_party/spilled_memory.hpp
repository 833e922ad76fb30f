// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/backend/tier_ledger.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

/// A host tier that lies in a file: for models that are larger than the memory of the machine. The device is plain
/// memory.
///
/// Both are mappings, so the calling thread reads and writes either, and the system decides which pages of the file
/// stay in memory. Every agent is the calling thread: what it is given is done at return. Poor where a real device
/// could copy meanwhile. Cost: a page fault where a page has to come from the disk.
///
/// @threads   one caller at a time
class spilled_memory {
 public:
  using agent = chunkmem::agent;
  using bytes = chunkmem::bytes;
  using event = chunkmem::event;
  using tier = chunkmem::tier;
  static constexpr bool host_addressable = true;

  spilled_memory(bytes device, bytes host) : ledger_{device, host}, start_{std::chrono::steady_clock::now()} {}
  spilled_memory(const spilled_memory&) = delete;
  spilled_memory& operator=(const spilled_memory&) = delete;

  [[nodiscard]] bytes capacity(tier where) const { return ledger_.capacity(where); }

  /// @throws usage_error, out_of_memory   nothing was changed
  [[nodiscard]] std::byte* allocate(tier where, bytes size)
  {
    ledger_.require(where, size);
    std::FILE* const file = where == tier::host ? std::tmpfile() : nullptr;  // has no name: goes with its last mapping
    const int flags = where == tier::host ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void* place = MAP_FAILED;
    if (where == tier::device)
      place = ::mmap(nullptr, size.count(), PROT_READ | PROT_WRITE, flags, -1, 0);
    else if (file != nullptr && ::ftruncate(::fileno(file), static_cast<off_t>(size.count())) == 0)
      place = ::mmap(nullptr, size.count(), PROT_READ | PROT_WRITE, flags, ::fileno(file), 0);
    if (file != nullptr) std::fclose(file);
    if (place == MAP_FAILED) ledger_.refuse(where, size);
    ledger_.add(where, static_cast<std::byte*>(place), size);
    return static_cast<std::byte*>(place);
  }
  void release(tier where, std::byte* place) noexcept
  {
    if (const bytes size = ledger_.remove(where, place); size > bytes{}) ::munmap(place, size.count());
  }

  void copy(std::byte* to, const std::byte* from, bytes size, agent stream = agent::host)
  {
    chunkmem::backend::require_agent(stream, agents_);
    chunkmem::backend::require_places(to, from, size);
    if (size > bytes{}) std::memmove(to, from, size.count());
    ++given_[index_of(stream)];
  }
  void fill(std::byte* to, std::byte value, bytes size, agent stream = agent::host)
  {
    chunkmem::backend::require_agent(stream, agents_);
    chunkmem::backend::require_places(to, to, size);
    if (size > bytes{}) std::memset(to, std::to_integer<int>(value), size.count());
    ++given_[index_of(stream)];
  }
  template <class Callable>
  void launch(agent stream, Callable&& work)
  {
    chunkmem::backend::require_agent(stream, agents_);
    work();
    ++given_[index_of(stream)];
  }

  [[nodiscard]] event record(agent stream) const
  {
    chunkmem::backend::require_agent(stream, agents_);
    return {.value = given_[index_of(stream)], .source = stream};
  }
  void wait(agent stream, event point)
  {
    chunkmem::backend::require_agent(stream, agents_);
    chunkmem::backend::require_agent(point.source, agents_);
    chunkmem::backend::require_recorded(point, given_[index_of(point.source)]);
  }
  agent adopt()
  {
    chunkmem::backend::require_room_for_agent(agents_);
    return static_cast<agent>(agents_++);
  }

  [[nodiscard]] std::size_t agents() const noexcept { return agents_; }
  [[nodiscard]] std::uint64_t throttled() const noexcept { return 0; }
  [[nodiscard]] std::uint64_t now() const noexcept
  {
    const auto passed = std::chrono::steady_clock::now() - start_;
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count());
  }

 private:
  chunkmem::backend::tier_ledger ledger_;
  std::chrono::steady_clock::time_point start_;
  std::size_t agents_ = chunkmem::built_in_agents;
  std::array<std::uint64_t, chunkmem::max_agents> given_{};
};

static_assert(chunkmem::stream_backend<spilled_memory>);
