// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/plan_search.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/pipeline/interruption.hpp>

#include <iosfwd>
#include <string_view>

namespace configure_example {

/// The cluster and the model of a search.
struct subject {
  const chunkmem::configurator::cluster& whole;
  const chunkmem::configurator::trained_model& model;
  chunkmem::pipeline::interruption stop{};  ///< ends the search, and the comparison of places behind it
};

/// `gpt` trains by it: no ranks share layers, stages have equal numbers of layers, and replicas divide states.
[[nodiscard]] bool can_be_run(const chunkmem::configurator::parallel_plan& plan);

/// The best plans: time of a step, tokens of a second, the free bound, and the bytes of the stage that needs the most.
void print_plans(std::ostream& out, const subject& of, const chunkmem::configurator::plan_search_result& found);

/// How far the best plan is from the bound of all plans. @pre   there is one
void print_bound(std::ostream& out, const chunkmem::configurator::plan_search_result& found);

/// The best plan by stages: the bytes that a stage keeps and needs, and the devices of its ranks. Compares the places
/// of ranks with others until the search is stopped.
void print_best(std::ostream& out, const subject& of, const chunkmem::configurator::found_plan& best);

/// The reasons for which plans were left out.
void print_rejected(std::ostream& out, const chunkmem::configurator::plan_search_result& found);

/// All of these as one JSON object: `cluster`, `model`, `plans`, `bound_seconds` of all plans, `is_whole` (the search
/// ended by itself), counts of plans, and `rejected`. Sizes are in bytes, times in seconds.
void print_json(std::ostream& out, const subject& of, const chunkmem::configurator::plan_search_result& found,
                std::string_view model);

}  // namespace configure_example
