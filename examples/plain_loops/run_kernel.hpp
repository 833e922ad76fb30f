// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace plain_loops {

/// The pointer of a pin or a gradient; any other argument is itself.
template <class Argument>
[[nodiscard]] auto argument_of(const Argument& argument)
{
  if constexpr (requires { argument.data(); })
    return argument.data();
  else
    return argument;
}

/// Calls a C function with pins in the place of its pointers: `run_kernel{m, add, update(into), read(from), count};`
///
/// Braces fix the order, so the pins are taken as they are written. They live until the call is over. This is the only
/// place that asks whether the manager rehearses: a rehearsal takes the pins, which have no bytes, and leaves out the
/// arithmetic.
struct run_kernel {
  template <class Manager, class Kernel, class... Arguments>
  run_kernel(const Manager& manager, Kernel kernel, const Arguments&... arguments)
  {
    if (!manager.rehearsing()) kernel(argument_of(arguments)...);
  }
};

}  // namespace plain_loops
