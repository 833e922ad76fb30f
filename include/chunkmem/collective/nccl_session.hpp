// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/first_failure.hpp>
#include <chunkmem/collective/member_names.hpp>
#include <chunkmem/collective/nccl_api.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/own_process.hpp>

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

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

}  // namespace collective

}  // namespace chunkmem::inline v0
