// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "display.hpp"
#include "options.hpp"
#include "text.hpp"

namespace gpt {

/// Prints how long a step of a rank is expected to take on the cluster of `--forecast`, with one rank on each node.
///
/// The trainer runs as it would over the ranks, on virtual clocks: the same plan of activations, decisions and order of
/// work. Gathers and sums share links and ports as in plans of `configure`: the slowest rank sets their pace. Messages
/// have the median latency and work of the file, and take the time of the thread that computes. Not modelled: ranks
/// slower than the first one, and processors that ranks share.
/// @return   the exit status of the program
/// @throws problem   a cluster that has nodes of several devices or of one node; a training that does not fit; a build
///   without JSON
[[nodiscard]] int run_forecast(const options& chosen, const training_text& text, const display& show);

}  // namespace gpt
