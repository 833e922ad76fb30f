// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/call_ref.hpp>

#include <support/catch.hpp>

#include <memory>
#include <string>
#include <type_traits>

namespace call_ref_test {

using chunkmem::call_ref;

namespace {

int sum_of(call_ref<int(int)> work)
{
  return work(1) + work(10);
}
int doubled(int number)
{
  return 2 * number;
}

}  // namespace

TEST_CASE("a reference to a call runs the callable itself, whatever its type", "[core]")
{
  int calls = 0;
  const auto counting = [&calls](int number) { return ++calls, number; };
  CHECK(sum_of(counting) == 11);
  CHECK(calls == 2);
  CHECK(sum_of([state = 0](int number) mutable { return state += number; }) == 12);  // 1, and 11: not a copy each time
  CHECK(sum_of(doubled) == 22);
  CHECK(sum_of(&doubled) == 22);
  CHECK(sum_of([](auto number) { return static_cast<short>(number); }) == 11);
  const call_ref<int(int)> first{counting};
  const call_ref<int(int)> same = first;  // refers to the callable, not to the other reference
  CHECK(sum_of(same) == 11);
  CHECK(calls == 4);
}

TEST_CASE("arguments and results of a reference to a call are forwarded", "[core]")
{
  std::string text;
  const auto append = [](std::string& to, std::unique_ptr<int> number) -> std::string& {
    return to += std::to_string(*number);
  };
  const call_ref<std::string&(std::string&, std::unique_ptr<int>)> call{append};
  CHECK(&call(text, std::make_unique<int>(7)) == &text);
  CHECK(text == "7");
  int runs = 0;
  const auto counts = [&] { return ++runs; };
  const call_ref<void()> ignores_the_result{counts};
  ignores_the_result();
  CHECK(runs == 1);
}

TEST_CASE("what cannot be called so is no reference to a call", "[core]")
{
  STATIC_REQUIRE(std::is_constructible_v<call_ref<bool(int)>, bool (&)(int)>);
  STATIC_REQUIRE_FALSE(std::is_constructible_v<call_ref<bool(int)>, bool (&)(std::string)>);
  STATIC_REQUIRE_FALSE(std::is_constructible_v<call_ref<std::string()>, int (&)()>);
}

}  // namespace call_ref_test
