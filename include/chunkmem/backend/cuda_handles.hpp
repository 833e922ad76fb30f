// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_api.hpp>
#include <chunkmem/backend/cuda_session.hpp>

#include <utility>

namespace chunkmem::inline v0 {
namespace backend {

/// An event of the runtime, destroyed with its owner.
///
///     const cuda_event<Api> point{session};
///     if (!order.record(point.get(), earlier)) return;  // the calling thread has waited for `earlier`
///     if (!order.follow(later, point.get())) (void)order.finish(point.get(), earlier);
///
/// @pre   the device of the backend is current where one is made
/// @throws device_error   (constructor) the runtime gives none
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

/// A stream of the runtime: made here and destroyed with its owner, or the caller's and left alone.
///
///     const cuda_stream<Api> own{session};              // destroyed at the end of the scope
///     const cuda_stream<Api> theirs{session, foreign};  // left alone
///     (void)session.finish(own.get());
///
/// @pre   the device of the backend is current where one is made
/// @throws device_error   (constructor) the runtime gives none
template <cuda_api Api>
class cuda_stream {
 public:
  using handle = typename Api::stream_type;

  explicit cuda_stream(cuda_session<Api>& session) : session_{&session}, is_ours_{true}
  {
    session.count_allocation();
    session.require("cudaStreamCreateWithFlags", [&](const Api& api) { return api.create_stream(handle_); });
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
