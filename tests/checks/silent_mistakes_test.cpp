#include "mistakes.hpp"

#include <support/catch.hpp>

#include <cstdlib>
#include <fstream>
#include <string>

namespace silent_mistakes_test {

using namespace mistakes;

namespace {

/// A mistake that version 0.1 passed over, and what makes it. Null: no test makes it yet, and it counts as not found.
struct silent_mistake {
  std::string_view what;
  std::string (*make)();
};

constexpr silent_mistake all[] = {
    {"a write through a pin that reads", write_through_a_read_pin},
    {"a pointer that is used after its pin ended", write_through_a_kept_pointer},
    {"a write past the end of a tensor", write_past_the_end_of_a_tensor},
    {"elements of a gradient that were not written", some_elements_of_a_gradient},
    {"a gradient that was opened and not written", a_gradient_that_is_opened_and_not_written},
    {"a gradient added to without beta", a_gradient_added_to_without_beta},
    {"a weight without a gradient", a_weight_without_a_gradient},
    {"two threads in one manager", two_threads_in_one_manager},
    {"a bf16 made of a float by its bits", nullptr},
    {"the restart state of an optimizer that is not registered", nullptr},
    {"a learning rate that is NaN or infinite", nullptr},
    {"fewer micro-batches than an iteration was begun with", nullptr},
    {"a kernel other than the one whose lists were declared", nullptr},
    {"a child of fork that uses the manager", nullptr},
    {"one kernel over two managers", nullptr},
    {"an access that is none of the three", nullptr},
    {"a number of steps that was loaded and cannot be", nullptr},
};

}  // namespace

TEST_CASE("mistakes that were silent are found", "[checks]")
{
  int found = 0;
  int total = 0;
  for (const silent_mistake& it : all) {
    ++total;
    if (it.make == nullptr) continue;
    INFO(it.what);
    const std::string answer = it.make();
    CHECK(answer != "");
    found += answer != "" ? 1 : 0;
  }
  if (const char* const folder = std::getenv("CHUNKMEM_FIGURES"); folder != nullptr)
    std::ofstream{std::string{folder} + "/test_checks.json"}
        << R"([{"name": "edge.silent_mistakes_found_percent", "value": )" << 100.0 * found / total
        << R"(, "unit": "%", "relation": "==", "bound": 100, "command": "build/test/bin/test_checks '[checks]'"}])"
        << "\n";
}

}  // namespace silent_mistakes_test
