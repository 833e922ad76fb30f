// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checks/full_checks.hpp>

#include "mistakes.hpp"

#include <conformance/check_policy.hpp>
#include <support/catch.hpp>

#include <array>
#include <cmath>
#include <span>
#include <string>

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
    try {
      const auto inside = part.enter("acquire", call_place{"next.cpp", 1});
    } catch (const cm::usage_error& error) {
      return error.what();
    }
    return "";
  }
};

}  // namespace

TEST_CASE("checks::full keeps the laws of a check policy", "[checks]")
{
  conformance::check_policy_laws<cm::checks::full>();
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
