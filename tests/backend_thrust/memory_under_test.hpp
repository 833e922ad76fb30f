// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>

#include <cstddef>
#include <memory>

/// Trainers on memory of a Thrust system, without a header of Thrust: they are compiled once and linked with each
/// system.
namespace on_thrust {

struct capacities {
  chunkmem::bytes device_capacity{};
  chunkmem::bytes host_capacity{};
};

/// A memory backend whose type is known where it is made.
class any_memory {
 public:
  virtual ~any_memory() = default;
  [[nodiscard]] virtual chunkmem::bytes capacity(chunkmem::tier where) const = 0;
  [[nodiscard]] virtual std::byte* allocate(chunkmem::tier where, chunkmem::bytes size) = 0;
  virtual void release(chunkmem::tier where, std::byte* place) noexcept = 0;
  virtual void copy(std::byte* to, const std::byte* from, chunkmem::bytes size) = 0;
  virtual void fill(std::byte* to, std::byte value, chunkmem::bytes size) = 0;
};

/// A `thrust_device` of the system that the program is built for.
[[nodiscard]] std::unique_ptr<any_memory> make_memory(const capacities& limits);

/// The same as a value, for `on_caller`.
class memory_under_test {
 public:
  static constexpr bool host_addressable = true;

  explicit memory_under_test(const capacities& limits) : memory_{make_memory(limits)} {}

  [[nodiscard]] chunkmem::bytes capacity(chunkmem::tier where) const { return memory_->capacity(where); }
  [[nodiscard]] std::byte* allocate(chunkmem::tier where, chunkmem::bytes size)
  {
    return memory_->allocate(where, size);
  }
  void release(chunkmem::tier where, std::byte* place) noexcept { memory_->release(where, place); }
  void copy(std::byte* to, const std::byte* from, chunkmem::bytes size) { memory_->copy(to, from, size); }
  void fill(std::byte* to, std::byte value, chunkmem::bytes size) { memory_->fill(to, value, size); }

 private:
  std::unique_ptr<any_memory> memory_;
};

static_assert(chunkmem::memory_backend<memory_under_test>);

}  // namespace on_thrust
