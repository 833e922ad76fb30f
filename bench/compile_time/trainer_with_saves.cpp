// SPDX-License-Identifier: Apache-2.0
// The trainer of examples/plain_loops, and a save and a load of its manager.
#include "main.cpp"

#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/io/posix_folder.hpp>

namespace plain_loops {

void save(manager& m, cm::io::posix_folder& folder)
{
  cm::checkpoint::save(m, folder);
}
void load(manager& m, cm::io::posix_folder& folder)
{
  (void)cm::checkpoint::load(m, folder);
}

}  // namespace plain_loops
