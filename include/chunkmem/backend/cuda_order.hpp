// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_api.hpp>
#include <chunkmem/backend/cuda_session.hpp>

#include <string_view>

namespace chunkmem::inline v0 {
namespace backend {

/// Events of the runtime that order work even where a call of theirs fails.
///
///     cuda_order<Api> order{session};
///     if (order.record(point, earlier) && !order.follow(later, point)) (void)order.finish(point, earlier);
///
/// Where an event cannot be recorded, the calling thread waits for the stream instead; where a stream cannot be made to
/// wait, the caller is told and waits itself; where waiting for an event fails, it waits for the stream. Each is
/// counted as a recovery. Only where that fails too is the session lost: then nobody knows what is over. While a graph
/// is captured there is nothing to wait for, so the call is made a second time; a second failure is a plain error.
/// Cost: that of the call.
/// @threads   one caller at a time
template <cuda_api Api>
class cuda_order {
 public:
  using stream_type = typename Api::stream_type;
  using event_type = typename Api::event_type;

  explicit cuda_order(cuda_session<Api>& session) noexcept : session_{&session} {}

  [[nodiscard]] bool is_capturing() const noexcept { return is_capturing_; }
  void capturing(bool is) noexcept { is_capturing_ = is; }

  /// Records an event. False: the calling thread has waited for the stream instead.
  /// @throws device_error   no order was made
  [[nodiscard]] bool record(event_type point, stream_type on_stream)
  {
    const auto call = [=](const Api& api) { return api.record_event(point, on_stream); };
    if (make("cudaEventRecord", call) == 0) [[likely]]
      return true;
    begin_recovery();
    wait_for(on_stream);
    return false;
  }

  /// Later work of a stream follows an event. False: the calling thread has to wait for the event instead.
  /// @throws device_error   no order was made
  [[nodiscard]] bool follow(stream_type later, event_type point)
  {
    const auto call = [=](const Api& api) { return api.wait_event(later, point); };
    if (make("cudaStreamWaitEvent", call) == 0) [[likely]]
      return true;
    begin_recovery();
    return false;
  }

  /// The calling thread waits for an event. False: it has waited for all of the event's stream instead.
  /// @throws device_error   the session is lost
  [[nodiscard]] bool finish(event_type point, stream_type source)
  {
    session_->count_synchronization();
    const auto call = [=](const Api& api) { return api.synchronize_event(point); };
    if (session_->attempt("cudaEventSynchronize", call) == 0) [[likely]]
      return true;
    begin_recovery();
    wait_for(source);
    return false;
  }

 private:
  template <class Call>
  [[nodiscard]] int make(std::string_view function, const Call& call) noexcept
  {
    return is_capturing_ ? session_->insist(function, call) : session_->attempt(function, call);
  }

  void begin_recovery()
  {
    if (is_capturing_ || !session_->may_call()) session_->raise();
    session_->count_recovery();
  }

  void wait_for(stream_type all)
  {
    if (session_->synchronize(all)) return;
    session_->lose();
    session_->raise();
  }

  cuda_session<Api>* session_;
  bool is_capturing_ = false;
};

}  // namespace backend
}  // namespace chunkmem::inline v0
