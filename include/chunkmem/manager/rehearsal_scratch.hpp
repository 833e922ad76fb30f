// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// Bytes that pins and leases of a rehearsal point to where it wants some; see rehearse_on.
///
///     rehearsal_scratch scratch;
///     scratch.begin(size);
///     std::byte* const place = scratch.to_write(size);
///     scratch.end(false);  // no pin points to `place` any more
///
/// Two blocks: one of zeros for what is read, one for what is written. Pages are the system's until they are touched.
/// A larger block takes the place of a smaller one, which stays until the end, since pins may point to it.
class rehearsal_scratch {
 public:
  /// @param largest   of all tensors [bytes]   @throws std::bad_alloc   with nothing changed
  void begin(std::uint64_t largest)
  {
    block read{largest};
    block written{largest};
    blocks_.reserve(blocks_.size() + 2);
    first_ = blocks_.size();
    blocks_.push_back(std::move(read));
    blocks_.push_back(std::move(written));
    is_on_ = true;
  }
  /// @param in_use   a pin or lease still points to the bytes: they stay until this ends
  void end(bool in_use) noexcept
  {
    is_on_ = false;
    outlived_ = outlived_ || in_use;
    if (!outlived_) blocks_.clear();
  }
  [[nodiscard]] bool is_on() const noexcept { return is_on_; }

  /// Zeros, as many as the largest tensor has bytes; null where there is no scratch.
  [[nodiscard]] std::byte* to_read() const noexcept { return is_on_ ? blocks_[first_].begin() : nullptr; }
  /// For anything of this size; null where there is no scratch. @throws std::bad_alloc   with nothing changed
  [[nodiscard]] std::byte* to_write(std::uint64_t size)
  {
    if (!is_on_) return nullptr;
    if (blocks_.back().size() < size) blocks_.emplace_back(size > UINT64_MAX / 2 ? size : size + size / 2);
    return blocks_.back().begin();
  }

 private:
  /// Not a unique_ptr: `<memory>` alone is a fifth of what the umbrella header includes.
  class block {
   public:
    explicit block(std::uint64_t size) : size_{size}
    {
      if (size > SIZE_MAX - unit) throw std::bad_alloc{};
      memory_ = static_cast<std::byte*>(std::calloc(size + unit, 1));
      if (memory_ == nullptr) throw std::bad_alloc{};
    }
    block(block&& other) noexcept : memory_{std::exchange(other.memory_, nullptr)}, size_{other.size_} {}
    block& operator=(block&&) = delete;
    ~block() { std::free(memory_); }
    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    [[nodiscard]] std::byte* begin() const noexcept
    {
      return memory_ + (unit - reinterpret_cast<std::uintptr_t>(memory_) % unit) % unit;
    }

   private:
    static constexpr std::uint64_t unit = tensor_alignment.count();
    std::byte* memory_ = nullptr;
    std::uint64_t size_ = 0;
  };

  std::vector<block> blocks_;  // what is read, then what is written: the largest is last
  std::size_t first_ = 0;      // what is read now
  bool is_on_ = false;
  bool outlived_ = false;  // a mistake of the trainer: a pin outlived its rehearsal
};

}  // namespace chunkmem::inline v0
