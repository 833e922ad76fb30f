#pragma once

#include <chunkmem/core/bytes.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// Bytes that pins and leases of a rehearsal point to where it wants some; see rehearse_on.
///
/// Two blocks: one of zeros for what is read, one for what is written. Pages are the system's until they are touched.
/// A larger block takes the place of a smaller one, which stays until the end, since pins may point to it.
class rehearsal_scratch {
 public:
  /// @param largest   of all tensors [bytes]   @throws std::bad_alloc   with nothing changed
  void begin(std::uint64_t largest)
  {
    std::vector<block> fresh;
    fresh.reserve(2);
    fresh.emplace_back(largest);
    fresh.emplace_back(largest);
    blocks_ = std::move(fresh);
    is_on_ = true;
  }
  void end() noexcept
  {
    is_on_ = false;
    blocks_.clear();
  }
  [[nodiscard]] bool is_on() const noexcept { return is_on_; }

  /// Zeros, as many as the largest tensor has bytes; null where there is no scratch.
  [[nodiscard]] std::byte* to_read() const noexcept { return is_on_ ? blocks_.front().begin() : nullptr; }
  /// For anything of this size; null where there is no scratch. @throws std::bad_alloc   with nothing changed
  [[nodiscard]] std::byte* to_write(std::uint64_t size)
  {
    if (!is_on_) return nullptr;
    if (blocks_.back().size() < size) blocks_.emplace_back(size > UINT64_MAX / 2 ? size : size + size / 2);
    return blocks_.back().begin();
  }

 private:
  struct give_back {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };
  class block {
   public:
    explicit block(std::uint64_t size) : size_{size}
    {
      constexpr std::uint64_t unit = tensor_alignment.count();
      if (size > SIZE_MAX - unit) throw std::bad_alloc{};
      memory_.reset(std::calloc(size + unit, 1));
      if (memory_ == nullptr) throw std::bad_alloc{};
    }
    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    [[nodiscard]] std::byte* begin() const noexcept
    {
      constexpr std::uint64_t unit = tensor_alignment.count();
      auto* const memory = static_cast<std::byte*>(memory_.get());
      return memory + (unit - reinterpret_cast<std::uintptr_t>(memory) % unit) % unit;
    }

   private:
    std::unique_ptr<void, give_back> memory_;
    std::uint64_t size_ = 0;
  };

  std::vector<block> blocks_;  // what is read, then what is written: the largest is last
  bool is_on_ = false;
};

}  // namespace chunkmem::inline v0
