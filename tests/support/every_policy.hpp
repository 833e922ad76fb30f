// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <support/own_policies.hpp>

#include <string_view>

/// Every policy of a kind, chosen when the program runs, so that a matrix of tests needs one type of manager.
namespace support {

using every_eviction =
    chunkmem::eviction::any_eviction<chunkmem::eviction::lru, chunkmem::eviction::belady, chunkmem::eviction::fifo,
                                     chunkmem::eviction::list_order, chunkmem::eviction::cost_aware>;
using every_layout =
    chunkmem::any_layout<chunkmem::append_layout, chunkmem::best_fit_layout, chunkmem::size_class_layout>;
using every_placement =
    chunkmem::placement::any_placement<chunkmem::placement::optimizer_on_host, chunkmem::placement::device_margin,
                                       chunkmem::placement::fixed_split, chunkmem::placement::update_share, device_only,
                                       small_on_device>;
/// A manager with this type always makes plans, also for `no_prefetch`. Demand paging without a plan needs
/// `transfer::no_prefetch` itself as the policy.
using every_transfer = chunkmem::transfer::any_transfer<chunkmem::transfer::no_prefetch, chunkmem::transfer::lookahead,
                                                        chunkmem::transfer::planned>;

/// The names of policies; by default those of a manager without named policies.
struct policy_names {
  std::string_view eviction = "belady";
  std::string_view layout = "size_class_layout";
  std::string_view placement = "optimizer_on_host";
  std::string_view transfer = "lookahead";
};

}  // namespace support
