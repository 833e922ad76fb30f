// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_size_search.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/manager/chunk_waste.hpp>
#include <chunkmem/manager/manager_options.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/manager/state_tiers.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace chunkmem::inline v0 {

/// Decides where the tensors of a model lie: how large chunks are, which chunk holds what, and which tier states live
/// in.
///
///     model_places<append_layout, placement::host_first> places{{}, {}};
///     const bytes frame = places.seal(tensors, 1_MiB, 64_MiB);
///
/// `seal` places everything in the order of declaration; `order_by_first_use` places it again as a rehearsed step uses
/// it; `assign_tiers` asks the placement policy once leases were measured.
template <chunk_layout Layout, placement_policy Placement>
class model_places {
 public:
  model_places(Layout layout, Placement placement) : layout_{std::move(layout)}, tiers_{std::move(placement)} {}

  [[nodiscard]] state_tiers<Placement>& tiers() noexcept { return tiers_; }
  [[nodiscard]] const state_tiers<Placement>& tiers() const noexcept { return tiers_; }

  /// Places everything in the order of declaration. Where the placement refuses the model, the next call asks it again.
  /// @param frame   size of chunks, or least_waste_chunks: then it is searched [bytes]
  /// @param device   capacity [bytes]   @return   the size of chunks [bytes]
  /// @throws config_error   the layout cannot be searched for the size of chunks, or the placement cannot place this
  ///   model
  bytes seal(registry& tensors, bytes frame, bytes device)
  {
    if (frame == least_waste_chunks) frame = search_chunk_bytes(tensors, device);
    tensors.seal(layout_, frame);
    if (!tiers_.is_ready()) tiers_.reset(tensors, frame, device);
    return frame;
  }

  /// At the size of chunks with which the layout wastes the least bytes, no larger than a sixteenth of the device; in
  /// the order of declaration. Cost: that of chunk_size_search.
  [[nodiscard]] chunk_waste::at_size least_waste(const registry& tensors, bytes device) const
    requires searchable_layout<Layout>
  {
    chunk_size_search<Layout> search{layout_};
    sequence<bytes> body;
    tensors.for_each_group([&](const sequence<bytes>& sizes) {
      search.add(sizes);
      if (body.empty()) body = sizes;
    });
    frame_limits limits = frame_limits::of(body);
    const bytes part = align_up(bytes{device.count() / 16}, tensor_alignment);
    limits.most = std::min(limits.most, std::max(part, limits.least));
    const auto found = search.find(limits);
    return {found.frame == bytes{} ? limits.most : found.frame, found.frame * found.frames, found.payload};
  }

  /// The order was asked for and is not known yet.
  [[nodiscard]] bool wants_order(const manager_options& options) const noexcept
  {
    return !ordered_ && options.order == tensor_order::first_use;
  }
  /// Places everything again as a step uses it. @pre sealed, nothing is allocated and no gradient lies in place
  void order_by_first_use(registry& tensors, const access_record& step, bytes frame, bytes device)
  {
    sequence<std::uint32_t> first(tensors.slots().size(), access_record::never);
    for (std::uint32_t index = step.size(); index-- > 0;)
      if (step.entries()[index].slot != access_record::never) first[step.entries()[index].slot] = index;
    tensors.place_by_use(first, layout_, frame);
    ordered_ = true;
    tiers_.reset(tensors, frame, device);
  }

 private:
  [[nodiscard]] bytes search_chunk_bytes(const registry& tensors, bytes device) const
  {
    if constexpr (searchable_layout<Layout>) {
      return least_waste(tensors, device).chunk_bytes;
    } else {
      throw config_error{
          "this layout cannot be searched for the size of chunks: give chunk_bytes, or take one that "
          "can, such as append_layout or size_class_layout"};
    }
  }

  Layout layout_;
  state_tiers<Placement> tiers_;
  bool ordered_ = false;
};

}  // namespace chunkmem::inline v0
