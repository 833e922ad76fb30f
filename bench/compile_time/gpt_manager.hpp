// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "adamw.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/transfer/transfers.hpp>

// The manager of examples/plain_loops, compiled elsewhere: manager/compiled_manager.hpp does the same for the default
// one.
namespace chunkmem::inline v0 {

using gpt_eviction = eviction::any_eviction<eviction::belady, eviction::lru, eviction::cost_aware>;
using gpt_layout = any_layout<best_fit_layout, append_layout>;
using gpt_transfer = transfer::any_transfer<transfer::lookahead, transfer::no_prefetch, transfer::planned>;
using gpt_engine =
    manager<backend::host_arena, gpt_eviction, gpt_layout, gpt_transfer, placement::device_margin>::engine_type;

using gpt_builder = model_builder<gpt_engine, gpt_layout, placement::device_margin, gradient::separate>;

extern template class chunk_cache<gpt_eviction>;
extern template class chunk_cache<eviction::by_retention>;
extern template class replay<gpt_eviction>;
extern template class replay<eviction::by_retention>;
extern template class iteration_planner<gpt_eviction, gpt_transfer>;
extern template class copy_engine<backend::host_arena, copy_mover, trace::null_sink, checks::none>;
extern template class schedule<gpt_eviction, gpt_transfer, gpt_engine::copies_type>;
extern template class engine<backend::host_arena, training_rules, gpt_eviction, gpt_transfer, copy_mover,
                             trace::null_sink, checks::none>;
extern template class model_builder<gpt_engine, gpt_layout, placement::device_margin, gradient::separate>;
extern template class gradient_store<gpt_engine, gpt_builder>;
extern template class update_session<gpt_engine, gpt_builder>;
extern template class content_session<gpt_engine, gpt_builder>;
extern template class basic_manager<backend::host_arena, training_rules, gpt_layout, gpt_eviction,
                                    placement::device_margin, gradient::separate, gpt_transfer, copy_mover,
                                    trace::null_sink, checks::none>;

namespace optimizer {
extern template step_outcome step(
    manager<backend::host_arena, gpt_eviction, gpt_layout, gpt_transfer, placement::device_margin>&,
    plain_loops::adamw&, const step_options&, const serial&, checks::none::part::place_type);
}

}  // namespace chunkmem::inline v0
