// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_api.hpp>
#include <chunkmem/core/error.hpp>

#include <cstdint>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {
namespace backend {

/// Makes every call of the runtime for one backend, counts it, and remembers its error.
///
///     cuda_session<Api> session{Api{}};
///     session.require("cudaEventRecord", [&](const Api& api) { return api.record_event(point, stream); });
///
/// An error that is not sticky is fetched from the runtime once, so that no later call returns it. An error that ends
/// CUDA loses the session: its first cause is kept for later calls, and no further call of the runtime is made, not
/// even to free anything, except the pop that restores the thread's own device.
/// A session may also be lost by decision (`lose`), where an error that is not sticky broke the order of work; calls
/// are still made then, since the runtime is alive and its objects can be destroyed. Cost: two compares and an
/// increment for each call. With another home than device 0, each call asks for the thread's device first, which is one
/// call more; where that is another device, a push and a pop make it three more. A `cuda_current_device` around several
/// calls pays once for all of them.
///
/// A call that needs a context makes one on the thread's device if necessary (CUDA C++ Programming Guide,
/// Initialization), which costs some hundred MB. A thread that never chose a device has device 0. So a session whose
/// home is another device pushes the context of its home before a call, and pops it after.
/// @threads   one caller at a time
template <cuda_api Api>
class cuda_session {
 public:
  explicit cuda_session(Api api) : api_{std::move(api)} {}
  cuda_session(const cuda_session&) = delete;
  cuda_session& operator=(const cuda_session&) = delete;

  /// The changes of `enter`, for `leave`.
  struct visit {
    bool is_pushed = false;
    bool was_there = false;
    int before = 0;  ///< the thread's device, where one was pushed
  };

  /// Sets the device of all calls from here on.
  void live_on(int ordinal) noexcept { home_ = ordinal; }
  /// Makes a device current on this thread until `leave`. @return   0, or the number of the failure: nothing was
  /// changed
  [[nodiscard]] int enter(int ordinal, visit& made) noexcept
  {
    made = {.was_there = std::exchange(is_there_, true)};
    int number = attempt("cudaGetDevice", [&](const Api& api) { return api.current_device(made.before); });
    if (number == 0 && made.before != ordinal) {
      number = push(ordinal);
      made.is_pushed = number == 0;
    }
    is_there_ = number == 0 ? ordinal == home_ : made.was_there;
    return number;
  }
  /// The same with the home device, unless that is device 0: for many calls of a thread whose device may be any.
  [[nodiscard]] int enter_home(visit& made) noexcept
  {
    made = {.was_there = is_there_};
    return home_ == 0 || is_there_ ? 0 : enter(home_, made);
  }
  /// Also in a lost session: the thread is not the session's, and other code goes on with its own device.
  void leave(const visit& made) noexcept
  {
    if (made.is_pushed) put_back(made.before);
    is_there_ = made.was_there;
  }

  [[nodiscard]] bool is_lost() const noexcept { return is_lost_; }
  [[nodiscard]] bool may_call() const noexcept { return may_call_; }

  /// @throws device_error   the first cause, if the session is lost
  void require_alive() const
  {
    if (is_lost_) [[unlikely]]
      throw cause_;
  }

  /// Makes one call, `call(api)`, named `function` in errors, and returns its number. In a session without calls, none.
  template <class Call>
  [[nodiscard]] int attempt(std::string_view function, Call&& call) noexcept
  {
    if (!may_call_) [[unlikely]]
      return cause_.fault().number;
    if (home_ != 0 && !is_there_) [[unlikely]]
      return attempt_at_home(function, call);
    ++calls_;
    const int number = std::forward<Call>(call)(std::as_const(api_));
    if (number != 0) [[unlikely]]
      note(function, number);
    return number;
  }

  /// The same, a second time where the first failed: for calls that no caller can try again.
  template <class Call>
  [[nodiscard]] int insist(std::string_view function, const Call& call) noexcept
  {
    const int number = attempt(function, call);
    if (number == 0 || !may_call_) return number;
    ++recoveries_;
    return attempt(function, call);
  }

  /// The same for calls that have to work. @throws device_error   the call failed
  template <class Call>
  void require(std::string_view function, Call&& call)
  {
    if (attempt(function, std::forward<Call>(call)) != 0) [[unlikely]]
      raise();
  }

  /// The last failed call, or the first cause where the session is lost. `raise` throws it.
  [[nodiscard]] const device_error& failure() const noexcept { return is_lost_ ? cause_ : last_; }
  [[noreturn]] void raise() const { throw device_error{failure()}; }

  /// Loses the session, because of the last failed call.
  void lose() noexcept { lose(last_); }
  void lose(const device_error& why) noexcept
  {
    if (!is_lost_) cause_ = why;
    is_lost_ = true;
  }

  /// Drops an error that other code left on this thread, so that it is not taken for one of ours.
  void forget_error()
  {
    ++calls_;
    const int number = api_.last_error();
    if (ends_cuda(fault_of_cuda_error(number))) [[unlikely]] {
      note("cudaGetLastError", number);
      raise();
    }
  }

  /// Waits for a stream. False: the wait failed, and whether the work is over is unknown.
  [[nodiscard]] bool synchronize(typename Api::stream_type stream) noexcept
  {
    count_synchronization();
    return attempt("cudaStreamSynchronize", [=](const Api& api) { return api.synchronize_stream(stream); }) == 0;
  }

  /// Waits for a stream, a second time where the first wait failed; loses the session where that fails too.
  [[nodiscard]] bool finish(typename Api::stream_type stream) noexcept
  {
    if (synchronize(stream)) [[likely]]
      return true;
    if (may_call_) {
      ++recoveries_;
      if (synchronize(stream)) return true;
    }
    lose();
    return false;
  }

  void count_synchronization() noexcept { synchronizations_ += may_call_ ? 1U : 0U; }
  void count_allocation() noexcept { allocations_ += may_call_ ? 1U : 0U; }
  void count_recovery() noexcept { ++recoveries_; }

  [[nodiscard]] std::uint64_t calls() const noexcept { return calls_; }
  [[nodiscard]] std::uint64_t synchronizations() const noexcept { return synchronizations_; }
  [[nodiscard]] std::uint64_t allocations() const noexcept { return allocations_; }
  [[nodiscard]] std::uint64_t recoveries() const noexcept { return recoveries_; }

 private:
  template <class Call>
  [[gnu::noinline]] int attempt_at_home(std::string_view function, const Call& call) noexcept
  {
    visit made;
    int number = enter(home_, made);
    if (number != 0 && may_call_) number = enter(home_, made);  // no caller can try it again
    if (number != 0) return number;
    number = attempt(function, call);
    leave(made);
    return number;
  }

  [[nodiscard]] int push(int ordinal) noexcept
  {
    if (context_of_ != ordinal) {
      const auto open = [&](const Api& api) { return api.open_context(context_, ordinal); };
      if (const int number = attempt("cudaInitDevice", open); number != 0) return number;
      context_of_ = ordinal;
    }
    return attempt("cuCtxPushCurrent", [&](const Api& api) { return api.push_context(context_); });
  }

  /// A pop may return an error of earlier work (CUDA Driver API, Context Management, cuCtxPopCurrent) although it has
  /// popped. A second pop would take the caller's context, so the thread's device is asked first.
  void put_back(int before) noexcept
  {
    if (pop() == 0 || !may_call_) return;
    int now = before;
    ++calls_;
    if (api_.current_device(now) != 0 || now == before) return;
    ++recoveries_;
    (void)pop();
  }
  [[nodiscard]] int pop() noexcept
  {
    ++calls_;
    const int number = api_.pop_context(context_);
    if (number != 0 && may_call_) [[unlikely]]
      note("cuCtxPopCurrent", number);
    return number;
  }

  [[gnu::noinline, gnu::cold]] void note(std::string_view function, int number) noexcept
  {
    last_ = describe(function, number);
    if (!ends_cuda(fault_of_cuda_error(number))) {
      ++calls_;
      const int later = api_.last_error();  // forgets it; work that ran meanwhile may have ended everything
      if (!ends_cuda(fault_of_cuda_error(later))) return;
      last_ = describe("cudaGetLastError", later);
    }
    lose();
    may_call_ = false;
  }

  [[nodiscard]] device_error describe(std::string_view function, int number) const noexcept
  {
    const cuda_fault fault = fault_of_cuda_error(number);
    const char* const name = api_.name_of(number);
    return {error_text{} << "chunkmem: " << function << " failed: " << (name != nullptr ? name : "unknown error")
                         << " (number " << static_cast<std::uint32_t>(number) << "), call " << calls_ << " ("
                         << remedy_of(fault) << ")",
            device_fault{.number = number, .is_sticky = ends_cuda(fault), .call = calls_}};
  }

  Api api_;
  std::uint64_t calls_ = 0;
  std::uint64_t synchronizations_ = 0;
  std::uint64_t allocations_ = 0;
  std::uint64_t recoveries_ = 0;
  bool is_lost_ = false;
  bool may_call_ = true;
  bool is_there_ = false;  ///< the home is current on the calling thread
  int home_ = 0;
  int context_of_ = -1;
  typename Api::context_type context_{};
  device_error last_{error_text{}};
  device_error cause_{error_text{}};
};

/// Makes a device current on the calling thread for a scope, and restores the thread's device.
///
///     const cuda_current_device<Api> current{session, 1};  // device 1 until the end of the scope
///
/// The runtime makes streams, events and memory on the thread's device, and launches kernels only there (CUDA C++
/// Programming Guide, Stream and Event Behavior). The device's context is pushed and popped: cudaSetDevice would make a
/// context on the device that it restores (CUDA Runtime API, Device Management). Cost: one call where the device is
/// already current, else three.
/// @throws device_error   (constructor) the runtime refuses; nothing was switched
template <cuda_api Api>
class cuda_current_device {
 public:
  cuda_current_device(cuda_session<Api>& session, int ordinal) : session_{&session}
  {
    if (session.enter(ordinal, made_) != 0) session.raise();
  }
  cuda_current_device(const cuda_current_device&) = delete;
  cuda_current_device& operator=(const cuda_current_device&) = delete;
  ~cuda_current_device() { session_->leave(made_); }

 private:
  cuda_session<Api>* session_;
  typename cuda_session<Api>::visit made_;
};

/// An event of the runtime, destroyed with its owner.
///
///     const cuda_event<Api> point{session};
///     if (!order.record(point.get(), earlier)) return;  // the calling thread has waited for `earlier`
///     if (!order.follow(later, point.get())) (void)order.finish(point.get(), earlier);
///
/// @pre   the device of the backend is current in the constructor
/// @throws device_error   (constructor) the runtime gives no event
template <cuda_api Api>
class cuda_event {
 public:
  using handle = typename Api::event_type;

  explicit cuda_event(cuda_session<Api>& session) : session_{&session}
  {
    session.count_allocation();
    session.require("cudaEventCreateWithFlags", [&](const Api& api) { return api.create_event(handle_); });
  }
  cuda_event(cuda_event&& other) noexcept : session_{other.session_}, handle_{std::exchange(other.handle_, handle{})} {}
  cuda_event& operator=(cuda_event&&) = delete;
  ~cuda_event()
  {
    if (handle_ != handle{})
      (void)session_->attempt("cudaEventDestroy", [&](const Api& api) { return api.destroy_event(handle_); });
  }

  [[nodiscard]] handle get() const noexcept { return handle_; }

 private:
  cuda_session<Api>* session_;
  handle handle_{};
};

/// A stream of the runtime: its own, destroyed with this object, or the caller's, left alone.
///
///     const cuda_stream<Api> own{session};              // destroyed at the end of the scope
///     const cuda_stream<Api> theirs{session, foreign};  // left alone
///     (void)session.finish(own.get());
///
/// @pre   the device of the backend is current in the constructor
/// @throws device_error   (constructor) the runtime gives no stream
template <cuda_api Api>
class cuda_stream {
 public:
  using handle = typename Api::stream_type;

  /// @param priority   0 is the default; lower numbers go first
  explicit cuda_stream(cuda_session<Api>& session, int priority = 0) : session_{&session}, is_ours_{true}
  {
    session.count_allocation();
    session.require("cudaStreamCreateWithPriority",
                    [&](const Api& api) { return api.create_stream(handle_, priority); });
  }
  cuda_stream(cuda_session<Api>& session, handle foreign) noexcept
      : session_{&session}, handle_{foreign}, is_ours_{false}
  {
  }
  cuda_stream(const cuda_stream&) = delete;
  cuda_stream& operator=(const cuda_stream&) = delete;
  ~cuda_stream()
  {
    if (is_ours_)
      (void)session_->attempt("cudaStreamDestroy", [&](const Api& api) { return api.destroy_stream(handle_); });
  }

  [[nodiscard]] handle get() const noexcept { return handle_; }

 private:
  cuda_session<Api>* session_;
  handle handle_{};
  bool is_ours_;
};

}  // namespace backend
}  // namespace chunkmem::inline v0
