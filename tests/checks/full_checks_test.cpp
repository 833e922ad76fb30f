// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checks/full_checks.hpp>

#include <conformance/check_policy.hpp>
#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/refusal.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include "mistakes.hpp"

namespace caller_guard_test {

using namespace chunkmem;
using checks::caller_guard;

namespace {

/// The error that another thread gets now.
std::string answer_elsewhere(caller_guard& guard, const char* call)
{
  std::string answer;
  std::thread{[&] { answer = support::refusal<usage_error>([&] { const auto inside = guard.enter(call); }); }}.join();
  return answer;
}

}  // namespace

TEST_CASE("one thread is inside, as deep as it likes", "[checks]")
{
  caller_guard guard;
  CHECK(answer_elsewhere(guard, "drop") == "");
  {
    const auto outer = guard.enter("gradient");
    {
      const auto inner = guard.enter("acquire");
    }
    CHECK_THAT(answer_elsewhere(guard, "drop"),
               Catch::Matchers::ContainsSubstring("drop, while another thread is in gradient"));
  }
  CHECK(answer_elsewhere(guard, "drop") == "");
}

TEST_CASE("the end of a pin waits for the other thread and says so", "[checks]")
{
  caller_guard guard;
  bool waited = true;
  {
    const auto free = guard.wait_to_enter("the end of a pin", waited);
    CHECK_FALSE(waited);
    const auto nested = guard.wait_to_enter("the end of a pin", waited);
    CHECK_FALSE(waited);
  }
  std::thread other;
  std::atomic<bool> has_begun{false};
  {
    const auto outer = guard.enter("lease");
    other = std::thread{[&] {
      has_begun = true;
      has_begun.notify_all();
      const auto late = guard.wait_to_enter("the end of a pin", waited);
    }};
    has_begun.wait(false);
  }
  other.join();  // whether it had to wait is a matter of luck; that it came in is not
  CHECK(answer_elsewhere(guard, "drop") == "");
}

}  // namespace caller_guard_test

namespace gradient_watch_test {

using chunkmem::dtype;
using chunkmem::checks::gradient_watch;

TEST_CASE("a gradient is unwritten from its first opening until every element is written", "[checks]")
{
  gradient_watch it;
  it.reset(2);
  std::array<float, 4> values{};
  const auto content = std::as_writable_bytes(std::span{values});
  CHECK(it.unwritten(1, content, dtype::float32).elements == 0);
  it.opened(1, content, dtype::float32, true, true);
  CHECK(it.unwritten(1, content, dtype::float32).elements == 4);
  values[0] = values[3] = 0;
  CHECK(it.unwritten(1, content, dtype::float32).elements == 2);
  CHECK(it.unwritten(1, content, dtype::float32).first == 1);
  values[1] = values[2] = 1;
  CHECK(it.unwritten(1, content, dtype::float32).elements == 0);
  it.opened(1, content, dtype::float32, false, true);
  CHECK(values[1] == 1);
}

TEST_CASE("beta is to be read at each opening that has one", "[checks]")
{
  gradient_watch it;
  it.reset(2);
  CHECK(it.was_asked(0));
  it.opened(0, {}, dtype::float32, true, true);
  CHECK_FALSE(it.was_asked(0));
  CHECK(it.was_asked(1));
  it.asked(0);
  CHECK(it.was_asked(0));
  it.opened(0, {}, dtype::float32, false, true);
  CHECK_FALSE(it.was_asked(0));
  it.opened(0, {}, dtype::float32, false, false);
  CHECK(it.was_asked(0));
  it.opened(0, {}, dtype::float32, false, true);
  it.forget(0);
  CHECK(it.was_asked(0));
}

TEST_CASE("a tensor may lack a gradient where it was said so", "[checks]")
{
  gradient_watch it;
  it.reset(2);
  CHECK_FALSE(it.may_lack(7));
  it.allow_none(7);
  it.allow_none(7);
  CHECK(it.may_lack(7));
  it.reset(2);
  CHECK(it.may_lack(7));
}

}  // namespace gradient_watch_test

extern "C" int __asan_address_is_poisoned(const volatile void* address);

namespace guarded_bytes_test {

using namespace mistakes;
using cm::checks::guarded_bytes;

namespace {

/// The report of the address sanitizer; without it, nothing.
bool is_reported([[maybe_unused]] const void* at)
{
  if constexpr (guarded_bytes::is_guarding)
    return __asan_address_is_poisoned(at) != 0;
  else
    return false;
}

/// The report on a byte that must not be touched.
constexpr bool guarded = guarded_bytes::is_guarding;

}  // namespace

TEST_CASE("bytes of an arena are guarded but for those of pins that live", "[checks]")
{
  alignas(256) std::array<std::byte, 1024> arena{};
  guarded_bytes bytes;
  bytes.add_arena(arena);
  CHECK(is_reported(&arena[0]) == guarded);
  bytes.open({&arena[256], 100});
  CHECK(bytes.is_open(&arena[355]));
  CHECK_FALSE(bytes.is_open(&arena[356]));
  CHECK_FALSE(is_reported(&arena[256]));
  CHECK(is_reported(&arena[360]) == guarded);
  bytes.open({&arena[256], 100});
  bytes.close({&arena[256], 100});
  CHECK_FALSE(is_reported(&arena[256]));
  bytes.close({&arena[256], 100});
  CHECK(is_reported(&arena[256]) == guarded);
  CHECK_FALSE(bytes.is_open(&arena[256]));
  bytes.forget();
  CHECK_FALSE(is_reported(&arena[0]));
}

TEST_CASE("a copy that is over leaves open what pins hold", "[checks]")
{
  alignas(256) std::array<std::byte, 1024> arena{};
  guarded_bytes bytes;
  bytes.add_arena(arena);
  bytes.open({&arena[256], 256});
  bytes.lend({&arena[0], 512});
  CHECK_FALSE(is_reported(&arena[0]));
  bytes.take_back({&arena[0], 512});
  CHECK(is_reported(&arena[0]) == guarded);
  CHECK_FALSE(is_reported(&arena[256]));
  bytes.take_back({&arena[300], 100});  // within what a pin holds
  CHECK_FALSE(is_reported(&arena[256]));
  CHECK_FALSE(is_reported(&arena[399]));
}

TEST_CASE("a read after a release and a write past a tensor are reported where they happen", "[checks]")
{
  rig<> it;
  const float* kept = nullptr;
  {
    const auto pin = it.m.acquire(it.weights.slice(0), cm::access::read_write);
    kept = pin.data();
    CHECK_FALSE(is_reported(kept));
    CHECK_FALSE(is_reported(kept + 249));
    CHECK(is_reported(kept + 250) == guarded);  // the gap
    CHECK(is_reported(kept + 256) == guarded);  // the next tensor
  }
  CHECK(is_reported(kept) == guarded);
  const auto again = it.m.acquire(it.weights.slice(0), cm::access::read);
  CHECK_FALSE(is_reported(again.data()));
}

TEST_CASE("a lease that ended and a free frame are guarded, and the system has its memory back clean", "[checks]")
{
  const std::byte* kept = nullptr;
  {
    rig<> it;
    {
      const auto lease = it.m.lease(cm::tier::device, 4_KiB);
      kept = lease.data();
      CHECK_FALSE(is_reported(kept + 4095));
    }
    CHECK(is_reported(kept) == guarded);
  }
  CHECK_FALSE(is_reported(kept));
}

}  // namespace guarded_bytes_test

namespace mistake_note_test {

using namespace chunkmem;

TEST_CASE("the first mistake is thrown once, with the count of the others", "[checks]")
{
  checks::mistake_note it;
  CHECK_NOTHROW(it.raise());
  it.add(error_text{} << "chunkmem: first");
  it.add(error_text{} << "chunkmem: second");
  it.add(error_text{} << "chunkmem: third");
  CHECK(it.count() == 3);
  CHECK(support::refusal<usage_error>([&] { it.raise(); }) == "chunkmem: first [and 2 more that were found since]");
  CHECK(it.count() == 0);
  CHECK_NOTHROW(it.raise());
}

}  // namespace mistake_note_test

namespace pinned_cells_test {

using chunkmem::checks::call_place;
using chunkmem::checks::pinned_cells;
using finding = pinned_cells::finding;

namespace {

struct cells {
  pinned_cells all;
  std::array<std::byte, 32> content{};

  cells() { all.reset(3); }
  void pin(bool writes, unsigned line = 1) { all.pinned(1, content, writes, call_place{"a.cpp", line}); }
  [[nodiscard]] finding end(bool retained = true) { return all.released(1, content, retained); }
  [[nodiscard]] finding look() { return all.compare(1, content); }
};

}  // namespace

TEST_CASE("a change under a pin that reads is found once", "[checks]")
{
  cells it;
  it.pin(false);
  it.content[5] = std::byte{1};
  CHECK(it.end() == finding::written_through_read);
  CHECK(it.look() == finding::fine);
  it.pin(false);
  CHECK(it.end() == finding::fine);
}

TEST_CASE("a pin that writes makes every change right, also of pins beside it", "[checks]")
{
  cells it;
  it.pin(false);
  it.pin(true);
  it.content[5] = std::byte{1};
  CHECK(it.end() == finding::fine);
  it.content[6] = std::byte{1};
  CHECK(it.end() == finding::fine);
  CHECK(it.look() == finding::fine);
}

TEST_CASE("a change without a pin is found once, with the place of the last pin", "[checks]")
{
  cells it;
  CHECK(it.look() == finding::fine);  // nothing is known yet
  it.pin(true, 7);
  it.content[0] = std::byte{1};
  CHECK(it.look() == finding::fine);  // pinned
  CHECK_FALSE(it.all.is_watched(1));
  CHECK(it.end() == finding::fine);
  CHECK(it.all.is_watched(1));
  CHECK(it.all.last_pin(1).line == 7);
  it.content[31] = std::byte{2};
  CHECK(it.look() == finding::written_unpinned);
  CHECK(it.look() == finding::fine);
}

TEST_CASE("nothing is said of bytes that others change by right", "[checks]")
{
  cells it;
  it.pin(false);
  CHECK(it.end(false) == finding::fine);
  it.content[2] = std::byte{1};
  CHECK(it.look() == finding::fine);
  it.pin(true);
  CHECK(it.end() == finding::fine);
  it.all.forget(1);
  it.content[2] = std::byte{2};
  CHECK(it.look() == finding::fine);
  it.pin(true);
  CHECK(it.end() == finding::fine);
  it.all.forget_all();
  it.content[2] = std::byte{3};
  CHECK(it.look() == finding::fine);
}

}  // namespace pinned_cells_test

namespace full_checks_test {

namespace cm = chunkmem;
using Catch::Matchers::ContainsSubstring;
using cm::checks::call_place;
using cm::checks::full_checks;
using mistakes::holds_nan, mistakes::write_unseen;

namespace {

/// A part alone, with an arena of two tensors, which are its slots 0 and 1; slot 1 is the gradient of parameter 0.
struct alone {
  alignas(256) std::array<float, 64> values{};
  std::array<float, 64> slopes{};
  int settled = 0;
  full_checks part;

  alone()
  {
    part.attach({this, [](void* it) noexcept { ++static_cast<alone*>(it)->settled; },
                 [](void*, std::uint32_t slot, cm::error_text& text) noexcept {
                   text << (slot == 0 ? "'w' (value)" : "'w' (gradient)");
                 }});
    part.reset(2, 1);
    part.add_arena(std::as_writable_bytes(std::span{values}));
  }
  [[nodiscard]] cm::checks::pin_event pin(cm::access how)
  {
    return {0, 0, std::as_writable_bytes(std::span{values}), how, true};
  }
  [[nodiscard]] cm::checks::gradient_event gradient()
  {
    return {0, 1, std::as_writable_bytes(std::span{slopes}), cm::dtype::float32};
  }
  /// What the next call throws, or "".
  [[nodiscard]] std::string next_call()
  {
    return support::refusal<cm::usage_error>([&] {
      const auto inside = part.enter("acquire", call_place{"next.cpp", 1});
    });
  }
};

}  // namespace

TEST_CASE("checks::full keeps the laws of a check policy", "[checks]")
{
  conformance::check_policy_laws<cm::checks::full>();
}

TEST_CASE("a gradient that an adopted agent has still to write is awaited where it is done", "[checks]")
{
  const support::adversarial_options options{.device_capacity = cm::bytes{4096},
                                             .host_capacity = cm::bytes{65536},
                                             .when = support::schedule::latest,
                                             .async_compute = true};
  support::adversarial memory{options};
  const cm::agent side = memory.adopt();
  cm::manager<support::adversarial, cm::checks::full> m{memory, {.chunk_bytes = cm::bytes{1024}}};
  const auto weight = m.add<float>({64}, cm::role::parameter);
  for (float& value : m.acquire(weight, cm::access::write).span()) value = 1;
  auto gradient = m.gradient(weight, side);
  REQUIRE(gradient.beta() == 0.0F);
  memory.launch(side, [all = gradient.span()] { std::ranges::fill(all, 2.0F); });
  CHECK_NOTHROW(m.gradient_done(std::move(gradient)));
}

TEST_CASE("a part alone: what is written through a pin that reads is thrown by the next call", "[checks]")
{
  alone it;
  {
    const auto inside = it.part.enter("acquire", call_place{"a/trainer.cpp", 12});
    it.part.pinned(it.pin(cm::access::read));
  }
  write_unseen(&it.values[2], 1.0F);
  it.part.released(it.pin(cm::access::read));
  CHECK(it.part.noted() == 1);
  CHECK(it.next_call() ==
        "chunkmem: a pin that reads 'w' (value) was written through; the last pin was acquired at trainer.cpp:12 "
        "(acquire it with access::read_write)");
  CHECK(it.next_call() == "");
  CHECK(it.settled > 0);
}

TEST_CASE("a part alone: pins that overwrite begin with poison, unless another pin holds the bytes", "[checks]")
{
  alone it;
  it.part.pinned(it.pin(cm::access::write));
  CHECK(std::isnan(it.values[63]));
  it.values.fill(2.0F);
  it.part.pinned(it.pin(cm::access::write));
  CHECK(it.values[63] == 2.0F);
  it.part.released(it.pin(cm::access::write));
  it.part.released(it.pin(cm::access::write));
  write_unseen(&it.values[0], 3.0F);
  it.part.compare(it.pin(cm::access::read));
  CHECK_THAT(it.next_call(), ContainsSubstring("bytes of 'w' (value) changed while no pin held them"));
}

TEST_CASE("a part alone: leases are poison before and after", "[checks]")
{
  alone it;
  const auto bytes = std::as_writable_bytes(std::span{it.values});
  it.part.leased(bytes);
  CHECK(std::isnan(it.values[0]));
  CHECK(it.part.guarded().is_open(bytes.data()));
  it.values[0] = 1.0F;
  it.part.lease_ended(bytes);
  CHECK(holds_nan(&it.values[0]));
  CHECK_FALSE(it.part.guarded().is_open(bytes.data()));
}

TEST_CASE("a part alone: a gradient is asked for its beta, and written", "[checks]")
{
  alone it;
  it.part.gradient_opened(it.gradient(), true, true);
  CHECK_THROWS_WITH(it.part.expect_written(it.gradient(), "gradient_done"),
                    ContainsSubstring("gradient_done: the beta() of 'w' (gradient)"));
  it.part.beta_read(0);
  it.slopes[0] = 1.0F;
  CHECK_THROWS_WITH(it.part.expect_written(it.gradient(), "gradient_done"),
                    ContainsSubstring("63 of 64 elements of 'w' (gradient) were never written, the first one is 1"));
  it.part.gradient_gone(0);
  CHECK_NOTHROW(it.part.expect_written(it.gradient(), "gradient_done"));
}

}  // namespace full_checks_test
