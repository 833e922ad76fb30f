// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/first_failure.hpp>
#include <chunkmem/collective/nccl_api.hpp>
#include <chunkmem/collective/ordered_sum.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/own_process.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace collective {

/// One handle of NCCL, its first error, and its one end.
///
///     auto& session = ranks.session();
///     session.run("telling it memory", [&](auto& api, auto handle) { return api.enroll(handle, place, size, told); });
///
/// A lock lets one thread at a time into NCCL, so that an abort meets nobody inside. No wait holds the lock. The first
/// failure ends the control communicator too, so that the other ranks hear of it before their deadline. From then on
/// NCCL is called only once more, for the abort.
///
/// Cost of a call: a lock and one poll of the control communicator.
///
/// @threads   one caller at a time; `fail` any
template <nccl_api Api, class Control>
class nccl_session {
 public:
  using comm_type = typename Api::comm_type;
  using clock = std::chrono::steady_clock;
  static constexpr int in_progress = 7;

  nccl_session(Control& control, std::uint64_t deadline, Api api) noexcept
      : api_{std::move(api)}, control_{&control}, deadline_{deadline}
  {
  }
  nccl_session(const nccl_session&) = delete;
  nccl_session& operator=(const nccl_session&) = delete;
  /// Finishes with the others for no longer than the deadline, then aborts.
  ~nccl_session()
  {
    if (made_in_.is_here()) close();  // NCCL does not work in a forked child
  }

  [[nodiscard]] const Api& api() const noexcept { return api_; }
  [[nodiscard]] Control& control() const noexcept { return *control_; }
  [[nodiscard]] bool has_failed() const noexcept { return failure_.is_there(); }
  [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_.load(std::memory_order_relaxed); }
  void count() noexcept { sequence_.fetch_add(1, std::memory_order_relaxed); }

  /// Runs `call(api, handle)` as the only call inside NCCL. After a failure it answers 0 without the call: `settle`
  /// then throws the failure.
  template <class Call>
  [[nodiscard]] int enter(Call&& call)
  {
    const std::lock_guard lock{inside_};
    return ended_ ? 0 : call(std::as_const(api_), handle_);
  }
  /// Waits until a call that answered `number` is done.
  /// @throws comm_error   it failed, the deadline passed, or the group failed
  void settle(std::string_view what, int number)
  {
    require(what, number);
    if (number == in_progress) wait(what, [this] { return state() == 0; });
    failure_.check();
  }
  template <class Call>
  void run(std::string_view what, Call&& call)
  {
    settle(what, enter(std::forward<Call>(call)));
  }
  /// @throws comm_error   NCCL met an error since, or the control communicator did; usage_error   this is a forked
  /// child
  void check()
  {
    made_in_.expect_here("a communicator of NCCL");
    poll_control();
    require("an operation on the stream", state());
    failure_.check();
  }
  /// Polls until `is_over()`. @throws comm_error
  template <std::predicate IsOver>
  void wait(std::string_view what, IsOver&& is_over)
  {
    const auto start = clock::now();
    for (;;) {
      check();
      if (is_over()) return;
      const auto waited = static_cast<std::uint64_t>(std::chrono::nanoseconds{clock::now() - start}.count());
      if (waited >= deadline_)
        raise(what, {.failure = comm_failure::deadline, .sequence = sequence(), .waited = waited});
      std::this_thread::sleep_for(std::chrono::microseconds{20});
    }
  }
  /// @throws comm_error   the number is a failure
  void require(std::string_view what, int number)
  {
    if (number == 0 || number == in_progress) return;
    const bool is_misuse = number == 4 || number == 5;  // invalid argument, invalid usage
    raise(what, {.failure = is_misuse ? comm_failure::mismatch : comm_failure::peer_lost,
                 .sequence = sequence(),
                 .number = number});
  }
  [[noreturn]] void raise(std::string_view what, const comm_fault& fault)
  {
    const std::uint32_t own = index_of(control_->rank());
    error_text text;
    text << "chunkmem: NCCL, " << what << ": " << name_of(fault.failure) << ", in operation " << fault.sequence
         << " after " << fault.waited << " ns, NCCL's number " << static_cast<std::uint64_t>(fault.number)
         << (fault.number != 0 ? " " : "") << (fault.number != 0 ? api_.name_of(fault.number) : "");
    detail::tell_rank_of(*control_, text << ", on ", own);
    detail::tell_group_of(*control_, text << " of its ");
    if (control_->ranks() == 2) detail::tell_rank_of(*control_, text << ", with ", 1 - own);
    fail(comm_error{text << " (look at the first rank that failed, or make the deadline longer)", fault});
    failure_.check();
    throw internal_error{"a failure of NCCL was told and is not there"};
  }
  /// Ends the group with a failure, and the control communicator. The first failure counts. NCCL's streams drain.
  /// @threads any
  void fail(const comm_error& error) noexcept
  {
    failure_.tell(error);
    end();
    control_->revoke();
  }
  /// Takes the handle that `call(api, handle)` makes.
  template <class Call>
  void make(std::string_view what, Call&& call)
  {
    int number = 0;
    {
      const std::lock_guard lock{inside_};
      number = call(std::as_const(api_), handle_);
      ended_ = handle_ == comm_type{};
    }
    settle(what, number);
  }

 private:
  [[nodiscard]] int state()
  {
    int error = 0;
    const int number = enter([&](const Api& api, comm_type group) { return api.async_error(group, error); });
    const int found = number != 0 ? number : error;
    require("an operation on the stream", found);
    return found;
  }
  void poll_control()
  {
    try {
      control_->check();
    } catch (const comm_error& error) {
      fail(error);
      failure_.check();
    }
  }
  void end() noexcept
  {
    const std::lock_guard lock{inside_};
    if (std::exchange(ended_, true) || handle_ == comm_type{}) return;
    (void)api_.abort(handle_);
  }
  void close() noexcept
  {
    try {
      run("its end", [](const Api& api, comm_type group) { return api.finalize(group); });
      const std::lock_guard lock{inside_};
      if (!std::exchange(ended_, true)) (void)api_.destroy(handle_);
    } catch (const comm_error&) {  // aborted
    }
  }

  Api api_;
  Control* control_;
  std::uint64_t deadline_;  ///< [ns]
  comm_type handle_{};
  std::mutex inside_;
  bool ended_ = true;  ///< or not made yet
  own_process made_in_;
  std::atomic<std::uint64_t> sequence_{0};
  first_failure failure_;
};

/// Deadline of a group of NCCL.
///
///     nccl<nccl_runtime, mpi> ranks{control, nccl_options{.deadline = 300'000'000'000}};
struct nccl_options {
  /// longest wait for other ranks, with the work of the own device that is ahead of it [ns]
  std::uint64_t deadline = 60'000'000'000;
};

/// Ranks with a GPU each: NCCL moves the bytes, on the stream of the agent that is given.
///
/// `Control` is a communicator of the same ranks, which outlives this one. Its `exchange` compares calls and carries
/// NCCL's identity, and it fails together with this one. Departures from the laws of a communicator:
/// - Sums are in NCCL's order, rounded to the element type at each step, after each rank's elements are scaled.
/// - A wait of the host for an agent is bounded only behind `await` of the event, or `finish` of the agent. Call one of
///   them before you wait for work that depends on this group, as managers and stages do. Until then NCCL waits on the
///   stream for as long as nobody calls `check`.
/// - A send and a receive that differ are not compared; they wait until the deadline.
/// - After an error the bytes that were under way are unspecified.
///
/// Cost: one call of NCCL and an exchange of one word, or none between `agreed(true)` and `agreed(false)`.
///
/// Use:
///
///     using ranks_type = collective::nccl<collective::nccl_runtime, collective::mpi>;
///     ranks_type ranks{control};    // control: a collective::mpi; the device of the rank is current
///     cm::sharded_model<device_type, ranks_type> m{memory, ranks, options};
///
/// @threads   one caller at a time; `revoke` any
template <nccl_api Api, class Control>
  requires knows_ranks<Control> && exchanges_words<Control> && tells_failure<Control>
class nccl {
 public:
  using policy_kind = communicator_kind;
  using comm_type = typename Api::comm_type;
  static constexpr std::string_view name = "nccl";

  /// With the current device of the calling thread. All ranks make it together; the identity goes over `control`.
  /// @throws comm_error   a rank is missing or failed
  explicit nccl(Control& control, const nccl_options& options = {}, Api api = {})
      : session_{control, options.deadline, std::move(api)},
        rank_{control.rank()},
        ranks_{control.ranks()},
        words_(words_of_id * ranks_)
  {
    std::uint64_t mine[words_of_id] = {};
    const std::span<std::byte> id{reinterpret_cast<std::byte*>(mine + 1), Api::id_size};
    if (index_of(rank_) == 0) mine[0] = static_cast<std::uint64_t>(session_.api().make_id(id));
    exchange(mine, words_);
    session_.require("its identity", static_cast<int>(words_[0]));
    std::memcpy(id.data(), words_.data() + 1, Api::id_size);
    create(id);
  }
  /// With an identity that came another way, such as by `nccl_id_file`. @throws comm_error   a rank is missing or
  /// failed
  nccl(Control& control, std::span<const std::byte> id, const nccl_options& options = {}, Api api = {})
      : session_{control, options.deadline, std::move(api)},
        rank_{control.rank()},
        ranks_{control.ranks()},
        words_(words_of_id * ranks_)
  {
    if (id.size() != Api::id_size) throw usage_error{"an identity of NCCL has another length (pass what make_id gave)"};
    create(id);
  }
  /// Takes a communicator that another library made; it is destroyed or aborted here.
  /// @throws usage_error   it has another rank or other ranks than `control`; it is ended
  nccl(Control& control, comm_type given, const nccl_options& options = {}, Api api = {})
      : session_{control, options.deadline, std::move(api)},
        rank_{control.rank()},
        ranks_{control.ranks()},
        words_(words_of_id * ranks_)
  {
    int rank = -1;
    int ranks = -1;
    session_.make("an adoption", [&](const Api& own, comm_type& handle) {
      handle = given;
      const int number = own.rank_of(given, rank);
      return number != 0 ? number : own.ranks_of(given, ranks);
    });
    if (rank != number_of(rank_) || ranks != static_cast<int>(ranks_))
      throw usage_error{
          "a communicator of NCCL was given with another rank or number of ranks than its control (number both alike)"};
  }
  nccl(const nccl&) = delete;
  nccl& operator=(const nccl&) = delete;
  ~nccl()
  {
    if (!made_in_.is_here()) return;  // NCCL does not work in a forked child
    for (const auto& it : sums_)
      (void)session_.enter([&](const Api& api, comm_type group) { return api.destroy_sum(it.how, group); });
  }

  [[nodiscard]] rank_id rank() const noexcept { return rank_; }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return ranks_; }
  /// What ranks of this group are called in errors, as of its control.
  void call_members(const member_names& names)
    requires requires(Control& control) { control.call_members(names); }
  {
    session_.control().call_members(names);
  }
  void tell_rank(error_text& text, std::uint32_t rank) const noexcept
  {
    detail::tell_rank_of(session_.control(), text, rank);
  }
  void tell_group(error_text& text) const noexcept { detail::tell_group_of(session_.control(), text); }

  /// With `true`, the next calls are not compared: the caller has compared their plan.
  void agreed(bool is_agreed) noexcept { is_agreed_ = is_agreed; }
  /// A fingerprint of all calls so far, except sends and receives. Ranks with equal plans have equal fingerprints.
  [[nodiscard]] std::uint64_t rolled() const noexcept { return rolled_.value(); }

  template <stream_backend Backend>
  void all_gather(Backend& backend, agent stream, std::byte* whole, const shares& parts, std::uint32_t label)
  {
    require(parts);
    agree({.what = operation::all_gather, .size = parts.whole, .label = label});
    const std::byte* const own = whole + parts.begin(index_of(rank_));
    if (parts.are_equal()) {
      const auto give = [=](const Api& api, comm_type g, auto on) {
        return api.all_gather(own, whole, parts.each, dtype::uint8, g, on);
      };
      return enqueue(backend, stream, "all_gather", give);
    }
    enqueue(backend, stream, "all_gather", [=](const Api& api, comm_type group, auto on) {
      return for_each_share(api, parts, [&](std::uint32_t root, std::size_t index, std::size_t size) {
        return api.broadcast(whole + index, whole + index, size, dtype::uint8, static_cast<int>(root), group, on);
      });
    });
  }
  template <stream_backend Backend>
  void reduce_scatter(Backend& backend, agent stream, std::byte* whole, const shares& parts, sum how,
                      std::uint32_t label)
  {
    const auto added = agree_sum(operation::reduce_scatter, parts, how, label);
    const std::size_t each = size_of(how.type);
    if (parts.are_equal()) {
      std::byte* const own = whole + parts.begin(index_of(rank_));
      return enqueue(backend, stream, "reduce_scatter", [=](const Api& api, comm_type group, auto on) {
        return api.reduce_scatter(whole, own, parts.each / each, how.type, added, group, on);
      });
    }
    enqueue(backend, stream, "reduce_scatter", [=](const Api& api, comm_type group, auto on) {
      return for_each_share(api, parts, [&](std::uint32_t root, std::size_t index, std::size_t size) {
        return api.reduce(whole + index, whole + index, size / each, how.type, added, static_cast<int>(root), group,
                          on);
      });
    });
  }
  template <stream_backend Backend>
  void all_reduce(Backend& backend, agent stream, std::byte* whole, const shares& parts, sum how, std::uint32_t label)
  {
    const auto added = agree_sum(operation::all_reduce, parts, how, label);
    const std::size_t count = parts.whole / size_of(how.type);
    enqueue(backend, stream, "all_reduce", [=](const Api& api, comm_type g, auto on) {
      return api.all_reduce(whole, whole, count, how.type, added, g, on);
    });
  }
  template <stream_backend Backend>
  void broadcast(Backend& backend, agent stream, std::byte* place, bytes size, rank_id root, std::uint32_t label)
  {
    require(root, false);
    agree({.what = operation::broadcast, .size = size.count(), .root = index_of(root), .label = label});
    enqueue(backend, stream, "broadcast", [=](const Api& api, comm_type g, auto on) {
      return api.broadcast(place, place, size.count(), dtype::uint8, number_of(root), g, on);
    });
  }
  template <stream_backend Backend>
  void send(Backend& backend, agent stream, std::byte* place, bytes size, rank_id to, std::uint32_t)
  {
    require(to, true);
    enqueue(backend, stream, "send", [=](const Api& api, comm_type g, auto on) {
      return api.send(place, size.count(), dtype::uint8, number_of(to), g, on);
    });
  }
  template <stream_backend Backend>
  void receive(Backend& backend, agent stream, std::byte* place, bytes size, rank_id from, std::uint32_t)
  {
    require(from, true);
    enqueue(backend, stream, "receive", [=](const Api& api, comm_type g, auto on) {
      return api.receive(place, size.count(), dtype::uint8, number_of(from), g, on);
    });
  }
  /// The calling threads meet, each after `finish`: NCCL has no barrier, and a sum would need room on the device.
  template <stream_backend Backend>
  void barrier(Backend& backend, agent stream, std::uint32_t label)
  {
    agree({.what = operation::barrier, .label = label});
    finish(backend, stream);
    const std::uint64_t mine[] = {label};
    exchange(mine, std::span{words_}.first(ranks_));
  }

  void exchange(std::span<const std::uint64_t> mine, std::span<std::uint64_t> all)
  {
    try {
      session_.control().exchange(mine, all);
    } catch (const comm_error& error) {
      session_.fail(error);
      throw;
    }
  }

  /// Waits until all work of the agent is done. Afterwards no wait of the host for that agent is long.
  /// @throws comm_error   the deadline passed, or the group failed; it is ended, and the stream goes on
  template <stream_backend Backend>
  void finish(Backend& backend, agent stream)
  {
    const auto on = backend.stream(stream);
    session_.wait("work of a stream", [&] {
      bool is_done = false;
      session_.require("a query of a stream",
                       session_.enter([&](const Api& api, comm_type) { return api.is_done(on, is_done); }));
      return is_done;
    });
  }
  /// Waits until an event is over, which may depend on work of this group. Afterwards a wait of the host for it is
  /// short. Where the backend cannot be asked for one event, all work of its agent is waited for.
  /// @throws comm_error   as finish
  template <stream_backend Backend>
  void await(Backend& backend, event point)
  {
    if constexpr (requires { backend.is_reached(point); })
      session_.wait("an event of a stream", [&] { return backend.is_reached(point); });
    else if (point.source != agent::host)
      finish(backend, point.source);
  }
  void check() { session_.check(); }
  void revoke() noexcept
  {
    if (!made_in_.is_here()) return;
    session_.fail(
        comm_error{revoked_by_this_rank(),
                   {.failure = comm_failure::revoked, .rank = index_of(rank_), .sequence = session_.sequence()}});
  }

  [[nodiscard]] nccl_session<Api, Control>& session() noexcept { return session_; }  ///< for `nccl_registration`

 private:
  static constexpr std::size_t words_of_id = 1 + (Api::id_size + 7) / 8;
  struct scaled_sum {
    dtype type;
    std::uint32_t scale;
    typename Api::sum_type how;
  };

  [[nodiscard]] error_text revoked_by_this_rank() const noexcept
  {
    error_text text;
    tell_rank(text << "chunkmem: ", index_of(rank_));
    tell_group(text << " revoked its ");
    return text << " of NCCL (see its error)";
  }
  [[nodiscard]] static int number_of(rank_id rank) noexcept { return static_cast<int>(index_of(rank)); }

  void create(std::span<const std::byte> id)
  {
    session_.make("making a communicator", [&](const Api& api, comm_type& fresh) {
      return api.create(fresh, static_cast<int>(ranks_), id, number_of(rank_));
    });
  }

  /// `give(rank, place, size)` for each share that is not empty, as one call; ends the group of calls in any case.
  template <class Give>
  [[nodiscard]] static int for_each_share(const Api& api, const shares& parts, Give&& give) noexcept
  {
    int number = api.begin_calls();
    if (number != 0) return number;
    for (std::uint32_t rank = 0;
         rank < parts.ranks && (number == 0 || number == nccl_session<Api, Control>::in_progress); ++rank)
      if (parts.size(rank) != 0) number = give(rank, parts.begin(rank), parts.size(rank));
    const int end = api.end_calls();
    return number != 0 && number != nccl_session<Api, Control>::in_progress ? number : end;
  }

  template <class Backend, class Enqueue>
  void enqueue(Backend& backend, agent stream, std::string_view what, Enqueue&& give)
  {
    session_.check();
    session_.count();
    int number = 0;
    backend.launch(stream, [&](typename Api::stream_type on) {
      number = session_.enter([&](const Api& api, comm_type group) { return give(api, group, on); });
    });
    session_.settle(what, number);
  }

  [[nodiscard]] typename Api::sum_type agree_sum(operation what, const shares& parts, sum how, std::uint32_t label)
  {
    require(parts);
    require_summable(how, parts.whole);
    if (const float half = to_float(round_to<fp16>(how.scale));
        how.type == dtype::float16 && !(half > 0.0F && half <= 65504.0F))
      throw usage_error{error_text{} << "chunkmem: NCCL multiplies sums of fp16 with a factor of fp16, and a scale of "
                                     << how.scale << " is " << half
                                     << " there (choose one from 2^-24 to 65504, or multiply the loss instead)"};
    const auto scale = bits_as<std::uint32_t>(how.scale);
    agree({.what = what, .type = how.type, .size = parts.whole, .label = label, .scale = scale});
    if (how.scale == 1) return session_.api().plain_sum();
    if (how.scale == 1 / static_cast<float>(ranks_)) return session_.api().mean();
    const auto found =
        std::ranges::find_if(sums_, [&](const auto& it) { return it.type == how.type && it.scale == scale; });
    if (found != sums_.end()) return found->how;
    scaled_sum fresh{.type = how.type, .scale = scale, .how = {}};
    session_.run("a scaled sum", [&](const Api& api, comm_type group) {
      return api.create_scaled_sum(fresh.how, how.type, how.scale, group);
    });
    sums_.push_back(fresh);
    return fresh.how;
  }

  void agree(const call& next)
  {
    session_.check();
    rolled_.add(next);
    if (is_agreed_) return;
    const std::uint64_t mine[] = {fingerprint_of(next)};
    const std::span all{words_.data(), ranks_};
    exchange(mine, all);
    if (std::ranges::count(all, mine[0]) != std::ranges::ssize(all))
      session_.raise(name_of(next.what), {.failure = comm_failure::mismatch, .sequence = session_.sequence() + 1});
  }

  void require(const shares& parts) const
  {
    if (parts.ranks == ranks_) return;
    throw usage_error{error_text{} << "chunkmem: shares for " << parts.ranks << " ranks were given to a group of "
                                   << ranks_ << " (make them for it)"};
  }
  void require(rank_id other, bool is_peer) const
  {
    if (index_of(other) < ranks_ && !(is_peer && other == rank_)) return;
    throw usage_error{error_text{} << "chunkmem: rank " << index_of(rank_) << " of " << ranks_
                                   << " moves bytes from or to rank " << index_of(other)
                                   << " (name one that is there; bytes are sent to others)"};
  }

  nccl_session<Api, Control> session_;
  rank_id rank_;
  std::uint32_t ranks_;
  bool is_agreed_ = false;
  fingerprint rolled_;
  std::vector<std::uint64_t> words_;
  std::vector<scaled_sum> sums_;
  own_process made_in_;
};

/// Memory that NCCL may reach without a copy of its own: an arena, told once, for as long as this lives.
///
///     const nccl_registration told{group, arena, size};  // while the arena is used
///
/// Its communicator outlives this. After a failure NCCL is not called any more: the abort has ended the registration.
template <nccl_api Api, class Control>
class nccl_registration {
 public:
  /// @throws comm_error   NCCL refused, which ends the group
  nccl_registration(nccl<Api, Control>& group, std::byte* place, bytes size) : session_{&group.session()}
  {
    session_->run("telling it memory",
                  [&](const Api& api, auto handle) { return api.enroll(handle, place, size.count(), told_); });
  }
  nccl_registration(const nccl_registration&) = delete;
  nccl_registration& operator=(const nccl_registration&) = delete;
  ~nccl_registration()
  {
    (void)session_->enter(
        [&](const Api& api, auto handle) { return told_ == nullptr ? 0 : api.dismiss(handle, told_); });
  }

 private:
  nccl_session<Api, Control>* session_;
  void* told_ = nullptr;
};

}  // namespace collective

}  // namespace chunkmem::inline v0
