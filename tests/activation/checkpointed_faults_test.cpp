// SPDX-License-Identifier: Apache-2.0
#include "checkpointed_runs.hpp"

#include <exception>
#include <iostream>

namespace checkpointed_faults_test {

/// A copy or a callback fails in a step of a `checkpointed` network, each one in turn: the caller gets the error, and
/// after a repeat of the step the bits are those of an undisturbed run.

using namespace checkpointed_runs;
using faulty_rig = rig<adversarial>;

namespace {

/// A callback's own error.
struct interrupted : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "a kernel was not launched"; }
};

/// @return   the error is one that a trainer expects
template <class Work>
bool fails(Work& work)
{
  try {
    work();
    return false;
  } catch (const cm::error& refused) {
    INFO(refused.what());
    REQUIRE((refused.code() == cm::error_code::device || refused.code() == cm::error_code::out_of_memory));
  } catch (const interrupted&) {
  }
  return true;
}

/// Runs `work` until nothing fails, with `repair` in between, which may fail too. @return   the number of errors
template <class Work, class Repair>
int until_done(Work work, Repair repair)
{
  int errors = 0;
  while (fails(work)) {
    ++errors;
    REQUIRE(errors < 6);
    while (fails(repair)) REQUIRE(++errors < 6);
  }
  return errors;
}

/// A failed pass is dropped and run again in a new iteration; a failed update is called again in a new iteration.
int train_patiently(faulty_rig& it)
{
  int errors = until_done([&] { it.run.initialise(); }, [] {});
  for (std::uint32_t now = 0; now < steps; ++now) {
    bool is_updating = false;
    errors += until_done(
        [&] {
          auto scope = it.run.network().iteration();
          if (!is_updating) it.run.forward_and_backward(scope, now);
          is_updating = true;
          it.run.update();
        },
        [&] {
          if (!is_updating) it.run.forget_step();
        });
  }
  return errors;
}

/// A rehearsal proves the step on this device. Tensors of several frames need neighbouring frames, so a step may fit
/// into some bytes and not into a frame more.
bool is_proven(const setting& how, const support::adversarial_options& options)
{
  try {
    const faulty_rig proven{how, options};
    return true;
  } catch (const cm::config_error& refused) {
    REQUIRE_THAT(refused.what(), Catch::Matchers::ContainsSubstring("does not fit"));
    return false;
  }
}

support::adversarial_options options_of(const setting& how, bool launched)
{
  support::adversarial_options options{
      .host_capacity = plenty, .when = support::schedule::latest, .async_compute = launched};
  options.device_capacity = plenty;
  const cm::bytes smallest = faulty_rig{how, options}.run.rehearse().smallest_device;
  options.device_capacity = smallest;
  REQUIRE(is_proven(how, options));
  options.device_capacity += 2 * frame;
  while (!is_proven(how, options)) options.device_capacity += frame;
  REQUIRE(options.device_capacity <= smallest + 4 * frame);
  return options;
}

void expect_undisturbed(faulty_rig& it)
{
  const std::string difference = reference().difference(it.run.collect());
  REQUIRE(difference == "");
  REQUIRE(it.run.is_empty());
  it.memory.drain();
  REQUIRE(it.memory.faults().empty());
}

/// In CI only some of the copies and kernels fail, in the slow tests each of them.
constexpr std::uint64_t pace = support::sanitized ? 211 : 11;

void fail_copies(std::string_view planner, std::uint64_t every)
{
  const bool launched = planner == "karma";
  const setting how{.planner = planner, .launched = launched};
  const support::adversarial_options options = options_of(how, launched);
  faulty_rig quiet{how, options};
  REQUIRE(train_patiently(quiet) == 0);
  const std::uint64_t copies = quiet.memory.copies();
  expect_undisturbed(quiet);
  std::uint64_t runs = 0;
  for (std::uint64_t index = 0; index < copies; index += every) {
    INFO("planner " << planner << ", copy " << index << " of " << copies);
    faulty_rig it{how, options, support::failure_plan{.copy = index}};
    REQUIRE(train_patiently(it) > 0);
    expect_undisturbed(it);
    ++runs;
  }
  std::cout << planner << ": " << runs << " of " << copies << " copies failed, one in each run\n";
}

void throw_from_kernels(std::string_view planner, std::uint64_t every)
{
  const setting how{.planner = planner};
  const support::adversarial_options options = options_of(how, false);
  std::uint64_t kernels = 0;
  {
    faulty_rig quiet{how, options};
    quiet.run.before_kernel = [&] { ++kernels; };
    quiet.run.train(steps);
  }
  std::uint64_t runs = 0;
  for (std::uint64_t index = 0; index < kernels; index += every) {
    INFO("planner " << planner << ", kernel " << index << " of " << kernels);
    faulty_rig it{how, options};
    std::uint64_t count = 0;
    bool was_empty = true;
    it.run.before_kernel = [&] {
      if (count++ == index) throw interrupted{};
    };
    it.run.initialise();
    int errors = 0;
    for (std::uint32_t now = 0; now < steps; ++now)
      errors += until_done([&] { it.run.step(now); },
                           [&] {
                             it.run.forget_step();
                             was_empty = was_empty && it.run.is_empty();
                           });
    REQUIRE(errors == 1);
    REQUIRE(was_empty);
    expect_undisturbed(it);
    ++runs;
  }
  std::cout << planner << ": " << runs << " of " << kernels << " kernels threw, one in each run\n";
}

}  // namespace

TEST_CASE("a copy that fails is an error after which the step is run again", "[activation]")
{
  for (const std::string_view planner : {"swap_all", "karma", "rotor"})
    if (!support::sanitized || planner == "karma") fail_copies(planner, pace);
}

TEST_CASE("a callback that throws ends its step, drops all activations and may run again", "[activation]")
{
  for (const std::string_view planner : {"swap_all", "karma", "rotor"})
    if (!support::sanitized || planner == "karma") throw_from_kernels(planner, pace);
}

TEST_CASE("under every planner, each copy fails once and each callback throws once", "[activation][.slow]")
{
  for (const std::string_view planner : any_planner::names) {
    fail_copies(planner, 1);
    throw_from_kernels(planner, 1);
  }
}

}  // namespace checkpointed_faults_test
