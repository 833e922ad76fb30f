// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/peer_groups.hpp>
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
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
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
/// A lock lets one thread at a time into NCCL, so that no other call runs during an abort. No wait holds the lock. The
/// first failure ends the control communicator first, so that the other ranks fail before their deadline, and marks all
/// groups with work on the same device. Then NCCL is called only once more for each, for the abort. Abort and
/// destruction are on a thread of their own, since they may wait for a kernel of another communicator ("Using multiple
/// NCCL communicators concurrently", NCCL user guide 2.28). An end waits no longer than the deadline, and
/// `peer_groups::time_to_drain` for the abort; a call that has not returned then is left, and named on the standard
/// error.
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
  static constexpr std::uint64_t longest_deadline = std::uint64_t{1} << 60U;  ///< 36 years [ns]

  nccl_session(Control& control, std::uint64_t deadline, Api api)
      : handle_{std::make_shared<handle>(std::move(api))},
        control_{&control},
        deadline_{std::min(deadline, longest_deadline)}
  {
  }
  nccl_session(const nccl_session&) = delete;
  nccl_session& operator=(const nccl_session&) = delete;
  /// Finalizes together with the other ranks, for no longer than the deadline, then aborts.
  ~nccl_session()
  {
    if (!made_in_.is_here()) return;  // NCCL does not work in a forked child
    const auto late = clock::now() + std::chrono::nanoseconds{deadline_};
    finalize();
    if (!has_failed()) {
      end(false);
      if (!waits_for_end(late))
        fail(of_number("its destruction",
                       {.failure = comm_failure::deadline, .sequence = sequence(), .waited = deadline_}));
    }
    const clock::time_point aborted = aborted_at_;
    if (!waits_for_end(aborted == clock::time_point{} ? late : aborted + backend::peer_groups::time_to_drain))
      std::fputs("chunkmem: a communicator of NCCL stays with this process, since its end did not return\n", stderr);
    for (const auto& device : devices_) device->leave(this);
  }

  [[nodiscard]] const Api& api() const noexcept { return handle_->api; }
  [[nodiscard]] Control& control() const noexcept { return *control_; }
  [[nodiscard]] bool has_failed() const noexcept { return failure_.is_there(); }
  [[nodiscard]] std::uint64_t deadline() const noexcept { return deadline_; }
  [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_.load(std::memory_order_relaxed); }
  void count() noexcept { sequence_.fetch_add(1, std::memory_order_relaxed); }

  /// Runs `call(api, handle)` as the only call inside NCCL. After a failure it answers 0 without the call: `settle`
  /// then throws the failure.
  template <class Call>
  [[nodiscard]] int enter(Call&& call)
  {
    std::unique_lock lock{handle_->inside, std::defer_lock};
    while (!is_ending() && !lock.try_lock()) std::this_thread::yield();  // a call that ends may hold it for long
    return is_ending() || handle_->has_ended ? 0 : call(std::as_const(handle_->api), handle_->group);
  }
  /// Notes that the group has operations on the streams of this device from here on.
  /// @throws comm_error   the group failed; usage_error   another group with work on the device failed, and has not
  ///   ended
  void join(const std::shared_ptr<backend::peer_groups>& device)
  {
    if (latest_ == device.get()) [[likely]]
      return;
    failure_.check();
    const auto find = [&] { return std::ranges::find(devices_, device) != devices_.end(); };
    if (!find()) {
      device->join(
          {.group = this,
           .check = [](void* group) noexcept { return static_cast<nccl_session*>(group)->is_well(); },
           .mark = [](void* group, const comm_error& why) noexcept { static_cast<nccl_session*>(group)->mark(why); },
           .abort = [](void* group) noexcept { static_cast<nccl_session*>(group)->end(true); },
           .deadline = deadline_});
      const std::lock_guard lock{devices_mutex_};
      std::erase_if(devices_, [&](const auto& it) {
        if (!it->is_closed()) return false;
        it->leave(this);
        return true;
      });
      devices_.push_back(device);
    }
    latest_ = device.get();
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
  /// @throws comm_error   NCCL or the control communicator has failed; usage_error   this is a forked child
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
    fail(of_number(what, fault));
    failure_.check();
    throw internal_error{"NCCL reported a failure that is not there"};
  }
  /// Ends the group with a failure, the control communicator, and the other groups of the device. The first failure
  /// counts. Does not wait. @threads any
  void fail(const comm_error& error) noexcept
  {
    mark(error);
    for (const auto& device : devices()) device->end_all(error);
    end(true);
  }
  /// Takes the handle that `call(api, handle)` makes.
  template <class Call>
  void make(std::string_view what, Call&& call)
  {
    int number = 0;
    {
      const std::lock_guard lock{handle_->inside};
      (void)api().current_device(handle_->device);
      number = call(std::as_const(handle_->api), handle_->group);
      handle_->has_ended = handle_->group == comm_type{};
    }
    settle(what, number);
  }

 private:
  [[nodiscard]] bool is_ending() const noexcept { return has_failed() || handle_->ends_under_way != 0; }
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
  /// NCCL's handle: an abort may need it for longer than the session lives.
  struct handle {
    explicit handle(Api its_api) : api{std::move(its_api)} {}

    Api api;
    comm_type group{};
    int device = 0;
    std::mutex inside;
    bool has_ended = true;  ///< or not made yet
    std::atomic<int> ends_under_way{0};
  };

  [[nodiscard]] comm_error of_number(std::string_view what, const comm_fault& fault) const noexcept
  {
    const std::uint32_t own = index_of(control_->rank());
    error_text text;
    text << "chunkmem: NCCL, " << what << ": " << name_of(fault.failure) << ", in operation " << fault.sequence
         << " after " << fault.waited << " ns, NCCL's number " << static_cast<std::uint64_t>(fault.number)
         << (fault.number != 0 ? " " : "") << (fault.number != 0 ? api().name_of(fault.number) : "");
    detail::tell_rank_of(*control_, text << ", on ", own);
    detail::tell_group_of(*control_, text << " of its ");
    if (control_->ranks() == 2) detail::tell_rank_of(*control_, text << ", with ", 1 - own);
    return {text << " (look at the first rank that failed, or make the deadline longer)", fault};
  }
  /// Tells the other ranks, once.
  void mark(const comm_error& error) noexcept
  {
    failure_.tell(error);
    if (!has_revoked_.exchange(true)) control_->revoke();
  }
  /// Begins the call that ends the handle, on a thread of its own: it may wait for kernels of other groups.
  void end(bool aborts) noexcept
  {
    if ((aborts ? has_aborted_ : has_destroyed_).exchange(true)) return;
    if (aborts) aborted_at_ = clock::now();
    const auto call = [it = handle_, aborts]() noexcept {
      {
        const std::lock_guard lock{it->inside};
        if (!std::exchange(it->has_ended, true) && it->group != comm_type{}) {
          (void)it->api.use_device(it->device);  // else NCCL puts device 0 back, and makes a context on it
          (void)(aborts ? it->api.abort(it->group) : it->api.destroy(it->group));
        }
      }
      --it->ends_under_way;
    };
    ++handle_->ends_under_way;
    try {
      std::thread{call}.detach();
    } catch (...) {         // no thread could be started
      if (!aborts) call();  // an abort that may hang is left instead
    }
  }
  [[nodiscard]] bool waits_for_end(clock::time_point until) const noexcept
  {
    while (handle_->ends_under_way != 0 && clock::now() < until)
      std::this_thread::sleep_for(std::chrono::microseconds{20});
    return handle_->ends_under_way == 0;
  }
  /// Asks the control communicator and NCCL. A failure marks the group.
  [[nodiscard]] bool is_well() noexcept
  {
    if (has_failed()) return false;
    try {
      control_->check();
    } catch (const comm_error& error) {
      mark(error);
      return false;
    } catch (const std::exception&) {  // a misuse: the next call on this thread tells
    }
    int error = 0;
    const int number = enter([&](const Api& api, comm_type group) { return api.async_error(group, error); });
    const int found = number != 0 ? number : error;
    if (found == 0 || found == in_progress) return true;
    mark(of_number("an operation on the stream",
                   {.failure = comm_failure::peer_lost, .sequence = sequence(), .number = found}));
    return false;
  }
  /// A copy, since another thread may make the group fail while this one joins a device.
  [[nodiscard]] std::vector<std::shared_ptr<backend::peer_groups>> devices() const
  {
    const std::lock_guard lock{devices_mutex_};
    return devices_;
  }
  void finalize() noexcept
  {
    try {
      run("its end", [](const Api& api, comm_type group) { return api.finalize(group); });
    } catch (const std::exception&) {  // aborted
    }
  }

  std::shared_ptr<handle> handle_;
  Control* control_;
  std::uint64_t deadline_;                                      ///< [ns]
  mutable std::mutex devices_mutex_;                            ///< of writes by the caller, and of reads by others
  std::vector<std::shared_ptr<backend::peer_groups>> devices_;  ///< that have had operations of it, and live
  const backend::peer_groups* latest_ = nullptr;                ///< one of them
  std::atomic<clock::time_point> aborted_at_{};
  std::atomic<bool> has_revoked_{false};
  std::atomic<bool> has_aborted_{false};
  std::atomic<bool> has_destroyed_{false};
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
/// - A wait of the host for a `cuda_device` ends by the deadline of the operations that hold it up: with a comm_error
///   where the groups of the device ended during the wait, and later waits say nothing more. On a backend of your own
///   without `groups()` and `launch_with_peers`, call `await` of the event or `finish` of the agent before you wait.
/// - All groups with work on one device end with the first that fails.
/// - A send and a receive that differ are not compared; they wait until the deadline.
/// - After an error the bytes that were under way are unspecified.
///
/// Cost: one call of NCCL, the record of an event, and an exchange of one word, or none between `agreed(true)` and
/// `agreed(false)`. A wait of the host while such an operation is on a stream polls.
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

  /// Uses the current device of the calling thread. All ranks call this together; the identity goes over `control`.
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
  /// Uses an identity that came another way, such as by `nccl_id_file`. @throws comm_error   a rank is missing or
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
  /// @throws usage_error   its rank or number of ranks is not that of `control`; the communicator is ended
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
  /// Sets the names of the ranks of this group in errors, and those of its control.
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
  /// A barrier of the calling threads, each after `finish`: NCCL has none, and a sum would need room on the device.
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
    if constexpr (requires { backend.is_capturing(); })
      expects(!backend.is_capturing(),
              "a wait for a communicator of NCCL while a graph is being captured (wait after it)");
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
    const auto call = [&](typename Api::stream_type on) {
      number = session_.enter([&](const Api& api, comm_type group) { return give(api, group, on); });
    };
    if constexpr (requires { session_.join(backend.groups()); }) {
      session_.join(backend.groups());
      backend.launch_with_peers(stream, std::chrono::nanoseconds{session_.deadline()}, call);
    } else {
      backend.launch(stream, call);
    }
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

/// Registers memory that NCCL may use without a copy: an arena, for as long as this object lives.
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
