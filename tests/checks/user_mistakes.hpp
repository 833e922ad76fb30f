// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <support/refusal.hpp>

#include <span>
#include <string>
#include <string_view>

/// Mistakes of new users, by the pages alone. The list was written before the answers of the library were known.
///
/// Activations:
/// - a block saves a tensor that another block declared
/// - a backward callback reads the input, and reads_input is not set
/// - a block declares a tensor and never saves it
/// - a backward callback acquires a saved tensor of the manager, and does not restore it
/// - a block reads the output of a block two places before
/// - a gradient is made in a forward callback, and the block runs twice
/// - the last output is read after the run
/// - a network runs in an iteration of another manager
/// - a pin of a saved tensor is kept from forward to backward
/// - a callback leases more than working tells
/// - a plan is given in a callback
/// - a block has no backward callback
///
/// Pipelines:
/// - stages run different schedules
/// - stages have boundaries of different sizes
/// - a forward run writes half of its output
/// - a backward run does not write the gradient of its input
/// - pass is given the micro-batch as counted over all batches
/// - versions are updated and never flipped
/// - weights of two stages have one place in the model
/// - stages go on with different batches after a load
/// - a schedule of divided backward runs, and a stage that has one for both
/// - boundaries in fewer bytes than they need
/// - labels are taken by a count of calls, and the schedule has another order
/// - a runner runs its schedule a second time
///
/// Ranks:
/// - all ranks train on the same rows
/// - rank 0 alone saves
/// - one rank has a batch more than the others
/// - one rank leaves a step out, because its own loss is NaN
/// - optimizer::step takes the step of a sharded_model
/// - a gradient is written, and gradient_done never called
/// - one rank begins its iteration with other micro-batches
/// - one rank changes a weight between two iterations
/// - each rank clips its own gradient before ranks add them up
/// - one rank declares two weights in another order
/// - a pin is held across a step, on all ranks and on one
/// - buffers of the ranks drift apart
///
/// Found later:
/// - reads_input is set, or a tensor is declared, after the plan of activations was given
/// - a step of all stages is given the replicas of one
/// - ranks ask for the weights of two models in another order, with names and without
///
/// Plans:
/// - the rehearsed step has no backward pass
/// - the rehearsed step has a smaller batch than the trained one
/// - a rehearsal after the first access
/// - an iteration that nobody keeps
/// - an evaluation under the name of the training
/// - the stored plan of another model
/// - a memory plan with another chunk size than it was made for
/// - a memory plan's file with a key that is misspelt
/// - two iterations at once
/// - a memory plan for a rank that has the whole host of its node
/// - one rank alone rehearses
/// - an activation plan of another budget
namespace user_mistakes {

/// One of them. Either something answers, or the page about silent mistakes has a row, or it is no mistake: where both
/// are empty the bits are right.
struct user_mistake {
  std::string_view what;
  std::string (*make)();   ///< gives the answer, or "" for silence
  std::string_view says;   ///< a part of the answer; empty: nothing answers
  std::string_view row{};  ///< how its row on the page begins, where nothing answers
};

std::span<const user_mistake> of_pipelines();
std::span<const user_mistake> of_ranks();

/// What a typed error said, or "" where none came.
template <class Work>
std::string answer_of(Work work)
{
  return support::refusal(work);
}

}  // namespace user_mistakes
