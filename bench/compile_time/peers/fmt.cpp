// SPDX-License-Identifier: Apache-2.0
// A line of text with fmt.
#include <fmt/core.h>

int main()
{
  fmt::print("step {:4}  loss {:.6f}\n", 1, 0.5);
}
