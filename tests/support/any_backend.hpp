// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/agent_worker.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <support/adversarial.hpp>
#include <support/failing.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace support {

/// Options of a host_arena or of an adversarial backend.
struct any_options {
  any_options(const chunkmem::backend::host_arena_options& of)
      : device_capacity{of.device_capacity}, host_capacity{of.host_capacity}, async_compute{of.async_compute}
  {
  }
  any_options(const adversarial_options& of)
      : device_capacity{of.device_capacity},
        host_capacity{of.host_capacity},
        async_compute{of.async_compute},
        when{of.when},
        seed{of.seed}
  {
  }
  chunkmem::bytes device_capacity{};
  chunkmem::bytes host_capacity{};
  bool async_compute = false;
  std::optional<schedule> when{};  ///< nothing: a host_arena
  std::uint64_t seed = 1;
};

/// A host_arena or an adversarial backend, chosen when the program runs. It forwards every call.
///
/// It measures no waits, so that a manager counts each wait of the calling thread, also one that does not block.
class arena_or_adversarial {
 public:
  using agent = chunkmem::agent;
  using event = chunkmem::event;
  using bytes = chunkmem::bytes;
  using tier = chunkmem::tier;
  static constexpr bool host_addressable = true;

  explicit arena_or_adversarial(const any_options& it)
  {
    if (it.when)
      adversarial_.emplace(adversarial_options{.device_capacity = it.device_capacity,
                                               .host_capacity = it.host_capacity,
                                               .when = *it.when,
                                               .seed = it.seed,
                                               .async_compute = it.async_compute});
    else
      arena_.emplace(chunkmem::backend::host_arena_options{
          .device_capacity = it.device_capacity, .host_capacity = it.host_capacity, .async_compute = it.async_compute});
  }

  /// Null where this is a host_arena.
  [[nodiscard]] adversarial* as_adversarial() noexcept { return adversarial_ ? &*adversarial_ : nullptr; }

  [[nodiscard]] bytes capacity(tier where) const noexcept
  {
    return arena_ ? arena_->capacity(where) : adversarial_->capacity(where);
  }
  [[nodiscard]] std::byte* allocate(tier where, bytes size)
  {
    return arena_ ? arena_->allocate(where, size) : adversarial_->allocate(where, size);
  }
  void release(tier where, std::byte* place) noexcept
  {
    arena_ ? arena_->release(where, place) : adversarial_->release(where, place);
  }
  void copy(std::byte* to, const std::byte* from, bytes size) { copy(to, from, size, agent::host); }
  void fill(std::byte* to, std::byte value, bytes size) { fill(to, value, size, agent::host); }
  void copy(std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    arena_ ? arena_->copy(to, from, size, stream) : adversarial_->copy(to, from, size, stream);
  }
  void fill(std::byte* to, std::byte value, bytes size, agent stream)
  {
    arena_ ? arena_->fill(to, value, size, stream) : adversarial_->fill(to, value, size, stream);
  }
  void launch(agent stream, chunkmem::backend::inline_task&& work)
  {
    arena_ ? arena_->launch(stream, std::move(work)) : adversarial_->launch(stream, std::move(work));
  }
  template <class Callable>
  void launch(agent stream, Callable&& work)
  {
    launch(stream, chunkmem::backend::inline_task{std::forward<Callable>(work)});
  }
  [[nodiscard]] event record(agent stream) { return arena_ ? arena_->record(stream) : adversarial_->record(stream); }
  void wait(agent stream, event point) { arena_ ? arena_->wait(stream, point) : adversarial_->wait(stream, point); }
  agent adopt() { return arena_ ? arena_->adopt() : adversarial_->adopt(); }
  [[nodiscard]] std::size_t agents() const noexcept { return arena_ ? arena_->agents() : adversarial_->agents(); }
  [[nodiscard]] std::uint64_t now() const noexcept { return arena_ ? arena_->now() : adversarial_->now(); }
  [[nodiscard]] std::uint64_t throttled() const noexcept
  {
    return arena_ ? arena_->throttled() : adversarial_->throttled();
  }

 private:
  std::optional<chunkmem::backend::host_arena> arena_;
  std::optional<adversarial> adversarial_;
};

/// Either of the two, with calls that fail as planned: one type of manager for all trainings of a program.
///
///     any_backend memory{adversarial_options{.device_capacity = 12_KiB, .host_capacity = 256_KiB}};
///     manager<any_backend> m{memory};
class any_backend : public failing<arena_or_adversarial> {
 public:
  explicit any_backend(const any_options& options, const failure_plan& plan = {}) : failing{plan, options} {}

  /// Functions of `adversarial`. A host_arena records no faults; do not call the last two for it.
  void drain()
  {
    if (adversarial* const it = inner().as_adversarial()) it->drain();
  }
  [[nodiscard]] std::vector<std::string> faults()
  {
    const adversarial* const it = inner().as_adversarial();
    return it == nullptr ? std::vector<std::string>{} : it->faults();
  }
  void skip_wait(adversarial::wait_filter filter) { inner().as_adversarial()->skip_wait(std::move(filter)); }
  [[nodiscard]] const adversarial::counts& counters() { return inner().as_adversarial()->counters(); }
};

static_assert(chunkmem::stream_backend<any_backend>);

}  // namespace support
