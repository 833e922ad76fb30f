// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "foresight.hpp"
#include "step_meter.hpp"

#include <chunkmem/core/bytes.hpp>

#include <cstdint>

namespace gpt {

struct stage_setup;

/// The first steps of one stage, see first_steps: the same trainer, manager, policies and capacities, without bytes and
/// without other stages. The copies and the peak are those of the real steps, since no decision of a manager depends on
/// time. Seconds are not simulated.
[[nodiscard]] foreseen_steps foresee_stage(const stage_setup& setup, std::uint32_t stage, std::uint32_t replica,
                                           chunkmem::bytes device, chunkmem::bytes host);

}  // namespace gpt
