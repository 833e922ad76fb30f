// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_api.hpp>
#include <chunkmem/backend/cuda_order.hpp>
#include <chunkmem/backend/cuda_session.hpp>
#include <chunkmem/core/error.hpp>

#include <string_view>
#include <thread>

namespace chunkmem::inline v0 {
namespace backend {

/// The writing down of work: begins on one stream, forks to others, and joins them again at its end.
///
///     cuda_capture<Api> capture{session, order};
///     capture.begin(origin);                                 // from here on `origin` writes down
///     bool is_whole = capture.connect(origin, edge, other);  // and `other`, from here on
///     is_whole = capture.connect(other, edge, origin) && capture.end(graph) && is_whole;
///     if (!is_whole) capture.leave();
///
/// A capture always ends: where its work is lost, the streams leave it all the same, and work as before. Calls that
/// fail in passing are made a second time, since nobody outside could make them again. Cost: two calls to begin and to
/// end, three for each other stream.
/// @threads   one caller at a time; a capture ends on the thread where it began
template <cuda_api Api>
class cuda_capture {
 public:
  using stream_type = typename Api::stream_type;
  using event_type = typename Api::event_type;
  using graph_type = typename Api::graph_type;

  cuda_capture(cuda_session<Api>& session, cuda_order<Api>& order) noexcept : session_{&session}, order_{&order} {}

  [[nodiscard]] bool is_on() const noexcept { return order_->is_capturing(); }

  /// @throws usage_error   a capture is on; nothing was changed and it goes on
  void require_none(std::string_view what) const
  {
    if (!is_on()) [[likely]]
      return;
    throw usage_error{error_text{} << "chunkmem: this cannot be captured: " << what
                                   << " (do it before begin_capture or after end_capture)"};
  }

  /// @throws usage_error   no capture is on that began on this thread
  void require_own() const
  {
    if (!is_on() || owner_ != std::this_thread::get_id())
      throw usage_error{"no capture ends here: call begin_capture() before, on the same thread"};
  }

  /// @throws device_error   none has begun
  void begin(stream_type origin)
  {
    session_->require("cudaStreamBeginCapture", [&](const Api& api) { return api.begin_capture(origin); });
    origin_ = origin;
    owner_ = std::this_thread::get_id();
    order_->capturing(true);
  }

  /// One more stream writes down, from here on. Or, at the end: no more. False: it failed.
  [[nodiscard]] bool connect(stream_type from, event_type edge, stream_type to) noexcept
  {
    const auto mark = [&](const Api& api) { return api.record_event(edge, from); };
    const auto follow = [&](const Api& api) { return api.wait_event(to, edge); };
    return session_->insist("cudaEventRecord", mark) == 0 && session_->insist("cudaStreamWaitEvent", follow) == 0;
  }

  /// Ends it. False: what was written down is lost, and the streams may still be in it; then `leave`.
  [[nodiscard]] bool end(graph_type& graph) noexcept
  {
    const auto call = [&](const Api& api) { return api.end_capture(origin_, graph); };
    int number = session_->attempt("cudaStreamEndCapture", call);
    if (!has_ended(number)) number = session_->attempt("cudaStreamEndCapture", call);
    order_->capturing(!has_ended(number));
    return number == 0;
  }

  /// Ends it where nobody wants its work. Loses the session where that does not work.
  void leave() noexcept
  {
    if (!is_on()) return;
    graph_type graph{};
    (void)end(graph);
    if (is_on()) session_->lose();
    order_->capturing(false);
    if (graph != graph_type{})
      (void)session_->attempt("cudaGraphDestroy", [&](const Api& api) { return api.destroy_graph(graph); });
  }

 private:
  /// Whether the streams are out of it after this answer: ended, ended as invalid, ended as not joined.
  [[nodiscard]] static bool has_ended(int number) noexcept { return number == 0 || number == 901 || number == 904; }

  cuda_session<Api>* session_;
  cuda_order<Api>* order_;
  stream_type origin_{};
  std::thread::id owner_;
};

}  // namespace backend
}  // namespace chunkmem::inline v0
