// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/error_teller.hpp>

#include <support/catch.hpp>

#include <new>
#include <stdexcept>
#include <string>

namespace error_teller_test {

using namespace chunkmem;

namespace {

struct story {
  int told = 0;
  static std::string tell(const void* about)
  {
    auto& it = *const_cast<story*>(static_cast<const story*>(about));
    return "told " + std::to_string(++it.told);
  }
};

}  // namespace

TEST_CASE("a teller that nobody asked tells nothing", "[manager]")
{
  usage_error failed{"a mistake"};
  error_teller{}.tell(failed);
  CHECK(failed.details().empty());
}

TEST_CASE("an error is told once, by who is closest to its cause", "[manager]")
{
  story inner;
  story outer;
  error_teller near;
  error_teller far;
  near.ask(&story::tell, &inner);
  far.ask(&story::tell, &outer);
  usage_error failed{"a mistake"};
  near.tell(failed);
  near.tell(failed);
  far.tell(failed);
  CHECK(failed.details() == "told 1");
  CHECK(inner.told == 1);
  CHECK(outer.told == 0);
}

TEST_CASE("what goes wrong while details are written leaves the error as it was", "[manager]")
{
  error_teller teller;
  out_of_memory failed{{tier::device, 1, 2, 3, 4}};
  const std::string sentence = failed.what();
  teller.ask([](const void*) -> std::string { throw std::bad_alloc{}; }, nullptr);
  teller.tell(failed);
  teller.ask([](const void*) -> std::string { throw std::runtime_error{"a sink of a user's"}; }, nullptr);
  teller.tell(failed);
  CHECK(failed.details().empty());
  CHECK(failed.what() == sentence);
  teller.ask([](const void*) { return std::string{"now it works"}; }, nullptr);
  teller.tell(failed);
  CHECK(failed.details() == "now it works");
}

}  // namespace error_teller_test
