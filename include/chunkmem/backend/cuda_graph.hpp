// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_api.hpp>
#include <chunkmem/backend/cuda_session.hpp>

#include <memory>
#include <utility>

namespace chunkmem::inline v0 {
namespace backend {

/// Work that `cuda_device` wrote down, ready to be done any number of times: `device.launch(graph)`.
///
/// May be destroyed while it runs: the runtime keeps it until then. May outlive its device, but is good for nothing
/// then. Empty when made without a device, and after a move. Cost: one allocation of the runtime; none to move.
///
/// @threads   those of its device: one caller at a time for both
template <cuda_api Api>
class cuda_graph {
 public:
  using executable_type = typename Api::executable_type;

  cuda_graph() = default;
  cuda_graph(std::shared_ptr<cuda_session<Api>> session, executable_type executable) noexcept
      : session_{std::move(session)}, executable_{executable}
  {
  }
  cuda_graph(cuda_graph&& other) noexcept
      : session_{std::move(other.session_)}, executable_{std::exchange(other.executable_, executable_type{})}
  {
  }
  cuda_graph& operator=(cuda_graph&& other) noexcept
  {
    cuda_graph old{std::move(*this)};
    session_ = std::move(other.session_);
    executable_ = std::exchange(other.executable_, executable_type{});
    return *this;
  }
  ~cuda_graph()
  {
    if (session_ == nullptr || executable_ == executable_type{}) return;
    (void)session_->attempt("cudaGraphExecDestroy",
                            [&](const Api& api) { return api.destroy_executable(executable_); });
  }

  [[nodiscard]] bool belongs_to(const cuda_session<Api>& session) const noexcept { return session_.get() == &session; }
  [[nodiscard]] executable_type executable() const noexcept { return executable_; }

 private:
  std::shared_ptr<cuda_session<Api>> session_;
  executable_type executable_{};
};

}  // namespace backend
}  // namespace chunkmem::inline v0
