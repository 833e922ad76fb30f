// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/manager.hpp>
#include <support/catch.hpp>
#include <support/fake_device.hpp>
#include <support/mixed_reference.hpp>
#include <support/mixed_trainer.hpp>
#include <support/refusal.hpp>
#include <support/sanitized.hpp>

#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

namespace cuda_test {

/// The k-th call of a CUDA runtime fails while a model is trained, for every k and with every number: a transient error
/// is repeated with the same bits, a permanent one ends the manager with its first cause and without another call.

namespace cm = chunkmem;
namespace mixed = support::mixed;
using namespace cm::literals;
using support::fake_device;
using cuda_manager = cm::manager<fake_device>;
using trainer = mixed::trainer<cuda_manager, fake_device, float>;

namespace {

constexpr std::uint32_t steps = 2;
constexpr mixed::recipe usual = mixed::usual_recipe(steps);
constexpr std::uint64_t pace = support::sanitized ? 41 : 5;  // every so manieth call in the short runs

/// The call that fails, counted from the first of all.
struct failure {
  std::uint64_t call = 0;  ///< 0: none
  int number = 0;
  bool is_persistent = false;
};

const mixed::outcome& undisturbed()
{
  static const mixed::outcome result = mixed::reference{usual}.train();
  return result;
}

support::fake_device_options options()
{
  static const cm::bytes device = [] {
    fake_device memory{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
    cuda_manager m{memory, {.chunk_bytes = 6_KiB}};
    return trainer{m, memory, usual}.rehearse().smallest_device;
  }();
  return {.device_capacity = device, .host_capacity = 512_KiB};
}

/// A device, a manager and a trainer that come into being as late as they can, so that every call of theirs may fail.
class attempt {
 public:
  explicit attempt(const failure& planned) : runtime{fake_device::make(options())}
  {
    if (planned.call != 0) runtime.fail_call(planned.call, planned.number, planned.is_persistent);
  }

  void make()
  {
    if (!memory) memory.emplace(options(), runtime);
    if (!m) m.emplace(*memory, cm::manager_options{.chunk_bytes = 6_KiB});
    if (work) return;
    const cm::agent side = memory->adopt();
    work.emplace(*m, *memory, usual, mixed::crew{cm::agent::compute, side});
  }

  /// Follows the documentation after an error. @return   the results of the training; nothing if the device is lost
  std::optional<mixed::outcome> train()
  {
    if (!until_done([this] { make(); }, [] {}) || !until_done([this] { work->initialise(); }, [] {})) return {};
    for (std::uint32_t now = 0; now < steps; ++now) {
      if (!step(now)) return {};
      if (usual.evaluates_after(now) && !until_done([&] { work->evaluate(now); }, [this] { work->forget_step(); }))
        return {};
    }
    std::optional<mixed::outcome> result;
    until_done([&] { result = work->collect(); }, [] {});
    return result;
  }

  support::fake_cuda runtime;
  std::optional<fake_device> memory;
  std::optional<cuda_manager> m;
  std::optional<trainer> work;
  int errors = 0;
  std::string first_cause;

 private:
  /// False where the device is lost.
  template <class Work, class Repair>
  bool until_done(Work work_to_do, Repair repair)
  {
    while (true) {
      try {
        work_to_do();
        return true;
      } catch (const cm::error& refused) {
        if (is_lost(refused)) return false;
        if (memory && memory->is_lost()) continue;
      }
      try {
        repair();
      } catch (const cm::error& refused) {
        if (is_lost(refused)) return false;
      }
    }
  }

  bool is_lost(const cm::error& refused)
  {
    REQUIRE(++errors < 8);
    const auto* const device = dynamic_cast<const cm::device_error*>(&refused);
    if (device == nullptr) {
      REQUIRE(refused.code() == cm::error_code::out_of_memory);
      return false;
    }
    REQUIRE(device->fault().number != 0);
    if (!device->fault().is_sticky) return false;
    first_cause = device->what();
    return true;
  }

  bool step(std::uint32_t now)
  {
    bool updating = false;
    return until_done(
        [&] {
          auto scope = m->iteration();
          if (!updating) work->forward_and_backward(scope, now, 0);
          updating = true;
          work->update();
        },
        [&] {
          if (!updating) work->forget_step();
        });
  }
};

std::uint64_t calls_of_a_run()
{
  static const std::uint64_t calls = [] {
    attempt quiet{{}};
    const auto result = quiet.train();
    REQUIRE(result.has_value());
    REQUIRE(undisturbed().difference(*result) == "");
    REQUIRE(quiet.errors == 0);
    return quiet.runtime.calls();
  }();
  return calls;
}

template <class Work>
std::string cause_of(Work work)
{
  return support::refusal<cm::device_error>(work);
}

/// Every call of a manager reports the first cause, and the device gets none of these calls.
void expect_refused(attempt& it)
{
  const std::uint64_t calls = it.runtime.calls();
  REQUIRE(cause_of([&] { (void)it.memory->record(cm::agent::compute); }) == it.first_cause);
  if (it.work) {
    cuda_manager& m = *it.m;
    const auto weight = it.work->weights().as<float>(1);
    CHECK(cause_of([&] { (void)m.acquire(weight, cm::access::read); }) == it.first_cause);
    CHECK(cause_of([&] { (void)m.acquire(weight, cm::access::read_write, cm::agent::compute); }) == it.first_cause);
    CHECK(cause_of([&] { (void)m.acquire(weight, cm::access::read, cm::memory_location::host); }) == it.first_cause);
    CHECK(cause_of([&] { (void)m.lease(cm::tier::device, 1_KiB); }) == it.first_cause);
    CHECK(cause_of([&] { (void)m.iteration(); }) == it.first_cause);
    CHECK(cause_of([&] { it.work->update(); }) == it.first_cause);
    CHECK(m.report().capacity[cm::tier::device] == options().device_capacity);
  }
  CHECK(it.runtime.calls() == calls);
}

/// One run with one failing call. @return   whether the device was lost
bool run_with(const failure& planned)
{
  INFO("call " << planned.call << " fails with " << planned.number << (planned.is_persistent ? " for ever" : ""));
  support::fake_cuda runtime;
  bool lost = false;
  {
    attempt it{planned};
    const auto result = it.train();
    lost = !result.has_value();
    if (result) {
      const std::string difference = undisturbed().difference(*result);
      REQUIRE(difference == "");
    } else if (it.memory) {
      expect_refused(it);
    }
    runtime = it.runtime;
  }
  REQUIRE(runtime.calls_after_sticky() == 0);
  if (!lost) REQUIRE(runtime.live().total() == 0);
  const auto faults = runtime.faults();
  REQUIRE((faults.empty() ? "" : faults.front()) == "");
  return lost;
}

std::vector<int> numbers(bool sticky)
{
  std::vector<int> result;
  for (const int code : support::all_cuda_codes)
    if (code != 4 && support::is_sticky_fake_code(code) == sticky) result.push_back(code);
  return result;
}

/// At every call one of the numbers, so that in the end each was met by many calls.
void sweep(bool sticky, std::uint64_t step)
{
  const std::vector<int> codes = numbers(sticky);
  std::uint64_t runs = 0;
  for (std::uint64_t call = 1; call <= calls_of_a_run(); call += step, ++runs) {
    const int number = codes[(runs * 7 + call) % codes.size()];
    REQUIRE(run_with({call, number, false}) == sticky);
  }
  std::cout << runs << " of " << calls_of_a_run() << " calls failed with one of " << codes.size()
            << (sticky ? " errors that end CUDA\n" : " errors that pass\n");
}

}  // namespace

TEST_CASE("training survives every error of a CUDA runtime that passes", "[faults]")
{
  sweep(false, pace);
}

TEST_CASE("an error that ends CUDA ends training with its first cause", "[faults]")
{
  sweep(true, pace);
}

TEST_CASE("so it is at every single call", "[faults][.slow]")
{
  sweep(false, 1);
  sweep(true, 1);
}

TEST_CASE("a copy or kernel that fails behind our back ends training with its first cause", "[faults]")
{
  const std::uint64_t operations = [] {
    attempt quiet{{}};
    REQUIRE(quiet.train().has_value());
    return quiet.runtime.operations();
  }();
  int lost = 0;
  for (std::uint64_t index = 1; index <= operations; index += pace) {
    INFO("operation " << index);
    attempt it{{}};
    it.runtime.fail_operation(index, 700);
    if (const auto result = it.train()) {  // nobody waits for the last copies of a run
      REQUIRE(undisturbed().difference(*result) == "");
      continue;
    }
    ++lost;
    REQUIRE(it.first_cause.find("cudaErrorIllegalAddress") != std::string::npos);
    expect_refused(it);
  }
  CHECK(lost * 2 > static_cast<int>(operations / pace));
}

TEST_CASE("a manager and a device may end after their runtime", "[faults]")
{
  attempt it{{}};
  REQUIRE(it.train().has_value());
  it.runtime.unload();
}

}  // namespace cuda_test
