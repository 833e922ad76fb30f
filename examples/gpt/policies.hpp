// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/any_layout.hpp>
#include <chunkmem/chunk/append_layout.hpp>
#include <chunkmem/chunk/best_fit_layout.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>
#include <chunkmem/eviction/any_eviction.hpp>
#include <chunkmem/eviction/belady.hpp>
#include <chunkmem/eviction/cost_aware.hpp>
#include <chunkmem/eviction/fifo.hpp>
#include <chunkmem/eviction/list_order.hpp>
#include <chunkmem/eviction/lru.hpp>
#include <chunkmem/placement/any_placement.hpp>
#include <chunkmem/placement/device_margin.hpp>
#include <chunkmem/placement/fixed_split.hpp>
#include <chunkmem/placement/host_first.hpp>
#include <chunkmem/transfer/any_transfer.hpp>
#include <chunkmem/transfer/lookahead.hpp>
#include <chunkmem/transfer/no_prefetch.hpp>
#include <chunkmem/transfer/planned.hpp>

namespace gpt {

// What the command line can choose from, the defaults first: one type of manager for all of it. A policy of your own is
// one include and one name here.
using any_eviction =
    chunkmem::eviction::any_eviction<chunkmem::eviction::belady, chunkmem::eviction::lru, chunkmem::eviction::fifo,
                                     chunkmem::eviction::list_order, chunkmem::eviction::cost_aware>;
using any_layout =
    chunkmem::any_layout<chunkmem::size_class_layout, chunkmem::best_fit_layout, chunkmem::append_layout>;
using any_placement =
    chunkmem::placement::any_placement<chunkmem::placement::host_first, chunkmem::placement::device_margin,
                                       chunkmem::placement::fixed_split>;
using any_transfer = chunkmem::transfer::any_transfer<chunkmem::transfer::lookahead, chunkmem::transfer::no_prefetch,
                                                      chunkmem::transfer::planned>;

}  // namespace gpt
