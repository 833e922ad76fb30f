// expect: error: static assertion.*a checkpoint lies in a folder: write io::posix_folder folder
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/io/posix_folder.hpp>
#include <chunkmem/manager/manager.hpp>

namespace cm = chunkmem;
using manager = cm::manager<cm::backend::host_arena>;

void load(manager& m)
{
#ifdef CHUNKMEM_COMPILES
  cm::io::posix_folder folder{"runs/a"};
  cm::checkpoint::load(m, folder);
#else
  cm::checkpoint::load(m, "runs/a");
#endif
}
