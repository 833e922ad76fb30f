// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>
#include <chunkmem/optimizer/update_site.hpp>
#include <chunkmem/sharding/share_runs.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace chunkmem::inline v0 {

namespace sharding {

/// The site of a sharded model's steps: as `Site`, but an update of a share is one update for each of its runs, since a
/// run belongs to a tensor of the model. The runs of tensors without a gradient are unchanged. In a share that lends
/// its bytes to its gradient they are made again from their masters, with the same bits.
///
///     share_site site{caller_site<Manager, Executor>{m.backend(), workers}, runs};
template <optimizer::detail::update_site Site>
class share_site : public Site {
 public:
  /// @param runs   of the shares; outlive this object
  share_site(Site site, share_runs& runs) : Site{std::move(site)}, runs_{runs} {}

  [[nodiscard]] bool overwrites(tensor_handle share) const { return runs_.is_overwritten(share); }
  template <class Kernel, class Place>
  void update(Kernel& kernel, const optimizer::parameter_bytes& share, const optimizer::detail::update_request& request,
              Place place)
  {
    if constexpr (Site::has_bytes)
      runs_.for_each(
          share, [&](const optimizer::parameter_bytes& run) { Site::update(kernel, run, request, place); },
          [&](const optimizer::parameter_bytes& run) { Site::remake(run, place); });
    else
      Site::update(kernel, share, request, place);
  }
  [[nodiscard]] bool is_half_done(tensor_handle share) const noexcept { return runs_.is_half_done(share); }
  [[nodiscard]] std::size_t tensors(std::size_t) const noexcept { return runs_.tensors(); }
  template <class Driver, class Visit>
  void for_each_missing(Driver&, Visit visit) const
  {
    for (const std::uint32_t tensor : runs_.missing()) visit(tensor);
  }

 private:
  share_runs& runs_;
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
