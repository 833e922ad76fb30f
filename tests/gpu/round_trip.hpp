// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/cuda_runtime.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace gpu {

using memory_of_gpu = chunkmem::backend::cuda_device<chunkmem::backend::cuda_runtime>;

/// Bytes of the host on the GPU for a while, all on agent::compute.
class round_trip {
 public:
  explicit round_trip(memory_of_gpu& memory) : memory_{memory} {}
  round_trip(const round_trip&) = delete;
  round_trip& operator=(const round_trip&) = delete;
  ~round_trip()
  {
    for (const entry& it : entries_) memory_.release(chunkmem::tier::device, it.block);
  }

  /// @return   their place on the GPU, as far from a multiple of 16 as here
  [[nodiscard]] std::byte* send(std::byte* bytes, std::size_t size)
  {
    const entry it = make(bytes, size);
    if (size > 0) memory_.copy(it.place, bytes, chunkmem::bytes{size}, stream);
    return it.place;
  }
  template <class Thing>
  [[nodiscard]] Thing* send(Thing& thing)
  {
    static_assert(std::is_trivially_copyable_v<Thing>);
    return reinterpret_cast<Thing*>(send(reinterpret_cast<std::byte*>(&thing), sizeof thing));
  }
  /// Room that nothing comes back from.
  [[nodiscard]] std::byte* room(std::size_t size) { return make(nullptr, size).place; }

  /// Everything that was sent, as the GPU left it.
  void bring_back()
  {
    for (const entry& it : entries_)
      if (it.host != nullptr && it.size > 0) memory_.copy(it.host, it.place, chunkmem::bytes{it.size}, stream);
    memory_.wait(chunkmem::agent::host, memory_.record(stream));
  }

  static constexpr chunkmem::agent stream = chunkmem::agent::compute;

 private:
  struct entry {
    std::byte* host;
    std::byte* block;
    std::byte* place;
    std::size_t size;
  };
  entry make(std::byte* host, std::size_t size)
  {
    const std::size_t distance = reinterpret_cast<std::uintptr_t>(host) % 16;
    std::byte* const block = memory_.allocate(chunkmem::tier::device, chunkmem::bytes{size + 16});
    entries_.push_back({host, block, block + distance, size});
    return entries_.back();
  }

  memory_of_gpu& memory_;
  std::vector<entry> entries_;
};

}  // namespace gpu
