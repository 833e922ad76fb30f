// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/first_failure.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/own_process.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace chunkmem::inline v0 {

namespace collective {

/// The request of one rank in a rendezvous.
///
///     const rendezvous_request mine{.asked = {.what = operation::barrier, .label = chunk}, .each = 0, .place = place};
struct rendezvous_request {
  call asked;
  std::uint64_t each = 0;            ///< a full share [bytes]; the same on all ranks, as `asked` is
  const std::byte* place = nullptr;  ///< the bytes that others read
  rank_id other = rank_id::none;     ///< the only other rank that takes part; none: all do
};

/// Work of agents and words of callers meet separately: neither waits for the other.
enum class rendezvous_lane : std::uint8_t { agents, callers };

/// Statistics of waits for ranks.
///
///     const rendezvous_waits seen = meeting.waits();
struct rendezvous_waits {
  std::uint64_t longest = 0;          ///< between the first rank that came and the last [ns]
  rank_id longest_for{};              ///< the rank that came last then
  operation longest_at{};             ///< the operation of that wait
  std::uint64_t slow_rendezvous = 0;  ///< that waited longer than `slow_after`
};

/// Ranks that are threads of one process meet here. They compare their requests, and see each other's memory.
///
///     thread_rendezvous meeting{4, 60'000'000'000, 1'000'000'000};
///     meeting.take(0);  // on the thread of rank 0
///
/// - A rendezvous is decided under one lock, and once. When the last rank is there with the same request, the
///   rendezvous takes place on every rank that takes part. Otherwise it fails on every rank.
/// - A failure ends the whole group. It does not break off a rendezvous that takes place: only library code runs until
///   the rendezvous ends, and a rank that left early would take its memory away from ranks that still read. So the
///   deadline limits the wait for ranks to come, not the moving of bytes.
/// - A rank does one thing at a time in a lane. So two ranks that wait for each other with different requests are a
///   mismatch immediately. A ring of sends without receives ends with the deadline.
/// - In a forked child the other ranks do not exist: `take` and `expect_own_process` throw, and no call waits.
///
/// Cost: a lock and O(ranks) for each step of a rank; for every rank but the last, a sleep on a condition variable of
/// its own. No allocation after construction.
///
/// @threads   any; in each lane one at a time for each rank
class thread_rendezvous {
 public:
  using clock = std::chrono::steady_clock;

  /// @param deadline     longest wait for a rank [ns]
  /// @param slow_after   a wait that is counted as slow [ns]
  thread_rendezvous(std::uint32_t ranks, std::uint64_t deadline, std::uint64_t slow_after)
      : ranks_{ranks},
        deadline_{std::min(deadline, longest_deadline)},
        slow_after_{slow_after},
        seats_(std::size_t{2} * ranks),
        sources_(std::size_t{ranks} * ranks)
  {
  }

  [[nodiscard]] std::uint32_t ranks() const noexcept { return ranks_; }
  /// @throws usage_error   this is a forked child
  void expect_own_process() const { seats_.expect_owner("a group of ranks that are threads"); }

  /// Call this first, on the thread that works as this rank.
  /// @throws usage_error   there is no such rank, or it was taken before
  void take(std::uint32_t rank)
  {
    if (rank >= ranks_)
      throw usage_error{error_text{} << "chunkmem: rank " << rank << " joins a group of " << ranks_
                                     << " (ranks count from 0)"};
    expect_own_process();
    const std::lock_guard lock{mutex_};
    if (seat_of(rendezvous_lane::agents, rank).is_taken)
      throw usage_error{error_text{} << "chunkmem: rank " << rank
                                     << " joins its group twice (each rank once; a new group for a new start)"};
    seat_of(rendezvous_lane::agents, rank).is_taken = true;
  }

  /// The rank leaves. It makes no calls but the `given` ones of its agents; some of them may still be queued.
  void leave(std::uint32_t rank, std::uint64_t given) noexcept
  {
    if (!seats_.is_owner()) return;
    const std::lock_guard lock{mutex_};
    seat& at_agents = seat_of(rendezvous_lane::agents, rank);
    at_agents.given = given;
    at_agents.has_left = seat_of(rendezvous_lane::callers, rank).has_left = true;
    fail_who_waits_for(rendezvous_lane::agents, rank);
    fail_who_waits_for(rendezvous_lane::callers, rank);
  }

  /// Sets the names of ranks in errors. Any rank may set them; the first names stay. @throws std::bad_alloc
  void call_members(const member_names& names)
  {
    expect_own_process();
    const std::lock_guard lock{mutex_};
    if (names_.empty()) names_ = names;
  }
  void tell_rank(error_text& text, std::uint32_t rank) const noexcept
  {
    if (!seats_.is_owner()) return member_names{}.tell_rank(text, rank);
    const std::lock_guard lock{mutex_};
    names_.tell_rank(text, rank);
  }
  void tell_group(error_text& text) const noexcept
  {
    if (!seats_.is_owner()) return member_names{}.tell_group(text, ranks_);
    const std::lock_guard lock{mutex_};
    names_.tell_group(text, ranks_);
  }

  /// Waits until all that take part are there with the same request. A request without bytes is over then; any other is
  /// over by the last `settle`.
  /// @return   false: the group has failed, and no rendezvous takes place
  [[nodiscard]] bool meet(rendezvous_lane lane, std::uint32_t rank, const rendezvous_request& mine) noexcept
  {
    if (!seats_.is_owner()) return false;
    std::unique_lock lock{mutex_};
    seat& own = seat_of(lane, rank);
    ++own.begun;
    if (failure_.is_there()) return false;
    own.request = mine;
    own.step = 1;
    own.is_released = false;
    own.came = clock::now();
    if (finds_trouble(lane, rank)) return false;
    if (are_all_at(lane, rank, 1)) {
      count_wait(lane, rank);
      release(lane, rank, mine.asked.size == 0);
      return true;
    }
    const auto due = own.came + std::chrono::nanoseconds{deadline_};
    if (!own.woken.wait_until(lock, due, [&] { return own.is_released || failure_.is_there(); }))
      fail(late(lane, rank));
    return own.is_released;  // decided before any failure that came since
  }

  /// Waits until all that take part have come as far; `is_last`: and ends the rendezvous.
  /// @pre   `meet` returned true, of a request with bytes
  void settle(rendezvous_lane lane, std::uint32_t rank, bool is_last) noexcept
  {
    std::unique_lock lock{mutex_};
    seat& own = seat_of(lane, rank);
    own.is_released = false;
    ++own.step;
    if (are_all_at(lane, rank, own.step))
      release(lane, rank, is_last);
    else
      own.woken.wait(lock, [&] { return own.is_released; });
  }

  /// The request of a rank. @pre   a rendezvous takes place, and has not settled for the last time
  [[nodiscard]] const std::byte* place_of(rendezvous_lane lane, std::uint32_t rank) const noexcept
  {
    return seat_of(lane, rank).request.place;
  }

  /// Room for an address of each rank: for the agent of one rank.
  [[nodiscard]] const std::byte** sources_of(std::uint32_t rank) noexcept
  {
    return &sources_[std::size_t{rank} * ranks_];
  }

  void revoke(std::uint32_t rank) noexcept
  {
    if (!seats_.is_owner()) return;
    const std::lock_guard lock{mutex_};
    error_text text;
    names_.tell_rank(text << "chunkmem: ", rank);
    names_.tell_group(text << " gave up, and with it its ", ranks_);
    text << " (its own error says why; make a new group to go on)";
    fail({text,
          {.failure = comm_failure::revoked, .rank = rank, .sequence = seat_of(rendezvous_lane::agents, rank).begun}});
  }
  /// @throws comm_error   why the group failed
  void check() const { failure_.check(); }

  [[nodiscard]] rendezvous_waits waits() const noexcept
  {
    if (!seats_.is_owner()) return waits_;
    const std::lock_guard lock{mutex_};
    return waits_;
  }

 private:
  /// 36 years: added to a time, it does not overflow
  static constexpr std::uint64_t longest_deadline = std::uint64_t{1} << 60U;

  struct seat {
    std::condition_variable woken;
    rendezvous_request request;
    clock::time_point came;
    std::uint64_t begun = 0;   ///< calls so far
    std::uint64_t given = 0;   ///< of a rank that has left: calls that it will have made
    std::uint32_t step = 0;    ///< 0: not there; 1: came; more: so often settled
    bool is_released = false;  ///< by the last one that came as far
    bool is_taken = false;
    bool has_left = false;

    [[nodiscard]] bool is_gone() const noexcept { return has_left && step == 0 && begun >= given; }
    [[nodiscard]] bool needs(std::uint32_t rank) const noexcept
    {
      return request.other == rank_id::none || index_of(request.other) == rank;
    }
    [[nodiscard]] bool is_waiting() const noexcept { return step == 1 && !is_released; }
  };

  [[nodiscard]] std::size_t index_of_seat(rendezvous_lane lane, std::uint32_t rank) const noexcept
  {
    return static_cast<std::size_t>(lane) * ranks_ + rank;
  }
  [[nodiscard]] seat& seat_of(rendezvous_lane lane, std::uint32_t rank) noexcept
  {
    return seats_[index_of_seat(lane, rank)];
  }
  [[nodiscard]] const seat& seat_of(rendezvous_lane lane, std::uint32_t rank) const noexcept
  {
    return seats_[index_of_seat(lane, rank)];
  }

  /// Calls `what(seat, its rank)` for all that take part in the request of a rank, itself included.
  template <class What>
  void for_all_in(rendezvous_lane lane, std::uint32_t rank, What what) noexcept
  {
    const rank_id other = seat_of(lane, rank).request.other;
    for (std::uint32_t each = 0; each < ranks_; ++each)
      if (other == rank_id::none || each == rank || each == index_of(other)) what(seat_of(lane, each), each);
  }

  /// Ranks that meet each other here: a rank in another rendezvous is not here.
  [[nodiscard]] bool are_all_at(rendezvous_lane lane, std::uint32_t rank, std::uint32_t step) noexcept
  {
    bool are = true;
    for_all_in(lane, rank, [&](const seat& it, std::uint32_t each) {
      are = are && it.step == step && (each == rank || it.needs(rank));
    });
    return are;
  }

  void release(rendezvous_lane lane, std::uint32_t rank, bool is_last) noexcept
  {
    bool somebody_left = false;
    for_all_in(lane, rank, [&](seat& it, std::uint32_t each) {
      it.is_released = true;
      if (is_last) it.step = 0;
      if (each != rank) it.woken.notify_one();
      somebody_left = somebody_left || it.has_left;
    });
    if (!is_last || !somebody_left) return;
    for_all_in(lane, rank, [&](const seat&, std::uint32_t each) { fail_who_waits_for(lane, each); });
  }

  /// Whether a rank that just came waits for a rank with another request, or for one that has left.
  [[nodiscard]] bool finds_trouble(rendezvous_lane lane, std::uint32_t rank) noexcept
  {
    const seat& own = seat_of(lane, rank);
    for_all_in(lane, rank, [&](const seat& it, std::uint32_t each) {
      if (it.is_gone())
        fail(lost(lane, rank, each));
      else if (it.is_waiting() && it.needs(rank) && !are_same(it.request, own.request))
        fail(mismatch(lane, each, rank));
    });
    return failure_.is_there();
  }
  [[nodiscard]] static bool are_same(const rendezvous_request& left, const rendezvous_request& right) noexcept
  {
    return left.asked == right.asked && left.each == right.each &&
           (left.other == rank_id::none) == (right.other == rank_id::none);
  }

  void fail_who_waits_for(rendezvous_lane lane, std::uint32_t gone) noexcept
  {
    if (!seat_of(lane, gone).is_gone()) return;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank)
      if (const seat& it = seat_of(lane, rank); it.is_waiting() && it.needs(gone)) fail(lost(lane, rank, gone));
  }

  void fail(const comm_error& error) noexcept
  {
    failure_.tell(error);
    for (seat& it : *seats_) it.woken.notify_one();
  }

  void count_wait(rendezvous_lane lane, std::uint32_t last) noexcept
  {
    std::uint64_t longest = 0;
    for_all_in(lane, last, [&](const seat& it, std::uint32_t) {
      longest = std::max(longest, since(it.came, seat_of(lane, last).came));
    });
    if (longest > slow_after_) ++waits_.slow_rendezvous;
    if (longest <= waits_.longest) return;
    waits_ = {longest, rank_id{last}, seat_of(lane, last).request.asked.what, waits_.slow_rendezvous};
  }

  [[nodiscard]] static std::uint64_t since(clock::time_point from, clock::time_point to) noexcept
  {
    return static_cast<std::uint64_t>(std::chrono::nanoseconds{to - from}.count());
  }
  error_text& describe(error_text& text, const call& it) const noexcept
  {
    text << name_of(it.what) << " of " << it.size << " B of " << name_of(it.type) << " (root " << it.root << ", ";
    names_.tell_label(text, it.label);
    return text << ", scale bits " << it.scale << ", fingerprint " << fingerprint_of(it) << ")";
  }

  [[nodiscard]] comm_error late(rendezvous_lane lane, std::uint32_t rank) noexcept
  {
    const seat& own = seat_of(lane, rank);
    std::uint32_t missing = UINT32_MAX;
    for_all_in(lane, rank, [&](const seat& it, std::uint32_t each) {
      if (missing == UINT32_MAX && (it.step == 0 || !it.needs(rank))) missing = each;
    });
    error_text text;
    names_.tell_rank(text << "chunkmem: ", missing);
    names_.tell_rank(text << " did not come within " << deadline_ / 1'000'000 << " ms: ", rank);
    text << " waits in its call " << own.begun << ", ";
    describe(text, own.request.asked)
        << " (see what that rank does: it may wait in other calls; or raise the deadline)";
    return {text,
            {.failure = comm_failure::deadline,
             .rank = missing,
             .sequence = own.begun,
             .waited = since(own.came, clock::now())}};
  }
  [[nodiscard]] comm_error lost(rendezvous_lane lane, std::uint32_t rank, std::uint32_t gone) noexcept
  {
    const seat& own = seat_of(lane, rank);
    error_text text;
    names_.tell_rank(text << "chunkmem: ", gone);
    names_.tell_group(text << " has left its ", ranks_);
    names_.tell_rank(text << ": ", rank);
    text << " waits in its call " << own.begun << ", ";
    describe(text, own.request.asked) << " (the error of that rank says why; ranks have to make the same calls)";
    return {text,
            {.failure = comm_failure::peer_lost,
             .rank = gone,
             .sequence = own.begun,
             .waited = since(own.came, clock::now())}};
  }
  [[nodiscard]] comm_error mismatch(rendezvous_lane lane, std::uint32_t there, std::uint32_t late_one) noexcept
  {
    const seat& own = seat_of(lane, late_one);
    const seat& its = seat_of(lane, there);
    error_text text;
    names_.tell_rank(text << "chunkmem: ranks ask for different things: ", there);
    describe(text << " for ", its.request.asked);
    names_.tell_rank(text << ", ", late_one);
    text << " in its call " << own.begun << " for ";
    describe(text, own.request.asked) << " (ranks have to make the same calls in the same order)";
    return {text, {.failure = comm_failure::mismatch, .sequence = own.begun, .waited = since(its.came, own.came)}};
  }

  std::uint32_t ranks_;
  std::uint64_t deadline_;
  std::uint64_t slow_after_;
  mutable std::mutex mutex_;
  process_owned<std::vector<seat>> seats_;  ///< of agents, then of callers
  std::vector<const std::byte*> sources_;
  first_failure failure_;  ///< told under the lock only: it comes before or after each rendezvous, for all ranks
  rendezvous_waits waits_;
  member_names names_;
};

/// Deadline of a group of threads.
///
///     const thread_group group{4, {.deadline = 5'000'000'000}};
struct thread_group_options {
  std::uint64_t deadline = 60'000'000'000;   ///< longest wait for a rank [ns]; after it the group fails
  std::uint64_t slow_after = 1'000'000'000;  ///< a wait that `waits` counts as slow [ns]
};

/// The shared part of ranks that are threads of one process. Make it once; then each rank makes its `local_threads` of
/// it.
///
/// It may end before its communicators, and they may end before their queued work: the shared part lives as long as it
/// is used.
///
/// Use:
///
///     const collective::thread_group group{4};                        // once for all ranks
///     collective::local_threads ranks{group, rank_id{rank}};          // on the thread of each rank
///
/// @threads   any
class thread_group {
 public:
  /// @throws usage_error     there are no ranks
  /// @throws config_error    a deadline of 0
  /// @throws std::bad_alloc  no room for the shared part
  explicit thread_group(std::uint32_t ranks, const thread_group_options& options = {})
  {
    if (ranks == 0) throw usage_error{"a group of 0 ranks (give one or more)"};
    if (options.deadline == 0)
      throw config_error{"a group of ranks with a deadline of 0 ns (give the longest wait for a rank)"};
    rendezvous_ = std::make_shared<thread_rendezvous>(ranks, options.deadline, options.slow_after);
  }
  thread_group(const thread_group&) = delete;
  thread_group& operator=(const thread_group&) = delete;

  [[nodiscard]] std::uint32_t ranks() const noexcept { return rendezvous_->ranks(); }

  /// How long ranks waited for each other so far. It names a slow rank before the deadline does. Cost: a lock.
  [[nodiscard]] rendezvous_waits waits() const noexcept { return rendezvous_->waits(); }

  /// For the communicators of this group.
  [[nodiscard]] std::shared_ptr<thread_rendezvous> rendezvous() const noexcept { return rendezvous_; }

 private:
  std::shared_ptr<thread_rendezvous> rendezvous_;
};

namespace detail {

/// Throws the first failure that is no comm_error, else the first one: most comm_errors follow from another failure.
inline void throw_cause(const std::vector<std::exception_ptr>& failures)
{
  std::exception_ptr first;
  for (const std::exception_ptr& it : failures) {
    if (!it) continue;
    if (!first) first = it;
    try {
      std::rethrow_exception(it);
    } catch (const comm_error&) {
    } catch (...) {
      throw;
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace detail

/// Calls `work(number)` once for each number below `count`, each on a thread of its own, and returns when all have
/// ended.
///
///     run_threads(4, [&](std::uint32_t rank) { train(rank); });
///
/// @throws the first exception that is no comm_error; else the first one
/// @throws std::system_error   the system gives no more threads; those that ran have ended
inline void run_threads(std::uint32_t count, call_ref<void(std::uint32_t)> work)
{
  std::vector<std::exception_ptr> failures(count);
  std::vector<std::jthread> threads;  // joined also where one cannot start
  threads.reserve(count);
  for (std::uint32_t number = 0; number < count; ++number)
    threads.emplace_back([&work, &failures, number] {
      try {
        work(number);
      } catch (...) {
        failures[number] = std::current_exception();
      }
    });
  threads.clear();
  detail::throw_cause(failures);
}

}  // namespace collective

}  // namespace chunkmem::inline v0
