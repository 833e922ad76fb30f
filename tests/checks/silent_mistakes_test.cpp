// SPDX-License-Identifier: Apache-2.0
#include "activation_mistakes.hpp"
#include "mistakes.hpp"
#include "user_mistakes.hpp"

#include <support/catch.hpp>
#include <support/sanitized.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

namespace silent_mistakes_test {

using namespace mistakes;

namespace {

/// A mistake that version 0.1 passed over, and what makes it.
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
    {"a bf16 made of a float by its bits", a_float_taken_for_the_bits_of_a_bf16},
    {"the restart state of an optimizer that is not registered", a_restart_without_the_optimizers_state},
    {"a learning rate that is NaN or infinite", learning_rates_that_are_no_numbers},
    {"fewer micro-batches than an iteration was begun with", fewer_micro_batches_than_begun},
    {"a kernel other than the one whose lists were declared", a_kernel_that_was_not_declared},
    {"a child of fork that uses the manager", a_forked_child_that_trains},
    {"one kernel over two managers", one_kernel_over_two_managers},
    {"an access that is none of the three", an_access_that_is_none_of_the_three},
    {"a number of steps that was loaded and cannot be", a_number_of_steps_that_cannot_be},
};

std::string page_of_silent_mistakes()
{
  const auto tree = std::filesystem::path{__FILE__}.parent_path().parent_path().parent_path();
  std::ifstream page{tree / "docs" / "silent_mistakes.md"};
  return {std::istreambuf_iterator<char>{page}, {}};
}

/// Found or on the page, of those that are mistakes.
struct tally {
  int found = 0;
  int total = 0;
};

void count(std::span<const user_mistakes::user_mistake> mistakes, const std::string& page, tally& into)
{
  for (const user_mistakes::user_mistake& it : mistakes) {
    INFO(it.what);
    const std::string answer = it.make();
    INFO("it says: " << answer);
    const bool answers = !it.says.empty() && answer.find(it.says) != std::string::npos;
    const bool is_on_page = !it.row.empty() && page.find("\n| " + std::string{it.row}) != std::string::npos;
    const bool is_right = it.says.empty() && answer.empty();  // what the page is silent about has the right bits
    CHECK((answers || (is_right && (is_on_page || it.row.empty()))));
    if (it.says.empty() && it.row.empty()) continue;
    ++into.total;
    into.found += answers || is_on_page ? 1 : 0;
  }
}

}  // namespace

TEST_CASE("mistakes that were silent are found", "[checks]")
{
  tally of_users;
  const std::string page = page_of_silent_mistakes();
  for (const std::span<const user_mistakes::user_mistake> mistakes :
       {std::span<const user_mistakes::user_mistake>{activation_mistakes::with_activations},
        user_mistakes::of_pipelines(), user_mistakes::of_ranks(),
        std::span<const user_mistakes::user_mistake>{activation_mistakes::with_plans}})
    count(mistakes, page, of_users);
  CHECK(of_users.total >= 40);

  int found = of_users.found;
  int total = of_users.total;
  for (const silent_mistake& it : all) {
    // it takes no fork beside threads
    if (support::thread_sanitized && it.make == a_forked_child_that_trains) continue;
    ++total;
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
