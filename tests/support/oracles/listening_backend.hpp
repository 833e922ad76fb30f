// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace support {

/// One recorded call of a backend.
struct call {
  enum class kind { copy, record, wait } what = kind::copy;
  chunkmem::agent who = chunkmem::agent::host;
  const std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::uint64_t size = 0;
  chunkmem::agent source = chunkmem::agent::host;
  std::uint64_t value = 0;

  bool operator==(const call&) const = default;
};

inline call copied(chunkmem::agent stream, const std::byte* to, const std::byte* from, std::uint64_t size)
{
  return {call::kind::copy, stream, to, from, size, {}, 0};
}

/// A stream backend that does nothing and records each agent's calls, and the work that each agent's work follows.
///
/// Work has numbers: the n-th call of an agent. `knows(stream, source)` is the last work of `source` that new work of
/// `stream` follows, directly or through others: the closure that a happens-before checker needs.
class listening_backend {
 public:
  static constexpr bool host_addressable = true;

  chunkmem::bytes capacity(chunkmem::tier) const { return chunkmem::bytes{1 << 20}; }
  std::byte* allocate(chunkmem::tier, chunkmem::bytes) { return nullptr; }
  void release(chunkmem::tier, std::byte*) noexcept {}
  void copy(std::byte*, const std::byte*, chunkmem::bytes) {}
  void fill(std::byte*, std::byte, chunkmem::bytes) {}
  void copy(std::byte* to, const std::byte* from, chunkmem::bytes size, chunkmem::agent stream)
  {
    may_fail();
    heard.push_back(copied(stream, to, from, size.count()));
    work(stream);
  }
  void fill(std::byte*, std::byte, chunkmem::bytes, chunkmem::agent stream) { work(stream); }
  template <class Work>
  void launch(chunkmem::agent stream, Work)
  {
    work(stream);
  }
  chunkmem::event record(chunkmem::agent stream)
  {
    may_fail();
    const chunkmem::event made{++events_[stream], stream};
    heard.push_back({call::kind::record, stream, nullptr, nullptr, 0, {}, made.value});
    snapshots_[stream][made.value] = clock_[stream];
    return made;
  }
  void wait(chunkmem::agent stream, chunkmem::event point)
  {
    may_fail();
    heard.push_back({call::kind::wait, stream, nullptr, nullptr, 0, point.source, point.value});
    for (const auto& [source, number] : snapshots_[point.source].at(point.value)) {
      std::uint64_t& known = clock_[stream][source];
      known = known > number ? known : number;
    }
    if (stream == chunkmem::agent::host)  // the caller waited, so all later work follows too
      for (auto& [other, known] : clock_)
        for (const auto& [source, number] : clock_[chunkmem::agent::host])
          known[source] = known[source] > number ? known[source] : number;
  }
  chunkmem::agent adopt() { return chunkmem::agent{4}; }
  std::size_t agents() const { return chunkmem::max_agents; }
  std::uint64_t now() const { return 0; }
  std::uint64_t throttled() const { return 7; }

  /// Records work of the agent. @return   its number
  std::uint64_t work(chunkmem::agent stream)
  {
    if (stream != chunkmem::agent::host)
      for (const auto& [source, number] : clock_[chunkmem::agent::host]) {
        std::uint64_t& known = clock_[stream][source];  // the caller waited for this before
        known = known > number ? known : number;
      }
    return ++clock_[stream][stream];
  }
  [[nodiscard]] std::uint64_t knows(chunkmem::agent stream, chunkmem::agent source)
  {
    const std::uint64_t own = clock_[stream][source];
    const std::uint64_t callers = clock_[chunkmem::agent::host][source];
    return own > callers ? own : callers;
  }
  [[nodiscard]] std::size_t count(call::kind what) const
  {
    std::size_t found = 0;
    for (const call& it : heard) found += it.what == what ? 1 : 0;
    return found;
  }

  std::vector<call> heard;
  std::uint64_t fail_in = UINT64_MAX;  ///< the call that fails, counted from 0

 private:
  using clock = std::map<chunkmem::agent, std::uint64_t>;
  void may_fail()
  {
    if (fail_in-- == 0) throw chunkmem::device_error{"a test made this call fail"};
  }

  std::map<chunkmem::agent, std::uint64_t> events_;
  std::map<chunkmem::agent, clock> clock_;
  std::map<chunkmem::agent, std::map<std::uint64_t, clock>> snapshots_;
};

static_assert(chunkmem::stream_backend<listening_backend>);

}  // namespace support
