// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/step_options.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

namespace loss_scale_test {

using namespace chunkmem;
using optimizer::loss_scale;
using optimizer::loss_scale_options;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

static_assert(std::is_nothrow_copy_constructible_v<loss_scale> && std::is_nothrow_copy_assignable_v<loss_scale>);

void update(loss_scale& scale, int times)
{
  for (int time = 0; time < times; ++time) scale.updated();
}

}  // namespace

TEST_CASE("a dynamic scale begins, grows and backs off as mixed-precision training is used to", "[optimizer]")
{
  loss_scale scale = loss_scale::dynamic();
  CHECK(scale.is_dynamic());
  CHECK(scale.scale() == 65536.0F);
  update(scale, 1999);
  CHECK(scale.scale() == 65536.0F);
  CHECK(scale.updates_in_a_row() == 1999);
  scale.updated();
  CHECK(scale.scale() == 131072.0F);
  CHECK(scale.updates_in_a_row() == 0);
  scale.skipped();
  CHECK(scale.scale() == 65536.0F);
  CHECK(scale.updates() == 2000);
  CHECK(scale.skips() == 1);
}

TEST_CASE("only updates in a row count, and a scale that is skipped begins to count anew", "[optimizer]")
{
  loss_scale scale = loss_scale::dynamic({.initial = 8.0F, .window = 3});
  update(scale, 2);
  scale.skipped();
  CHECK(scale.scale() == 4.0F);
  update(scale, 2);
  CHECK(scale.scale() == 4.0F);
  scale.updated();
  CHECK(scale.scale() == 8.0F);
}

TEST_CASE("a scale stays between its bounds", "[optimizer]")
{
  loss_scale scale = loss_scale::dynamic(
      {.initial = 3.0F, .window = 1, .growth = 4.0F, .backoff = 0.25F, .smallest = 2.0F, .largest = 40.0F});
  scale.skipped();
  CHECK(scale.scale() == 2.0F);
  for (const float expected : {8.0F, 32.0F, 40.0F, 40.0F}) {
    scale.updated();
    CHECK(scale.scale() == expected);
  }
  for (const float expected : {10.0F, 2.5F, 2.0F, 2.0F}) {
    scale.skipped();
    CHECK(scale.scale() == expected);
  }
  loss_scale high = loss_scale::dynamic(
      {.initial = 1e38F, .window = 1, .growth = 10.0F, .largest = std::numeric_limits<float>::max()});
  high.updated();
  CHECK(high.scale() == std::numeric_limits<float>::max());
}

TEST_CASE("a fixed scale stays and counts", "[optimizer]")
{
  loss_scale scale = loss_scale::fixed(1024.0F);
  CHECK(!scale.is_dynamic());
  update(scale, 5000);
  scale.skipped();
  CHECK(scale.scale() == 1024.0F);
  CHECK(scale.updates() == 5000);
  CHECK(scale.skips() == 1);
  CHECK(scale.updates_in_a_row() == 0);
}

TEST_CASE("the bytes of a scale are all that changes: another one goes on from them", "[optimizer]")
{
  const loss_scale_options options{.initial = 64.0F, .window = 5};
  loss_scale first = loss_scale::dynamic(options);
  update(first, 7);
  first.skipped();
  update(first, 4);
  loss_scale second = loss_scale::dynamic(options);
  REQUIRE(first.bytes().size() == second.bytes().size());
  std::memcpy(second.bytes().data(), first.bytes().data(), first.bytes().size());
  for (loss_scale* scale : {&first, &second}) {
    CHECK(scale->scale() == 64.0F);
    scale->updated();
    CHECK(scale->scale() == 128.0F);
    CHECK(scale->updates() == 12);
    CHECK(scale->skips() == 1);
  }
}

TEST_CASE("a loss scale says by itself what must survive, and which loaded bytes cannot be right", "[optimizer]")
{
  loss_scale scale = loss_scale::dynamic();
  int states = 0;
  scale.for_each_state([&](const restart_state& it) {
    ++states;
    CHECK(it.name == "loss scale");
    CHECK((it.content.data() == scale.bytes().data() && it.content.size() == scale.bytes().size()));
    loss_scale loaded = loss_scale::fixed(4.0F);
    it.check(loaded.bytes());
    for (const float wrong : {0.0F, -2.0F, infinity, not_a_number, 2.9e-39F, 1e-38F}) {
      std::memcpy(loaded.bytes().data() + 16, &wrong, sizeof wrong);
      CHECK_THROWS_AS(it.check(loaded.bytes()), config_error);
    }
  });
  CHECK(states == 1);
}

TEST_CASE("a scale that is skipped again and again at its smallest ends in an error", "[optimizer]")
{
  loss_scale scale = loss_scale::dynamic({.initial = 4.0F, .smallest = 2.0F, .most_skips = 3});
  const auto skips = [&](int count) {
    for (; count > 0; --count) scale.check_usable(), scale.skipped();
  };
  skips(3);  // to 2, and twice at 2
  scale.check_usable();
  scale.updated();
  skips(2);
  std::vector<std::byte> saved{scale.bytes().begin(), scale.bytes().end()};
  skips(1);
  CHECK_THROWS_WITH(scale.check_usable(),
                    Catch::Matchers::ContainsSubstring("the last 3 steps were skipped at the smallest loss scale, 2"));
  std::copy(saved.begin(), saved.end(), scale.bytes().begin());  // a load of another generation
  skips(3);
  CHECK_THROWS_AS(scale.check_usable(), usage_error);
  loss_scale fixed = loss_scale::fixed(8.0F);
  for (int step = 0; step < 100; ++step) fixed.check_usable(), fixed.skipped();
  CHECK_THROWS_AS(fixed.check_usable(), usage_error);
  fixed.check_usable();  // it was said: a trainer may go on, also with a checkpoint of these counts
  loss_scale patient = loss_scale::dynamic({.initial = 1.0F, .most_skips = 0});
  for (int step = 0; step < 1000; ++step) patient.check_usable(), patient.skipped();
}

TEST_CASE("settings that cannot work are refused", "[optimizer]")
{
  for (const float wrong : {0.0F, -1.0F, not_a_number, infinity, 2.9e-39F, 1e-45F, 1e-38F})
    CHECK_THROWS_AS(loss_scale::fixed(wrong), usage_error);
  CHECK_THROWS_WITH(loss_scale::fixed(2.9e-39F),
                    Catch::Matchers::ContainsSubstring("a loss scale of 2.9e-39 (give one from 1.1754944e-38 to"));
  CHECK(std::isfinite(1.0F / loss_scale::fixed(0x1p-126F).scale()));
  const std::vector<loss_scale_options> all = {
      {.initial = 0.5F},     {.initial = not_a_number}, {.initial = 3e7F},    {.window = 0},
      {.growth = 1.0F},      {.growth = not_a_number},  {.growth = infinity}, {.backoff = 1.0F},
      {.backoff = 0.0F},     {.backoff = not_a_number}, {.smallest = 0.0F},   {.smallest = not_a_number},
      {.largest = infinity}, {.largest = not_a_number}, {.smallest = 1e6F},   {.smallest = 8.0F, .largest = 4.0F},
      {.smallest = 2.9e-39F}};
  for (const loss_scale_options& wrong : all) CHECK_THROWS_AS(loss_scale::dynamic(wrong), usage_error);
}

}  // namespace loss_scale_test
