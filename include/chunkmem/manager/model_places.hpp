// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_size_search.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/manager_options.hpp>
#include <chunkmem/manager/state_homes.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// Decides where the tensors of a model lie: how large chunks are, which chunk holds what, and which tier states live
/// in.
///
/// `Core` has the declarations and the options; see engine_core. Not for users: see manager.
template <chunk_layout Layout, placement_policy Placement>
class model_places {
 public:
  model_places(Layout layout, Placement placement) : layout_{std::move(layout)}, homes_{std::move(placement)} {}

  [[nodiscard]] state_homes<Placement>& homes() noexcept { return homes_; }
  [[nodiscard]] const state_homes<Placement>& homes() const noexcept { return homes_; }

  /// Places everything in the order of declaration. Guarantee: strong.
  /// @throws config_error   the layout cannot be searched for the size of chunks, or the placement cannot place this
  ///   model
  template <class Core>
  void seal(Core& core)
  {
    if (core.options().chunk_bytes == least_waste_chunks) search_chunk_bytes(core);
    core.tensors().seal(layout_, core.options().chunk_bytes);
    if (!homes_.is_ready()) reset_homes(core);
  }

  /// The order was asked for and is not known yet.
  [[nodiscard]] bool wants_order(const manager_options& options) const noexcept
  {
    return !ordered_ && options.order == tensor_order::first_use;
  }
  /// Places everything again as a step uses it. @pre sealed, nothing is allocated and no gradient lies in place
  template <class Core>
  void order_by_first_use(Core& core, const access_record& step)
  {
    std::vector<std::uint32_t> first(core.tensors().slots().size(), access_record::never);
    for (std::uint32_t at = step.size(); at-- > 0;)
      if (step.entries()[at].slot != access_record::never) first[step.entries()[at].slot] = at;
    core.tensors().place_by_use(first, layout_, core.options().chunk_bytes);
    ordered_ = true;
    reset_homes(core);
  }

  /// Gives states homes for the device that there is. @return   one changed   @throws config_error
  template <class Core>
  bool assign_homes(const Core& core)
  {
    return homes_.assign(core.capacities()[tier::device]);
  }

 private:
  template <class Core>
  void reset_homes(Core& core)
  {
    homes_.reset(core.tensors(), core.options().chunk_bytes, core.capacities()[tier::device]);
  }

  /// Takes the size of chunks with which the layout wastes the least bytes, no larger than a sixteenth of the device.
  template <class Core>
  void search_chunk_bytes(Core& core)
  {
    if constexpr (searchable_layout<Layout>) {
      chunk_size_search<Layout> search{layout_};
      std::vector<bytes> body;
      core.tensors().for_each_group([&](const std::vector<bytes>& sizes) {
        search.add(sizes);
        if (body.empty()) body = sizes;
      });
      frame_limits limits = frame_limits::of(body);
      const bytes part = align_up(bytes{core.capacities()[tier::device].count() / 16}, tensor_alignment);
      limits.most = std::min(limits.most, std::max(part, limits.least));
      const bytes found = search.find(limits).frame;
      core.set_chunk_bytes(found == bytes{} ? limits.most : found);
    } else {
      throw config_error{
          "this layout cannot be searched for the size of chunks: give chunk_bytes, or take one that "
          "can, such as append_layout or size_class_layout"};
    }
  }

  Layout layout_;
  state_homes<Placement> homes_;
  bool ordered_ = false;
};

}  // namespace chunkmem::inline v0
