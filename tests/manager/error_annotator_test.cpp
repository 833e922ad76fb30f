// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/residency_snapshot.hpp>

#include <support/catch.hpp>

#include <new>
#include <stdexcept>
#include <string>

namespace error_annotator_test {

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

TEST_CASE("a annotator that nobody asked tells nothing", "[manager]")
{
  usage_error failed{"a mistake"};
  error_annotator{}.annotate(failed);
  CHECK(failed.details().empty());
}

TEST_CASE("an error is told once, by who is closest to its cause", "[manager]")
{
  story inner;
  story outer;
  error_annotator near;
  error_annotator far;
  near.ask(&story::tell, &inner);
  far.ask(&story::tell, &outer);
  usage_error failed{"a mistake"};
  near.annotate(failed);
  near.annotate(failed);
  far.annotate(failed);
  CHECK(failed.details() == "told 1");
  CHECK(inner.told == 1);
  CHECK(outer.told == 0);
}

TEST_CASE("what goes wrong while details are written leaves the error as it was", "[manager]")
{
  error_annotator annotator;
  out_of_memory failed{{tier::device, 1, 2, 3, 4}};
  const std::string sentence = failed.what();
  annotator.ask([](const void*) -> std::string { throw std::bad_alloc{}; }, nullptr);
  annotator.annotate(failed);
  annotator.ask([](const void*) -> std::string { throw std::runtime_error{"a sink of a user's"}; }, nullptr);
  annotator.annotate(failed);
  CHECK(failed.details().empty());
  CHECK(failed.what() == sentence);
  annotator.ask([](const void*) { return std::string{"now it works"}; }, nullptr);
  annotator.annotate(failed);
  CHECK(failed.details() == "now it works");
}

}  // namespace error_annotator_test
