// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "user_mistakes.hpp"

#include <chunkmem/activation/checkpointed.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checks/full_checks.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace activation_mistakes {

namespace cm = chunkmem;
namespace act = cm::activation;
using namespace cm::literals;
using namespace user_mistakes;
using cm::access;
using arena = cm::backend::host_arena;
using manager = cm::manager<arena, cm::checks::full>;
using network_type = act::checkpointed<manager, act::keep_all>;
using run_type = network_type::block_type::run_type;

inline constexpr std::uint32_t blocks = 4;
inline constexpr std::uint64_t width = 64;
inline constexpr act::activation_budget budget{
    .device = 8_KiB, .to_host_bytes_per_second = 1e9, .to_device_bytes_per_second = 1e9};

/// Four blocks y = w x, which save h = x. The loss is the sum of the last output.
struct chain {
  arena memory{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
  manager m{memory, {.chunk_bytes = 256_B}};
  cm::optimizer::sgd sgd{{.momentum = 0}, {.masters = false}};
  network_type network{m, {.budget = budget, .name = "net"}};
  cm::tensor<float> batch, slope;
  std::array<cm::tensor<float>, blocks> w, h, y;
  std::array<network_type::block_type*, blocks> block{};
  std::uint64_t now = 0;

  chain()
  {
    m.use(sgd);
    batch = m.add<float>({width}, cm::role::buffer);
    slope = m.add<float>({width}, cm::role::activation);
    m.name(batch, "batch");
    for (std::uint32_t index = 0; index < blocks; ++index) {
      w[index] = m.add<float>({width}, cm::role::parameter);
      m.name(w[index], "w" + std::to_string(index));
      block[index] = &network.add("block " + std::to_string(index));
      h[index] = block[index]->saves<float>({width});
      y[index] = block[index]->outputs<float>({width});
      block[index]->forward_seconds = block[index]->backward_seconds = 1e-3;
      block[index]->forward = [this, index](run_type& run) { forward(index, run); };
      block[index]->backward = [this, index](run_type& run) { backward(index, run); };
    }
  }
  void fill()
  {
    for (const auto& each : w) write(each, 1.0F);
    write(batch, 0.5F);
  }
  void run_again() { network.use(act::recompute_all{}.plan(network.chain(), budget)); }
  void write(cm::tensor<float> to, float value)
  {
    for (float& it : m.acquire(to, access::write).span()) it = value;
  }
  void forward(std::uint32_t index, run_type& run)
  {
    const auto x = run.input(index == 0 ? batch : y[index - 1]);
    const auto weight = m.acquire(w[index], access::read);
    const auto saved = run.save(h[index]);
    const auto out = run.save(y[index]);
    for (std::size_t at = 0; at < out.span().size(); ++at) {
      saved.span()[at] = x.span()[at];
      out.span()[at] = weight.span()[at] * x.span()[at];
    }
  }
  void backward(std::uint32_t index, run_type& run)
  {
    if (index + 1 == blocks) write(slope, 1.0F);
    const auto saved = run.restore(h[index]);
    auto weight = m.acquire(w[index], access::read);
    const auto d = m.acquire(slope, access::read_write);
    std::array<float, width> of_weight{};
    for (std::size_t at = 0; at < d.span().size(); ++at) {
      of_weight[at] = d.span()[at] * saved.span()[at];
      d.span()[at] *= weight.span()[at];
    }
    auto g = m.gradient(std::move(weight));
    for (std::size_t at = 0; at < g.span().size(); ++at)
      g.span()[at] = (g.beta() == 0 ? 0 : g.span()[at]) + of_weight[at];
    m.gradient_done(std::move(g));
  }
  void step()
  {
    auto iteration = network.iteration();
    network.run(iteration, {.step = now++});
    m.drop(slope);
    cm::optimizer::step(m, sgd, {.learning_rate = 1.0F / 64});
  }
  /// Two steps. @param again   blocks run forward twice
  void train(bool again)
  {
    fill();
    if (again) run_again();
    for (int it = 0; it < 2; ++it) step();
    m.verify();
  }
};

// --- Activations ---

inline std::string a_tensor_of_another_block()
{
  chain it;
  it.block[1]->forward = [&](run_type& run) {
    it.forward(1, run);
    (void)run.save(it.h[0]);
  };
  return answer_of([&] { it.train(false); });
}

inline std::string an_input_that_no_plan_keeps()
{
  chain it;
  it.block[2]->backward = [&](run_type& run) {
    (void)run.input(it.y[1]);
    it.backward(2, run);
  };
  return answer_of([&] { it.train(false); });
}

inline std::string a_tensor_that_is_never_saved()
{
  chain it;
  const auto forgotten = it.block[1]->saves<float>({width});
  it.block[1]->backward = [&](run_type& run) {
    (void)run.restore(forgotten);
    it.backward(1, run);
  };
  return answer_of([&] { it.train(false); });
}

/// A saved tensor has its bytes until the backward run has ended, whichever caller reads it.
inline std::string a_saved_tensor_by_acquire()
{
  chain it;
  it.block[1]->backward = [&](run_type& run) {
    (void)it.m.acquire(it.h[3], access::read);  // and not its own: which one is there depends on the plan
    it.backward(1, run);
  };
  return answer_of([&] { it.train(true); });
}

inline std::string an_output_two_blocks_before()
{
  chain it;
  it.block[3]->forward = [&](run_type& run) {
    (void)run.input(it.y[1]);
    it.forward(3, run);
  };
  return answer_of([&] { it.train(false); });
}

/// As for an auxiliary loss of a block.
inline std::string a_gradient_of_a_forward_run()
{
  chain it;
  it.block[1]->forward = [&](run_type& run) {
    it.forward(1, run);
    auto g = it.m.gradient(it.w[1]);
    for (float& each : g.span()) each = (g.beta() == 0 ? 0 : each) + 0.25F;
  };
  return answer_of([&] { it.train(true); });
}

inline std::string the_output_after_the_run()
{
  chain it;
  it.fill();
  return answer_of([&] {
    auto iteration = it.network.iteration();
    it.network.run(iteration, {.step = 0});
    (void)it.m.acquire(it.y[blocks - 1], access::read);
  });
}

inline std::string an_iteration_of_another_manager()
{
  chain it;
  chain other;
  it.fill();
  other.fill();
  return answer_of([&] {
    auto iteration = other.network.iteration();
    it.network.run(iteration, {.step = 0});
    it.m.drop(it.slope);
    cm::optimizer::step(it.m, it.sgd, {.learning_rate = 1.0F / 64});
  });
}

inline std::string a_pin_kept_until_backward()
{
  chain it;
  std::optional<manager::pin_type<float>> kept;
  it.block[1]->forward = [&](run_type& run) {
    it.forward(1, run);
    kept.emplace(it.m.acquire(it.h[1], access::read_write));
  };
  it.block[1]->backward = [&](run_type& run) {
    it.backward(1, run);
    kept.reset();
  };
  return answer_of([&] { it.train(true); });
}

inline std::string leases_beyond_working()
{
  chain it;
  it.block[1]->forward = [&](run_type& run) {
    const auto scratch = it.m.lease(cm::tier::device, 1_KiB);
    it.forward(1, run);
  };
  return answer_of([&] { it.train(false); });
}

inline std::string a_plan_given_in_a_callback()
{
  chain it;
  it.block[1]->backward = [&](run_type& run) {
    it.backward(1, run);
    it.run_again();
  };
  return answer_of([&] { it.train(false); });
}

inline std::string a_block_changed_after_its_plan()
{
  chain it;
  it.run_again();
  it.block[2]->reads_input = true;
  it.block[2]->backward = [&](run_type& run) {
    (void)run.input(it.y[1]);
    it.backward(2, run);
  };
  it.fill();
  return answer_of([&] { it.step(); });
}

inline std::string a_tensor_declared_after_the_plan()
{
  chain it;
  it.run_again();
  (void)it.block[2]->saves<float>({width});
  it.fill();
  return answer_of([&] { it.step(); });
}

inline std::string a_block_without_backward()
{
  chain it;
  it.block[2]->backward = nullptr;
  return answer_of([&] { it.train(false); });
}

// --- Plans ---

inline std::string a_rehearsal_without_backward()
{
  chain it;
  return answer_of([&] {
    (void)it.m.rehearse([&] {
      auto iteration = it.m.iteration("train");
      for (const auto& each : it.w) (void)it.m.acquire(each, access::read);
    });
    it.train(false);
  });
}

inline std::string a_rehearsal_of_a_smaller_batch()
{
  chain it;
  const auto step = [&](cm::bytes activations) {
    auto iteration = it.m.iteration("train");
    const auto lease = it.m.lease(cm::tier::device, activations);
    for (const auto& each : it.w) {
      auto g = it.m.gradient(each);
      for (float& value : g.span()) value = g.beta() + 1.0F;
      it.m.gradient_done(std::move(g));
    }
    cm::optimizer::step(it.m, it.sgd, {.learning_rate = 1.0F / 64});
  };
  return answer_of([&] {
    (void)it.m.rehearse([&] { step(512_B); });
    it.fill();
    step(512_B);
    step(4_KiB);
    step(4_KiB);
  });
}

inline std::string a_rehearsal_after_the_first_access()
{
  chain it;
  it.fill();
  return answer_of([&] {
    (void)it.m.rehearse([&] { it.step(); });
    for (const float each : it.m.acquire(it.w[0], access::read).span()) cm::expects(each == 1.0F, "other bits");
  });
}

inline std::string an_iteration_that_nobody_keeps()
{
  chain it;
  it.fill();
  return answer_of([&] {
    (void)it.m.iteration("train", 2);
    (void)it.m.acquire(it.w[0], access::read);
    (void)it.m.iteration("train", 2);
  });
}

inline std::string an_evaluation_under_the_name_of_training()
{
  chain it;
  return answer_of([&] {
    it.train(false);
    {
      auto iteration = it.m.iteration("train");
      for (const auto& each : it.w) (void)it.m.acquire(each, access::read);
    }
    it.step();
    it.m.verify();
  });
}

inline std::string a_stored_plan_of_another_model()
{
  chain it;
  it.train(false);
  const auto plan = it.m.plan("train");
  arena memory{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
  manager other{memory, {.chunk_bytes = 256_B}};
  const auto weight = other.add<float>({width}, cm::role::parameter);
  return answer_of([&] {
    (void)other.acquire(weight, access::write);
    other.use_plan(plan, "train");
    for (int step = 0; step < 2; ++step) {
      auto iteration = other.iteration("train");
      for (float& each : other.acquire(weight, access::write).span()) each = 1.0F;
    }
  });
}

inline std::string two_iterations_at_once()
{
  chain it;
  it.fill();
  return answer_of([&] {
    auto outer = it.m.iteration("train");
    auto inner = it.m.iteration("evaluation");
  });
}

inline std::string an_activation_plan_of_another_budget()
{
  chain it;
  it.fill();
  act::activation_budget larger = budget;
  larger.device = 1_MiB;
  larger.frame = 16_KiB;
  return answer_of([&] {
    it.network.use(act::keep_all{}.plan(it.network.chain(), larger));
    it.step();
  });
}

inline constexpr user_mistake with_activations[] = {
    {"a block saves a tensor that another block declared", a_tensor_of_another_block,
     "block 1 (\"block 1\") saves a tensor that it did not declare"},
    {"a backward callback reads the input, and reads_input is not set", an_input_that_no_plan_keeps, "set reads_input"},
    {"a block declares a tensor and never saves it", a_tensor_that_is_never_saved, "block 1 saved 1"},
    {"a backward callback acquires a tensor of another block of the manager", a_saved_tensor_by_acquire,
     "block 3 saved 0"},
    {"a block reads the output of a block two places before", an_output_two_blocks_before,
     "reads an input that the block before does not output"},
    {"a gradient is made in a forward callback, and the block runs twice", a_gradient_of_a_forward_run,
     "makes a gradient when it runs forward again"},
    {"the last output is read after the run", the_output_after_the_run, "block 3 output 0"},
    {"a network runs in an iteration of another manager", an_iteration_of_another_manager, "another manager"},
    {"a pin of a saved tensor is kept from forward to backward", a_pin_kept_until_backward, "block 1 saved 0"},
    {"a callback leases more than working tells", leases_beyond_working, "", "leases of a block that exceed"},
    {"a plan is given in a callback", a_plan_given_in_a_callback, "given a plan inside of its step"},
    {"reads_input is set after the plan was given", a_block_changed_after_its_plan, "does not fit this chain"},
    {"a tensor is declared after the plan was given", a_tensor_declared_after_the_plan, "does not fit this chain"},
    {"a block has no backward callback", a_block_without_backward, "has no callback for its backward run"},
};

inline constexpr user_mistake with_plans[] = {
    {"the rehearsed step has no backward pass", a_rehearsal_without_backward, "", "a rehearsed step that makes other"},
    {"the rehearsed step has a smaller batch than the trained one", a_rehearsal_of_a_smaller_batch, "",
     "a rehearsed step that makes other"},
    {"a rehearsal after the first access", a_rehearsal_after_the_first_access, "", ""},
    {"an iteration that nobody keeps", an_iteration_that_nobody_keeps, "micro-batch"},
    {"an evaluation under the name of the training", an_evaluation_under_the_name_of_training, "",
     "an evaluation under the name"},
    {"the stored plan of another model", a_stored_plan_of_another_model, "plan"},
    {"two iterations at once", two_iterations_at_once, "iteration"},
    {"an activation plan of another budget", an_activation_plan_of_another_budget, "the plan of activations needs"},
};

}  // namespace activation_mistakes
