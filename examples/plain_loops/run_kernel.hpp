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
/// The pins are taken in the order they are written, since braces fix it, and live until the call is over. This is the
/// one place that asks whether the manager rehearses: a rehearsal takes the pins, and leaves out the arithmetic, which
/// has no bytes.
struct run_kernel {
  template <class Manager, class Kernel, class... Arguments>
  run_kernel(const Manager& manager, Kernel kernel, const Arguments&... arguments)
  {
    if (!manager.rehearsing()) kernel(argument_of(arguments)...);
  }
};

}  // namespace plain_loops
