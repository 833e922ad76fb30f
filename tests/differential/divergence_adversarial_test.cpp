// SPDX-License-Identifier: Apache-2.0
#include "divergence_run.hpp"

#include <support/adversarial.hpp>

namespace divergence {

std::string run_on_adversarial(const setting& it, tally& sum)
{
  return run_on<support::adversarial>(
      it,
      support::adversarial_options{
          .when = static_cast<support::schedule>(it.seed / 5 % 3), .seed = 1 + it.seed, .async_compute = it.launched()},
      sum);
}

}  // namespace divergence
