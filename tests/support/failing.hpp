// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace support {

/// The calls that fail, counted from 0. `persistent`: that call and all later ones, else that call alone.
struct failure_plan {
  std::optional<std::uint64_t> allocation{};
  std::optional<std::uint64_t> copy{};  ///< copies and fills, in the order of their calls
  bool persistent = false;
};

/// A backend that owns another one and lets its k-th allocation or copy fail, with nothing changed.
///
/// Without a plan it only counts: run once to learn the number of calls, then once for each k.
template <chunkmem::stream_backend Backend>
class failing {
 public:
  static constexpr bool host_addressable = Backend::host_addressable;

  template <class... Arguments>
  explicit failing(const failure_plan& plan, Arguments&&... arguments)
      : plan_{plan}, inner_{std::forward<Arguments>(arguments)...}
  {
  }

  [[nodiscard]] Backend& inner() noexcept { return inner_; }
  /// Calls so far, with those that failed.
  [[nodiscard]] std::uint64_t allocations() const noexcept { return allocations_; }
  [[nodiscard]] std::uint64_t copies() const noexcept { return copies_; }
  [[nodiscard]] std::uint64_t failures() const noexcept { return failures_; }
  void set_plan(const failure_plan& plan) noexcept { plan_ = plan; }

  [[nodiscard]] chunkmem::bytes capacity(chunkmem::tier where) const { return inner_.capacity(where); }

  [[nodiscard]] std::byte* allocate(chunkmem::tier where, chunkmem::bytes size)
  {
    if (fails(plan_.allocation, allocations_++)) {
      throw chunkmem::out_of_memory{{.where = where,
                                     .requested = size.count(),
                                     .capacity = inner_.capacity(where).count(),
                                     .pinned = 0,
                                     .needed = size.count()}};
    }
    return inner_.allocate(where, size);
  }
  void release(chunkmem::tier where, std::byte* place) noexcept { inner_.release(where, place); }

  void copy(std::byte* to, const std::byte* from, chunkmem::bytes size)
  {
    fail_copy();
    inner_.copy(to, from, size);
  }
  void fill(std::byte* to, std::byte value, chunkmem::bytes size)
  {
    fail_copy();
    inner_.fill(to, value, size);
  }
  void copy(std::byte* to, const std::byte* from, chunkmem::bytes size, chunkmem::agent stream)
  {
    fail_copy();
    inner_.copy(to, from, size, stream);
  }
  void fill(std::byte* to, std::byte value, chunkmem::bytes size, chunkmem::agent stream)
  {
    fail_copy();
    inner_.fill(to, value, size, stream);
  }

  template <class Callable>
  void launch(chunkmem::agent stream, Callable&& work)
  {
    inner_.launch(stream, std::forward<Callable>(work));
  }
  [[nodiscard]] chunkmem::event record(chunkmem::agent stream) { return inner_.record(stream); }
  void wait(chunkmem::agent stream, chunkmem::event point) { inner_.wait(stream, point); }
  chunkmem::agent adopt() { return inner_.adopt(); }
  [[nodiscard]] std::size_t agents() const { return inner_.agents(); }
  [[nodiscard]] std::uint64_t now() const { return inner_.now(); }
  [[nodiscard]] std::uint64_t throttled() const { return inner_.throttled(); }

 private:
  [[nodiscard]] bool fails(const std::optional<std::uint64_t>& planned, std::uint64_t index) noexcept
  {
    const bool now = planned && (plan_.persistent ? index >= *planned : index == *planned);
    failures_ += now ? 1 : 0;
    return now;
  }
  void fail_copy()
  {
    const std::uint64_t index = copies_++;
    if (!fails(plan_.copy, index)) return;
    throw chunkmem::device_error{chunkmem::error_text{} << "chunkmem: copy failed as planned: number " << index
                                                        << " (this is a test)"};
  }

  failure_plan plan_;
  Backend inner_;
  std::uint64_t allocations_ = 0;
  std::uint64_t copies_ = 0;
  std::uint64_t failures_ = 0;
};

}  // namespace support
