// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "activations.hpp"
#include "options.hpp"
#include "sample_ratios.hpp"
#include "schedule.hpp"
#include "windows.hpp"

#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cstdint>
#include <vector>

namespace gpt {

/// How a model is trained.
struct trainer_settings {
  cosine_schedule schedule;
  std::uint64_t seed = 1;
  chunkmem::dtype precision = chunkmem::dtype::float32;
  float clip = 0.0f;  ///< largest norm of all gradients of a step; 0: any
  chunkmem::optimizer::adam_options adam{.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f};
  chunkmem::optimizer::loss_scale_options scale{};  ///< of fp16: small gradients would round to zero
  std::size_t rank = 0;                             ///< of this trainer; each rank has its own rows of a step
  std::size_t ranks = 1;
  std::size_t owners = 1;  ///< ranks that divide the states of a model
  activation_mode activations = activation_mode::swap;
  chunkmem::activation::activation_plan plan{};  ///< of activations; without steps: the trainer's default order
  window_choice windows = window_choice::random;
  bool runs_qkv_again = false;                ///< in the backward pass, in place of being kept
  double sample_ratio = 0;                    ///< kept part of the rows of the projections' inputs; 0: exact gradients
  std::vector<input_ratio> sample_ratios{};   ///< of inputs that have ratios of their own
  bool measures_noise = false;                ///< of those gradients
  update_choice update = update_choice::cpu;  ///< where there is a choice: cpu or gpu
  update_time when = update_time::at_once;    ///< of the trainer on the CPU
};

}  // namespace gpt
