// SPDX-License-Identifier: Apache-2.0
#include "precision_run.hpp"

#include <support/catch.hpp>

namespace precision {

/// The schedule goes with the size and the transfer, so that each is met by each of them in the whole matrix.
std::string run_on_adversarial(const setting& it)
{
  const std::uint64_t turn = it.at[setting::size] + it.at[setting::transfer] + it.at[setting::optimizer];
  return run_on<support::adversarial>(
      it, support::adversarial_options{
              .when = static_cast<support::schedule>(turn % 3), .seed = 1 + turn, .async_compute = it.launched()});
}

}  // namespace precision
