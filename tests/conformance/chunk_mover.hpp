// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/chunk_mover.hpp>
#include <conformance/trials.hpp>
#include <support/adversarial.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace conformance {

/// A backend that uses every freedom of its concept, records the agents that get work, and can let work fail.
class watched_backend {
 public:
  static constexpr bool host_addressable = true;

  explicit watched_backend(const support::adversarial_options& options) : inner_{options} {}

  [[nodiscard]] chunkmem::bytes capacity(chunkmem::tier where) const noexcept { return inner_.capacity(where); }
  [[nodiscard]] std::byte* allocate(chunkmem::tier where, chunkmem::bytes size) { return inner_.allocate(where, size); }
  void release(chunkmem::tier where, std::byte* place) noexcept { inner_.release(where, place); }
  void copy(std::byte* to, const std::byte* from, chunkmem::bytes size) { copy(to, from, size, chunkmem::agent::host); }
  void fill(std::byte* to, std::byte value, chunkmem::bytes size) { fill(to, value, size, chunkmem::agent::host); }
  void copy(std::byte* to, const std::byte* from, chunkmem::bytes size, chunkmem::agent stream)
  {
    note(stream);
    inner_.copy(to, from, size, stream);
  }
  void fill(std::byte* to, std::byte value, chunkmem::bytes size, chunkmem::agent stream)
  {
    note(stream);
    inner_.fill(to, value, size, stream);
  }
  template <class Callable>
  void launch(chunkmem::agent stream, Callable&& work)
  {
    note(stream);
    inner_.launch(stream, std::forward<Callable>(work));
  }
  [[nodiscard]] chunkmem::event record(chunkmem::agent stream) { return inner_.record(stream); }
  void wait(chunkmem::agent stream, chunkmem::event point)
  {
    given_.push_back(stream);
    inner_.wait(stream, point);
  }
  chunkmem::agent adopt() { return inner_.adopt(); }
  [[nodiscard]] std::size_t agents() const noexcept { return inner_.agents(); }
  [[nodiscard]] std::uint64_t now() const noexcept { return inner_.now(); }
  [[nodiscard]] std::uint64_t throttled() const noexcept { return inner_.throttled(); }

  /// Agents that got work since `forget`, one entry for each call.
  [[nodiscard]] const std::vector<chunkmem::agent>& given() const noexcept { return given_; }
  void forget() { given_.clear(); }
  /// The call that fails from now on, counted from 0: copies, fills and launches.
  void fail_in(std::uint64_t calls) { fail_in_ = calls, has_failed_ = false; }
  void fail_no_more() { fail_in_ = UINT64_MAX; }
  [[nodiscard]] bool has_failed() const noexcept { return has_failed_; }
  [[nodiscard]] const std::vector<std::string>& faults() const noexcept { return inner_.faults(); }

 private:
  void note(chunkmem::agent stream)
  {
    if (fail_in_ != UINT64_MAX && fail_in_-- == 0) {
      fail_in_ = UINT64_MAX;
      has_failed_ = true;
      throw chunkmem::device_error{"chunkmem: work was refused as planned (this is a test)"};
    }
    given_.push_back(stream);
  }

  support::adversarial inner_;
  std::vector<chunkmem::agent> given_;
  std::uint64_t fail_in_ = UINT64_MAX;
  bool has_failed_ = false;
};

static_assert(chunkmem::stream_backend<watched_backend>);

/// A mover, a window on the host and two places on the device, each between guard bytes.
template <class Mover>
class mover_trial {
 public:
  mover_trial(const Mover& prototype, std::uint64_t seed)
      : mover_{prototype},
        dice_{seed},
        backend_{options_of(seed)},
        units_{std::uint64_t{dice_.between(1, 40)} * 256},
        window_{place_in(chunkmem::tier::host)},
        first_{place_in(chunkmem::tier::device)},
        second_{place_in(chunkmem::tier::device)},
        stream_{dice_.one_in(3)   ? backend_.adopt()
                : dice_.one_in(2) ? chunkmem::agent::to_device
                                  : chunkmem::agent::to_host}
  {
  }
  mover_trial(const mover_trial&) = delete;
  mover_trial& operator=(const mover_trial&) = delete;

  [[nodiscard]] std::string mistake()
  {
    using memory = std::vector<std::byte>;
    const memory before = random_bytes();
    write_late(window_, before);
    if (std::string wrong = bring(first_); !wrong.empty()) return wrong;
    if (std::string wrong = take(first_); !wrong.empty()) return wrong;
    if (now(window_) != before) return "take after bring changed the bytes of the host";
    const memory trained = random_bytes();
    write_late(first_, trained);
    if (std::string wrong = take(first_); !wrong.empty()) return wrong;
    if (std::string wrong = bring(second_); !wrong.empty()) return wrong;
    if (now(second_) != trained || now(first_) != trained) return "what was taken did not come back";
    for (const std::byte* place : {window_, first_, second_})
      for (std::uint64_t index = 0; index < guard; ++index)
        if (place[units_ + index] != mark || *(place - 1 - index) != mark) return "bytes beside the window changed";
    return backend_.faults().empty() ? "" : "work outside of the window: " + backend_.faults()[0];
  }

 private:
  static constexpr std::uint64_t guard = 256;
  static constexpr std::byte mark{0xA5};

  static support::adversarial_options options_of(std::uint64_t seed)
  {
    constexpr support::schedule modes[] = {support::schedule::latest, support::schedule::earliest,
                                           support::schedule::random};
    return {.device_capacity = chunkmem::bytes{1U << 16U},
            .host_capacity = chunkmem::bytes{1U << 16U},
            .when = modes[seed % 3],
            .seed = seed};
  }
  [[nodiscard]] std::byte* place_in(chunkmem::tier where)
  {
    const chunkmem::bytes all{units_ + 2 * guard};
    std::byte* const place = backend_.allocate(where, all);
    backend_.fill(place, mark, all);
    return place + guard;
  }
  [[nodiscard]] std::vector<std::byte> random_bytes()
  {
    std::vector<std::byte> all(units_);
    for (std::byte& each : all) each = static_cast<std::byte>(dice_.below(256));
    return all;
  }
  /// Enqueued before the call: a mover that reads too early reads other bytes.
  void write_late(std::byte* place, const std::vector<std::byte>& content)
  {
    backend_.launch(stream_, [place, &content] { std::copy(content.begin(), content.end(), place); });
  }
  [[nodiscard]] std::vector<std::byte> now(std::byte* place)
  {
    backend_.wait(chunkmem::agent::host, backend_.record(stream_));
    return {place, place + units_};
  }
  [[nodiscard]] std::string bring(std::byte* to)
  {
    return judged("bring",
                  [&] { mover_.bring(backend_, to, std::as_const(window_), chunkmem::bytes{units_}, stream_); });
  }
  [[nodiscard]] std::string take(std::byte* from)
  {
    return judged("take",
                  [&] { mover_.take(backend_, window_, std::as_const(from), chunkmem::bytes{units_}, stream_); });
  }

  /// Each piece of the call's work fails once; then the call is made.
  template <class Call>
  [[nodiscard]] std::string judged(const std::string& name, Call call)
  {
    for (std::uint64_t piece = 0; piece < 100; ++piece) {
      backend_.forget();
      backend_.fail_in(piece);
      const bool is_refused = is_refused_as<chunkmem::device_error>(call);
      backend_.fail_no_more();
      if (!backend_.has_failed()) {
        if (is_refused) return name + " failed though no work did";
        break;  // the call is made
      }
      if (!is_refused) return name + " passes no device_error on";
      if (!backend_.given().empty()) return name + " failed with something enqueued";
    }
    if (backend_.given().empty()) return name + " gives its agent nothing to do";
    for (const chunkmem::agent stream : backend_.given()) {
      if (stream == stream_) continue;
      return name + (stream == chunkmem::agent::host ? " works or waits on the calling thread"
                                                     : " enqueues on another agent than it is told");
    }
    return {};
  }

  Mover mover_;
  support::dice dice_;
  watched_backend backend_;
  std::uint64_t units_;
  std::byte* window_;
  std::byte* first_;
  std::byte* second_;
  chunkmem::agent stream_;
};

/// One trial of the laws of chunk_mover.
template <class Mover>
[[nodiscard]] std::string mistake_in_moves(const Mover& prototype, std::uint64_t seed)
{
  if (std::string_view{Mover::name}.empty()) return "a policy without a name";
  return mover_trial<Mover>{prototype, seed}.mistake();
}

inline constexpr std::uint64_t mover_trials = 60;

/// The broken law of chunk_mover; empty: none.
template <class Mover>
  requires chunkmem::chunk_mover<Mover, watched_backend>
[[nodiscard]] std::string mistake_in_chunk_mover(const Mover& prototype = {})
{
  return first_mistake(mover_trials, [&](std::uint64_t seed) { return mistake_in_moves(prototype, seed); });
}

/// The laws of chunk_mover: work only on the agent that is named; `device_error` with nothing enqueued; bytes are
/// unchanged after a move to the device and back.
template <class Mover>
  requires chunkmem::chunk_mover<Mover, watched_backend>
void chunk_mover_laws(const Mover& prototype = {})
{
  require_trials(mover_trials, [&](std::uint64_t seed) { return mistake_in_moves(prototype, seed); });
}

}  // namespace conformance
