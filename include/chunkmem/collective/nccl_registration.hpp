// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/nccl.hpp>
#include <chunkmem/core/bytes.hpp>

#include <cstddef>

namespace chunkmem::inline v0 {

namespace collective {

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
