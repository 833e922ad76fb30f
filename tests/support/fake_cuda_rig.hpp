// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/fake_cuda.hpp>
#include <support/fake_cuda_work.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace support {

/// Accepts success, and throws an exception that names any other code.
inline void must(int code)
{
  if (code != 0) throw std::runtime_error{std::string{fake_name_of(code)} + " " + std::to_string(code)};
}

/// A fake runtime with a pool, and short functions to create its objects.
struct fake_rig {
  explicit fake_rig(const fake_cuda_options& options = {}) : api{options} { must(api.create_pool(pool, 0, 0)); }
  explicit fake_rig(fake_schedule when, std::uint64_t seed = 1)
      : fake_rig{fake_cuda_options{.when = when, .seed = seed}}
  {
  }

  [[nodiscard]] fake_stream_handle stream() const
  {
    fake_stream_handle fresh;
    must(api.create_stream(fresh));
    return fresh;
  }
  [[nodiscard]] fake_event_handle event() const
  {
    fake_event_handle fresh;
    must(api.create_event(fresh));
    return fresh;
  }
  [[nodiscard]] fake_event_handle recorded(fake_stream_handle from) const
  {
    const auto fresh = event();
    must(api.record_event(fresh, from));
    return fresh;
  }
  /// Device memory that every stream may use.
  [[nodiscard]] std::byte* device(std::size_t size, fake_stream_handle on) const
  {
    void* fresh = nullptr;
    must(api.allocate_device(fresh, size, pool, on));
    must(api.synchronize_stream(on));
    return static_cast<std::byte*>(fresh);
  }
  [[nodiscard]] std::byte* pinned(std::size_t size) const
  {
    void* fresh = nullptr;
    must(api.allocate_pinned(fresh, size));
    return static_cast<std::byte*>(fresh);
  }

  fake_cuda api;
  fake_pool_handle pool;
};

inline bool all_are(const std::byte* place, std::size_t size, int value)
{
  return std::all_of(place, place + size, [value](std::byte it) { return it == static_cast<std::byte>(value); });
}

/// Random fills, copies and kernels on buffers, with the waits that they need and no others.
///
/// Each operation is done twice: on streams, and on the calling thread, one after the other. Both have to give the same
/// bytes.
class fake_program {
 public:
  static constexpr std::size_t buffers = 5;
  static constexpr std::size_t size = 96;
  using wait_filter = std::function<bool(std::uint64_t)>;  ///< false: this wait is left out

  fake_program(const fake_rig& rig, std::vector<fake_stream_handle> streams) : rig_{&rig}, streams_{std::move(streams)}
  {
    for (std::size_t i = 0; i < buffers; ++i) {
      places_[i] = rig.device(size, streams_[0]);
      must(rig.api.fill(places_[i], 0, size, streams_[0]));
      expected_[i].assign(size, std::byte{});
    }
    must(rig.api.synchronize_stream(streams_[0]));
  }

  /// Enqueues operations; `expect` does them in the model.
  void enqueue(std::uint64_t seed, int count, const wait_filter& keeps = {})
  {
    uses_ = {};
    each(seed, count, [&](std::size_t on, int kind, std::size_t to, std::size_t from) {
      const auto stream = streams_[on];
      follow(on, uses_[to].writer, keeps);
      for (const auto& reader : uses_[to].readers) follow(on, reader, keeps);
      if (kind != 0) follow(on, uses_[from].writer, keeps);
      if (kind == 0) must(rig_->api.fill(places_[to], static_cast<int>(from), size, stream));
      if (kind == 1) must(rig_->api.copy(places_[to], places_[from], size, stream));
      if (kind == 2) launch_kernel(stream, [a = places_[to], b = places_[from]] { add(a, b); });
      const use mine{.event = rig_->recorded(stream), .stream = on, .is_there = true};
      uses_[to] = {.writer = mine, .readers = {}};
      if (kind != 0) uses_[from].readers.push_back(mine);
    });
  }

  void expect(std::uint64_t seed, int count)
  {
    each(seed, count, [&](std::size_t, int kind, std::size_t to, std::size_t from) {
      if (kind == 0) expected_[to].assign(size, static_cast<std::byte>(from));
      if (kind == 1) expected_[to] = expected_[from];
      if (kind == 2) add(expected_[to].data(), expected_[from].data());
    });
  }

  [[nodiscard]] std::uint64_t waits() const noexcept { return waits_; }

  /// Waits for all streams and compares.
  [[nodiscard]] bool is_right() const
  {
    for (const auto stream : streams_) must(rig_->api.synchronize_stream(stream));
    for (std::size_t i = 0; i < buffers; ++i)
      if (!std::equal(places_[i], places_[i] + size, expected_[i].begin())) return false;
    return true;
  }

 private:
  struct use {
    fake_event_handle event;
    std::size_t stream = 0;
    bool is_there = false;
  };
  struct uses_of_buffer {
    use writer;
    std::vector<use> readers;
  };

  template <class Visit>
  void each(std::uint64_t seed, int count, const Visit& visit) const
  {
    fake_random random{seed};
    for (int i = 0; i < count; ++i) {
      const std::size_t on = random.below(streams_.size());
      const int kind = static_cast<int>(random.below(3));
      const std::size_t to = random.below(buffers);
      visit(on, kind, to, (to + 1 + random.below(buffers - 1)) % buffers);
    }
  }

  static void add(std::byte* to, const std::byte* from)
  {
    for (std::size_t i = 0; i < size; ++i)
      to[i] = static_cast<std::byte>(3 * static_cast<int>(to[i]) + static_cast<int>(from[i]) + 1);
  }

  void follow(std::size_t who, const use& earlier, const wait_filter& keeps)
  {
    if (!earlier.is_there || earlier.stream == who) return;
    const std::uint64_t number = waits_++;
    if (!keeps || keeps(number)) must(rig_->api.wait_event(streams_[who], earlier.event));
  }

  const fake_rig* rig_;
  std::vector<fake_stream_handle> streams_;
  std::array<std::byte*, buffers> places_{};
  std::array<std::vector<std::byte>, buffers> expected_;
  std::array<uses_of_buffer, buffers> uses_;
  std::uint64_t waits_ = 0;
};

}  // namespace support
