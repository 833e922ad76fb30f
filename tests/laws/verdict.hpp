// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace laws {

/// A policy with one mistake, a piece of the law that should name it, and the law that was found broken.
struct verdict {
  std::string_view policy;
  std::string_view law;
  std::string said;

  [[nodiscard]] bool is_caught() const { return !law.empty() && said.find(law) != std::string::npos; }
};
using verdicts = std::vector<verdict>;

/// The wrong policies of each family, judged when they are asked for the first time.
[[nodiscard]] const verdicts& wrong_evictions();
[[nodiscard]] const verdicts& wrong_transfers();
[[nodiscard]] const verdicts& wrong_placements();
[[nodiscard]] const verdicts& wrong_layouts();
[[nodiscard]] const verdicts& wrong_rules();
[[nodiscard]] const verdicts& wrong_gradients();
[[nodiscard]] const verdicts& wrong_movers();
[[nodiscard]] const verdicts& wrong_sinks();
[[nodiscard]] const verdicts& wrong_ownerships();
[[nodiscard]] const verdicts& wrong_communicators();
[[nodiscard]] const verdicts& wrong_activations();
[[nodiscard]] const verdicts& wrong_schedules();

/// The name of a wrong policy's type, without its namespaces.
template <class Policy>
[[nodiscard]] std::string_view name_of()
{
  std::string_view text = __PRETTY_FUNCTION__;  // of g++ and clang: "... [with Policy = a::b; ...]"
  text.remove_prefix(text.find("Policy = "));
  text = text.substr(0, text.find_first_of(";]"));
  return text.substr(text.rfind(':') + 1);
}

/// Allocations of this program so far; see caught_test.cpp.
[[nodiscard]] std::uint64_t allocations_so_far();

}  // namespace laws
