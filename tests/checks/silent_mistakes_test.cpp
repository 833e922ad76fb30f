// SPDX-License-Identifier: Apache-2.0
#include "activation_mistakes.hpp"
#include "mistakes.hpp"
#include "user_mistakes.hpp"

#include <support/catch.hpp>
#include <support/figures.hpp>
#include <support/sanitized.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>

namespace silent_mistakes_test {

using namespace mistakes;

namespace {

/// Mistakes that version 0.1 did not report.
constexpr user_mistakes::user_mistake of_version_01[] = {
    {"a write through a pin that reads", write_through_a_read_pin,
     "'wte' (value) was written through; the last pin was acquired at mistakes.hpp:"},
    {"a pointer that is used after its pin ended", write_through_a_kept_pointer,
     "bytes of tensor 'wte' (value) changed while no pin held them"},
    {"a write past the end of a tensor", write_past_the_end_of_a_tensor, "bytes of tensor 'wpe' (value) changed"},
    {"elements of a gradient that were not written", some_elements_of_a_gradient,
     "gradient_done: 150 of 250 elements of tensor 'up' (gradient) were never written, the first one is 100"},
    {"a gradient that was opened and not written", a_gradient_that_is_opened_and_not_written,
     "250 of 250 elements of tensor 'wte' (gradient)"},
    {"a gradient added to without beta", a_gradient_added_to_without_beta,
     "gradient_done: the beta() of tensor 'down' (gradient) was not read"},
    {"a weight without a gradient", a_weight_without_a_gradient,
     "2 of 4 parameters have no gradient: 'wte', 'wpe' (write one for each, declare untrained tensors with "
     "role::frozen, or call "
     "without_gradient"},
    {"two threads in one manager", two_threads_in_one_manager,
     "two threads at once: acquire, while another thread is in lease"},
    {"a bf16 made of a float by its bits", a_float_taken_for_the_bits_of_a_bf16, "the float is converted"},
    {"the restart state of an optimizer that is not registered", a_restart_without_the_optimizers_state, "sgd/updates"},
    {"a learning rate that is NaN or infinite", learning_rates_that_are_no_numbers, "a learning rate of nan"},
    {"fewer micro-batches than an iteration was begun with", fewer_micro_batches_than_begun,
     "an iteration of 4 micro-batches ended after 2 of them"},
    {"a kernel other than the one whose lists were declared", a_kernel_that_was_not_declared,
     "an optimizer kernel that the manager was not given"},
    {"one kernel over two managers", one_kernel_over_two_managers, "that another manager was given"},
    {"an access that is none of the three", an_access_that_is_none_of_the_three, "none of read, read_write and write"},
    {"a number of steps that was loaded and cannot be", a_number_of_steps_that_cannot_be,
     "an optimizer step after 18446744073709551615 updates"},
};
constexpr user_mistakes::user_mistake by_a_child[] = {
    {"a child of fork that uses the manager", a_forked_child_that_trains, "a typed error in the child"}};

std::string page_of_silent_mistakes()
{
  const auto tree = std::filesystem::path{__FILE__}.parent_path().parent_path().parent_path();
  std::ifstream page{tree / "docs" / "silent_mistakes.md"};
  return {std::istreambuf_iterator<char>{page}, {}};
}

/// The mistakes that are found or on the page.
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
  tally all;
  const std::string page = page_of_silent_mistakes();
  for (const std::span<const user_mistakes::user_mistake> mistakes :
       {std::span<const user_mistakes::user_mistake>{activation_mistakes::with_activations},
        user_mistakes::of_pipelines(), user_mistakes::of_ranks(),
        std::span<const user_mistakes::user_mistake>{activation_mistakes::with_plans}})
    count(mistakes, page, all);
  CHECK(all.total >= 40);
  count(of_version_01, page, all);
  if (!support::thread_sanitized) count(by_a_child, page, all);  // it takes no fork beside threads
  support::write_figures("test_checks", "build/test/bin/test_checks '[checks]'",
                         {{"edge.silent_mistakes_found_percent", 100.0 * all.found / all.total, "%", "==", 100}});
}

}  // namespace silent_mistakes_test
