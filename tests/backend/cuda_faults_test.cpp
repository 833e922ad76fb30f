// SPDX-License-Identifier: Apache-2.0
// Every possible answer of a runtime, at every call that a backend makes.
#include <chunkmem/backend/cuda_device.hpp>

#include <backend/cuda_under_test.hpp>
#include <support/catch.hpp>
#include <support/count_allocations.hpp>
#include <support/fake_cuda.hpp>
#include <support/fake_cuda_codes.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cuda_faults_test {

using namespace chunkmem;
using support::fake_cuda;
using support::fake_schedule;
using under_test::cuda;
using under_test::kernel;

namespace {

constexpr std::size_t length = 48;

/// The life of a backend: every operation once, on the second of two devices. All of it may be repeated, so a failed
/// step is tried again.
class life {
 public:
  explicit life(fake_schedule when, std::uint64_t seed)
      : gpu{support::fake_cuda_options{.devices = 2, .when = when, .seed = seed, .longest_delay = 3}}
  {
  }

  /// True where it came to its end; else the backend was lost, or was never made.
  bool run()
  {
    const bool is_whole = start() && work() && capture() && finish();
    graph_.reset();
    mem_.reset();
    gpu.finish();
    return is_whole;
  }

  [[nodiscard]] const std::optional<device_fault>& cause() const noexcept { return cause_; }
  [[nodiscard]] const std::vector<std::string>& surprises() const noexcept { return surprises_; }
  /// A release cannot report a failure.
  [[nodiscard]] bool was_lost_in_release() const noexcept { return was_lost_in_release_; }
  [[nodiscard]] std::uint64_t errors() const noexcept { return errors_; }
  [[nodiscard]] std::uint64_t recoveries() const noexcept { return recoveries_; }

  std::array<std::byte, length> result{};
  std::uint64_t callables_run = 0;

  fake_cuda gpu;  // last: its threads use the rest

 private:
  bool start()
  {
    const backend::cuda_device_options options{
        .device = 1, .device_capacity = bytes{4 * length}, .host_capacity = bytes{4 * length}};
    return step([&] { mem_.emplace(options, gpu); }) &&
           step([&] { there_ = mem_->allocate(tier::device, bytes{2 * length}); }) &&
           step([&] { here_ = mem_->allocate(tier::host, bytes{length}); }) &&
           step([&] { back_ = mem_->allocate(tier::host, bytes{length}); }) && step([&] {
             if (mem_->agents() == built_in_agents) fifth_ = mem_->adopt();
           });
  }

  bool work()
  {
    return step([&] { mem_->fill(here_, std::byte{1}, bytes{length}); }) &&
           step([&] { mem_->fill(back_, std::byte{}, bytes{length}, agent::to_host); }) &&
           step([&] { mem_->fill(there_, std::byte{}, bytes{2 * length}); }) &&
           step([&] { mem_->copy(there_, here_, bytes{length}, agent::to_device); }) &&
           follow(agent::compute, agent::to_device) && step([&] {
             mem_->launch(agent::compute, kernel([to = there_ + length, from = there_] { add(to, from, 1); }));
           }) &&
           follow(fifth_, agent::compute) && step([&] { mem_->launch(fifth_, [this] { ++callables_run; }); }) &&
           step([&] { mem_->copy_batch(some_copies(), fifth_); }) && follow(agent::host, fifth_) &&
           step([&] { mem_->copy(here_, there_, bytes{length}); });
  }

  bool capture()
  {
    if (!step([&] { mem_->begin_capture(); })) return false;
    const bool is_captured =
        step([&] { mem_->copy(there_ + length, there_, bytes{length}, agent::to_device); }) &&
        follow(agent::compute, agent::to_device) && step([&] {
          mem_->launch(agent::compute, kernel([to = there_ + length, from = there_] { add(to, from, 2); }));
        }) &&
        step([&] { mem_->fill(there_, std::byte{9}, bytes{1}, fifth_); }) && follow(agent::to_host, agent::compute) &&
        step([&] { mem_->copy(back_, there_ + length, bytes{length}, agent::to_host); });
    return is_captured && step([&] { graph_.emplace(mem_->end_capture()); }) && step([&] { mem_->launch(*graph_); }) &&
           step([&] { mem_->launch(*graph_); }) && follow(agent::host, agent::to_host);
  }

  bool finish()
  {
    std::ranges::copy_n(back_, length, result.begin());
    mem_->release(tier::host, here_);
    was_lost_in_release_ = mem_->is_lost();
    if (was_lost_in_release_) return false;
    return step([&] { (void)mem_->allocate(tier::host, bytes{length}); }) &&
           step([&] { mem_->copy(there_, back_, bytes{length}, agent::compute); });
  }

  static void add(std::byte* to, const std::byte* from, int number) noexcept
  {
    for (std::size_t i = 0; i < length; ++i) to[i] = static_cast<std::byte>(std::to_integer<int>(from[i]) + number);
  }

  [[nodiscard]] std::array<backend::copy_range, 3> some_copies() const
  {
    return {{{.to = there_, .from = there_ + length, .size = bytes{8}},
             {.to = there_ + 8, .from = there_ + length + 8, .size = bytes{8}},
             {.to = there_ + 16, .from = there_ + length + 16, .size = bytes{length - 16}}}};
  }

  bool follow(agent later, agent earlier)
  {
    event point;
    return step([&] { point = mem_->record(earlier); }) && step([&] { mem_->wait(later, point); });
  }

  /// Runs the step, and repeats it if it failed. False: it can never work.
  template <class Work>
  bool step(Work work)
  {
    for (int tries = 0; tries < 3; ++tries) {
      try {
        work();
        if (mem_.has_value()) recoveries_ = mem_->recoveries();
        return true;
      } catch (const device_error& error) {
        ++errors_;
        if (mem_.has_value() ? mem_->is_lost() : error.fault().is_sticky) return lost(error), false;
      } catch (const out_of_memory&) {
        ++errors_;
      }
    }
    surprises_.push_back("a step failed three times");
    return false;
  }

  /// From now on every call has the same cause, and the runtime is not called.
  void lost(const device_error& error)
  {
    cause_ = error.fault();
    if (!mem_.has_value()) return;
    const std::uint64_t calls = gpu.calls();
    const std::function<void()> all[] = {
        [&] { (void)mem_->record(agent::compute); }, [&] { mem_->copy(there_, here_, bytes{1}, agent::compute); },
        [&] { (void)mem_->allocate(tier::host, bytes{1}); }, [&] { mem_->launch(agent::compute, [] {}); }};
    const bool was_capturing = mem_->is_capturing();
    for (const auto& call : all) {
      try {
        call();
        surprises_.push_back("a lost backend worked");
      } catch (const device_error& again) {
        if (std::string_view{again.what()} != error.what())
          surprises_.push_back("another cause: " + std::string{again.what()});
      } catch (const usage_error&) {
        if (!was_capturing) surprises_.push_back("a lost backend found a mistake of the caller");
      }
    }
    if (gpu.calls() != calls) surprises_.push_back("a lost backend made calls");
  }

  std::optional<cuda> mem_;
  std::optional<cuda::graph_type> graph_;
  std::byte* there_ = nullptr;
  std::byte* here_ = nullptr;
  std::byte* back_ = nullptr;
  agent fifth_ = agent::host;
  std::optional<device_fault> cause_;
  std::vector<std::string> surprises_;
  std::uint64_t errors_ = 0;
  std::uint64_t recoveries_ = 0;
  bool was_lost_in_release_ = false;
};

/// The result of an undisturbed life.
struct reference {
  explicit reference(fake_schedule when)
  {
    life it{when, 1};
    REQUIRE(it.run());
    result = it.result;
    calls = it.gpu.calls();
    operations = it.gpu.operations();
    CHECK(it.errors() == 0);
    CHECK(it.recoveries() == 0);
    CHECK(it.callables_run == 1);
    CHECK(result[20] == std::byte{4});
    under_test::check_clean(it.gpu);
    for (std::uint64_t i = 1; i <= calls; ++i) names.push_back(it.gpu.call_name(i));
  }

  /// Of the hundreds of events, which are all alike, only a few. Of the calls by which every other one comes to its
  /// device and leaves it, one in 7 unless all are wanted.
  [[nodiscard]] std::vector<std::uint64_t> interesting(bool with_every_switch = false) const
  {
    std::vector<std::uint64_t> found;
    std::uint64_t alike = 0;
    std::uint64_t switches = 0;
    for (std::uint64_t i = 1; i <= calls; ++i) {
      const std::string_view name = names[i - 1];
      const bool is_alike = i > 1 && name == names[i - 2] && (name == "create_event" || name == "destroy_event");
      alike = is_alike ? alike + 1 : 0;
      const bool is_switch = name == "current_device" || name == "push_context" || name == "pop_context";
      if (is_switch && !with_every_switch && switches++ % 7 != 0) continue;
      if (alike % 250 == 0) found.push_back(i);
    }
    return found;
  }

  std::array<std::byte, length> result{};
  std::uint64_t calls = 0;
  std::uint64_t operations = 0;
  std::vector<std::string_view> names;
};

/// The calls after a call, without the pops that restore the thread's device; empty: none.
std::string first_after(const fake_cuda& gpu, std::uint64_t call)
{
  while (++call <= gpu.calls())
    if (gpu.call_name(call) != "pop_context") return std::string{gpu.call_name(call)};
  return {};
}

/// Lets call `index` return `code`, and checks all consequences. An empty text where everything is right.
std::string disturb(const reference& plain, fake_schedule when, std::uint64_t index, int code)
{
  life it{when, index};
  it.gpu.fail_call(index, code);
  const bool is_whole = it.run();
  const bool ends_all = support::is_sticky_fake_code(code) || code == 4;
  const std::string_view name = plain.names[index - 1];
  if (!it.surprises().empty()) return it.surprises().front();
  if (!it.gpu.faults().empty()) return it.gpu.faults().front();
  if (it.gpu.calls_after_sticky() != 0) return "calls after a sticky error";
  if (code != 4 && it.gpu.device_of_thread() != 0) return "the thread has another device than before";
  if (ends_all) {
    if (const std::string later = first_after(it.gpu, index); !later.empty()) return "after the end: " + later;
    if (it.cause().has_value() && (it.cause()->number != code || it.cause()->call != index || !it.cause()->is_sticky))
      return "the wrong cause";
    if (!is_whole && !it.cause().has_value() && !it.was_lost_in_release()) return "stopped without a cause";
    return {};
  }
  // A capture that the runtime calls ended without a graph is lost; the fake goes on with it, but that is not our
  // fault.
  if (name == "end_capture" && (code == 901 || code == 904)) return it.cause().has_value() ? "" : "not lost";
  if (it.cause().has_value()) return "lost";
  if (!is_whole) return "it did not come to its end";
  if (it.result != plain.result) return "other bytes";
  const std::size_t may_stay = name.starts_with("destroy") ? 1 : 0;  // what it was told to destroy
  if (it.gpu.live().total() != may_stay) return "left behind: " + std::to_string(it.gpu.live().total());
  if (it.gpu.last_error() != 0 && may_stay == 0) return "an error was left behind";
  return {};
}

void sweep(fake_schedule when, const std::vector<int>& codes, std::size_t step)
{
  const reference plain{when};
  const auto calls = plain.interesting(step == 1 && codes.size() > 6);
  std::size_t first = 0;
  std::uint64_t runs = 0;
  for (const int code : codes) {
    for (std::size_t i = first++ % step; i < calls.size(); i += step, ++runs) {
      const std::string wrong = disturb(plain, when, calls[i], code);
      if (!wrong.empty())
        FAIL_CHECK("call " << calls[i] << ", " << plain.names[calls[i] - 1] << ", code " << code << ": " << wrong);
    }
  }
  CHECK(runs > codes.size());
}

std::vector<int> all_codes()
{
  std::vector<int> all{support::all_cuda_codes.begin(), support::all_cuda_codes.end()};
  all.push_back(31'337);
  return all;
}

}  // namespace

TEST_CASE("six kinds of errors at every call", "[backend]")
{
  // under a sanitizer each call has one of the six: they begin at one call after the other
  sweep(fake_schedule::latest, {1, 2, 4, 46, 700, 31'337}, support::sanitized ? 5 : 1);
}

TEST_CASE("every error of the runtime at some calls, all calls in turn", "[backend]")
{
  sweep(fake_schedule::random, all_codes(),
        support::sanitized            ? 97
        : support::counts_allocations ? 7
                                      : 35);  // fewer under a sanitizer
}

TEST_CASE("every error of the runtime at every call", "[backend][.slow]")
{
  for (const auto when : {fake_schedule::random, fake_schedule::latest, fake_schedule::earliest})
    sweep(when, all_codes(), 1);
}

TEST_CASE("every operation may fault while it runs", "[backend]")
{
  const auto when = GENERATE(fake_schedule::random, fake_schedule::latest);
  const reference plain{when};
  REQUIRE(plain.operations > 10);
  for (std::uint64_t index = 1; index <= plain.operations; ++index) {
    for (const int code : {700, 719, 214, 999, 31'337}) {
      CAPTURE(index, code);
      life it{when, index};
      it.gpu.fail_operation(index, code);
      const bool is_whole = it.run();
      CHECK(it.surprises().empty());
      CHECK(it.gpu.calls_after_sticky() == 0);
      CHECK(it.gpu.faults().empty());
      if (it.cause().has_value()) CHECK((it.cause()->number == code && it.cause()->is_sticky));
      if (!is_whole) CHECK(it.gpu.lost() == code);
    }
  }
}

TEST_CASE("functions that order work may fail for ever, and the bytes are right", "[backend]")
{
  for (const char* const function : {"record_event", "wait_event", "synchronize_event"}) {
    CAPTURE(function);
    life it{fake_schedule::latest, 1};
    it.gpu.fail_call_of(function, 1, 1, true);
    (void)it.run();  // up to the capture, in which nothing is made up for
    CHECK(it.recoveries() > 0);
    CHECK(it.callables_run == 1);
    CHECK_FALSE(it.cause().has_value());
    CHECK(it.gpu.live().total() == 0);
  }
}

TEST_CASE("any function may fail for ever without a crash or a hang", "[backend]")
{
  for (const std::string_view function : support::fake_call_names) {
    for (const int code : {1, 2, 46}) {
      CAPTURE(std::string{function}, code);
      life it{fake_schedule::random, 1};
      it.gpu.fail_call_of(function, 1, code, true);
      CHECK_NOTHROW(it.run());
      CHECK(it.gpu.faults().empty());
    }
  }
}

TEST_CASE("the runtime may be gone at any call", "[backend]")
{
  const reference plain{fake_schedule::random};
  for (const std::uint64_t index : plain.interesting()) {
    CAPTURE(index);
    life it{fake_schedule::random, index};
    it.gpu.fail_call(index, 4, true);
    CHECK_NOTHROW(it.run());
    CHECK(first_after(it.gpu, index).empty());
    if (it.cause().has_value()) CHECK(it.cause()->number == 4);
  }
}

}  // namespace cuda_faults_test
