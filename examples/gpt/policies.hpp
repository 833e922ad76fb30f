// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/transfer/transfers.hpp>

namespace gpt {

// The policies of the command line, the defaults first: one type of manager for all of them. A policy of your own is
// one include and one name here.
using any_eviction =
    chunkmem::eviction::any_eviction<chunkmem::eviction::belady, chunkmem::eviction::lru, chunkmem::eviction::fifo,
                                     chunkmem::eviction::list_order, chunkmem::eviction::cost_aware>;
using any_layout =
    chunkmem::any_layout<chunkmem::size_class_layout, chunkmem::best_fit_layout, chunkmem::append_layout>;
using any_placement =
    chunkmem::placement::any_placement<chunkmem::placement::optimizer_on_host, chunkmem::placement::device_margin,
                                       chunkmem::placement::fixed_split, chunkmem::placement::update_share>;
using any_transfer = chunkmem::transfer::any_transfer<chunkmem::transfer::lookahead, chunkmem::transfer::no_prefetch,
                                                      chunkmem::transfer::planned>;

}  // namespace gpt
