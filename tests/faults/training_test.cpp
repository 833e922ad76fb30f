// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <support/any_backend.hpp>
#include <support/catch.hpp>
#include <support/chosen_gradient.hpp>
#include <support/sanitized.hpp>
#include <support/toy_trainer.hpp>

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

namespace training_test {

/// The k-th copy and the k-th allocation of training fail, for every k: a typed error, and after the retry the same
/// bits.

namespace cm = chunkmem;
namespace toy = support::toy;
using namespace cm::literals;
using support::any_backend;

namespace {

constexpr std::uint32_t steps = 3;
// only some copies: under a sanitizer a run takes ten times as long
constexpr std::uint64_t pace = support::sanitized ? 7 : 1;

const toy::outcome& undisturbed()
{
  static const toy::outcome result = toy::plain_model{}.train(steps);
  return result;
}

/// Where copies are asked for: those of the filling, and of each step with the evaluation behind it.
struct census {
  std::vector<std::uint64_t> ends;
};

/// A trainer that follows the documentation after an error.
template <class Manager>
class patient_trainer {
 public:
  patient_trainer(const support::failure_plan& plan, const support::adversarial_options& options, bool launched,
                  bool same_scope)
      : memory{options, plan},
        persistent_{plan.persistent},
        same_scope_{same_scope},
        m{memory, {.chunk_bytes = 4_KiB}},
        trainer{m, memory, launched ? toy::crew{cm::agent::compute, memory.adopt()} : toy::crew{}}
  {
  }

  void run(census* seen)
  {
    until_done([this] { trainer.initialise(); }, [] {});
    note(seen);
    for (std::uint32_t now = 0; now < steps; ++now) {
      step(now);
      if (toy::evaluates_after(now))
        until_done([this, now] { trainer.evaluate(now + 1000); }, [this] { trainer.forget_step(); });
      note(seen);
    }
  }

  any_backend memory;

 private:
  template <class Work, class Repair>
  void until_done(Work work, Repair repair)
  {
    for (bool done = false; !done;) {
      try {
        work();
        done = true;
      } catch (const cm::error& refused) {
        count(refused);
        repair();
      }
    }
  }

  /// A failed pass is forgotten and run again; a failed update is called again, here or in a new iteration.
  void step(std::uint32_t now)
  {
    bool updating = false;
    until_done(
        [&] {
          auto scope = m.iteration();
          if (!updating) trainer.forward_and_backward(scope, now);
          updating = true;
          if (same_scope_)
            until_done([this] { trainer.update(); }, [] {});
          else
            trainer.update();
        },
        [&] {
          if (!updating) trainer.forget_step();
        });
  }

  void count(const cm::error& refused)
  {
    ++errors;
    REQUIRE(errors < 5);
    REQUIRE((refused.code() == cm::error_code::device || refused.code() == cm::error_code::out_of_memory));
    if (persistent_ && errors == 2) memory.set_plan({});  // the first retry still fails
  }

  void note(census* seen)
  {
    if (seen != nullptr) seen->ends.push_back(memory.copies());
  }

  bool persistent_;
  bool same_scope_;

 public:
  Manager m;
  toy::toy_trainer<Manager, any_backend> trainer;
  int errors = 0;
};

struct sweep {
  std::uint64_t points = 0;
  std::uint64_t runs = 0;
};

template <class Manager>
void run_once(const support::failure_plan& plan, const support::adversarial_options& options, bool launched,
              bool same_scope, sweep& sum)
{
  patient_trainer<Manager> it{plan, options, launched, same_scope};
  it.run(nullptr);
  const std::string difference = undisturbed().difference(it.trainer.collect());
  REQUIRE(difference == "");
  REQUIRE(it.memory.failures() > 0);
  REQUIRE(it.errors > 0);
  const cm::report seen = it.m.report();
  for (const cm::tier where : {cm::tier::device, cm::tier::host}) REQUIRE(seen.peak[where] <= seen.capacity[where]);
  it.memory.drain();
  REQUIRE(it.memory.faults().empty());
  ++sum.runs;
}

template <class Manager>
sweep fail_every_copy(support::adversarial_options options, bool launched, std::uint32_t extra_frames)
{
  {
    support::adversarial_options roomy = options;
    roomy.device_capacity = 1_MiB;
    any_backend memory{roomy};
    Manager m{memory, {.chunk_bytes = 4_KiB}};
    options.device_capacity =
        toy::toy_trainer<Manager, any_backend>{m, memory}.rehearse().smallest_device + extra_frames * 4_KiB;
  }
  census all;
  patient_trainer<Manager> quiet{support::failure_plan{}, options, launched, false};
  quiet.run(&all);
  REQUIRE(quiet.errors == 0);
  REQUIRE(undisturbed().difference(quiet.trainer.collect()) == "");
  REQUIRE(all.ends.back() > all.ends.front());

  sweep sum;
  for (std::uint64_t k = 0; k < all.ends.back(); k += pace) {
    for (const bool persistent : {false, true}) {
      INFO("copy " << k << " of " << all.ends.back() << (persistent ? ", until it is repaired" : ", once"));
      run_once<Manager>({.copy = k, .persistent = persistent}, options, launched, (k / pace % 2 == 0) != persistent,
                        sum);
    }
    ++sum.points;
  }
  std::cout << "copies: " << sum.points << " injection points (filling " << all.ends[0] << ", recorded step "
            << all.ends[1] - all.ends[0] << ", repeated " << all.ends.back() - all.ends[1] << "), " << sum.runs
            << " runs\n";
  return sum;
}

using demand_manager = cm::manager<any_backend, support::chosen_gradient, cm::transfer::no_prefetch>;
using ahead_manager = cm::manager<any_backend, support::chosen_gradient>;

}  // namespace

TEST_CASE("every copy that fails on demand is an error from which training recovers", "[faults]")
{
  CHECK(
      fail_every_copy<demand_manager>({.host_capacity = 512_KiB, .when = support::schedule::latest}, false, 3).points >
      100 / pace);
}

TEST_CASE("every copy that fails ahead of its use is an error from which training recovers", "[faults]")
{
  CHECK(fail_every_copy<ahead_manager>({.host_capacity = 512_KiB, .when = support::schedule::latest}, false, 3).points >
        100 / pace);
}

TEST_CASE("every copy that fails beside launched kernels is an error from which training recovers", "[faults]")
{
  CHECK(fail_every_copy<ahead_manager>({.host_capacity = 512_KiB, .seed = 11, .async_compute = true}, true, 0).points >
        100 / pace);
}

TEST_CASE("every allocation that fails is an error from which training recovers", "[faults]")
{
  const support::adversarial_options options{.device_capacity = 64_KiB, .host_capacity = 512_KiB};
  sweep sum;
  for (const std::uint64_t k : {0U, 1U})
    for (const bool persistent : {false, true}) {
      run_once<ahead_manager>({.allocation = k, .persistent = persistent}, options, false, persistent, sum);
      ++sum.points;
    }
  std::cout << "allocations: 2 injection points, " << sum.runs << " runs\n";
  patient_trainer<ahead_manager> quiet{support::failure_plan{}, options, false, false};
  quiet.run(nullptr);
  CHECK(quiet.memory.allocations() == 2);  // there are no others
}

}  // namespace training_test
