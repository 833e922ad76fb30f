// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// Parameters whose update waits until their bytes are wanted, by the chunks that their values lie in, and who does it.
///
/// A chunk is updated as a whole: while one of its weights is pinned on the device, no other one can be written on the
/// host. Not for users: see optimizer::late_updates.
class pending_updates {
 public:
  /// Does one update. May throw, and is called again then.
  using update_type = void (*)(void* who, std::uint32_t parameter);

  /// From here on nothing asks for memory. @pre nothing waits
  void prepare(std::size_t parameters, std::size_t chunks)
  {
    first_.assign(chunks, none);
    next_.assign(parameters, none);
    waits_.assign(parameters, 0);
  }

  [[nodiscard]] bool any() const noexcept { return count_ != 0; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] bool has(std::uint32_t parameter) const noexcept { return count_ != 0 && waits_[parameter] != 0; }
  [[nodiscard]] bool has_in(std::uint32_t chunk) const noexcept { return count_ != 0 && first_[chunk] != none; }
  /// An update is being done: what it uses waits for nothing.
  [[nodiscard]] bool is_running() const noexcept { return running_; }

  /// What waits is done by `update(who, parameter)`.
  void serve(update_type update, void* who) noexcept
  {
    update_ = update;
    who_ = who;
  }
  /// `who` is gone, and with it what its updates need.
  void leave(const void* who) noexcept
  {
    if (who_ == who) serve(nullptr, nullptr);
  }
  /// Somebody does what waits.
  [[nodiscard]] bool is_served() const noexcept { return update_ != nullptr; }

  /// The update of this parameter waits, and comes before those of its chunk that wait already. @pre it does not wait
  void add(std::uint32_t parameter, std::uint32_t chunk) noexcept
  {
    next_[parameter] = std::exchange(first_[chunk], parameter);
    waits_[parameter] = 1;
    ++count_;
  }
  /// Does what waits in a chunk. Where one throws, it and those behind it wait still. @pre is_served()
  void run(std::uint32_t chunk)
  {
    while (first_[chunk] != none) {
      const std::uint32_t parameter = std::exchange(first_[chunk], next_[first_[chunk]]);
      waits_[parameter] = 0;
      --count_;
      running_ = true;
      try {
        update_(who_, parameter);
      } catch (...) {
        running_ = false;
        add(parameter, chunk);
        throw;
      }
      running_ = false;
    }
  }
  /// Does all that waits, chunk by chunk. @pre is_served()
  void run_all()
  {
    for (std::uint32_t chunk = 0; any(); ++chunk) run(chunk);
  }
  /// Nothing waits any more.
  void discard() noexcept
  {
    for (std::uint32_t& it : first_) it = none;
    for (std::uint8_t& it : waits_) it = 0;
    count_ = 0;
  }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;

  std::vector<std::uint32_t> first_;  // by chunk
  std::vector<std::uint32_t> next_;   // by parameter, in its chunk
  std::vector<std::uint8_t> waits_;   // by parameter
  std::size_t count_ = 0;
  update_type update_ = nullptr;
  void* who_ = nullptr;
  bool running_ = false;
};

}  // namespace chunkmem::inline v0
