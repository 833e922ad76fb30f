// expect: sums_apart over groups that work on streams of the device.*give the model one group
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

namespace cm = chunkmem;

/// Like NCCL, its work is on streams, and is requested.
struct on_streams : cm::collective::self {
  template <class Backend>
  void finish(Backend&, cm::agent)
  {
  }
};

#ifdef CHUNKMEM_COMPILES
using ends = cm::collective::self;
#else
using ends = on_streams;
#endif

void train(cm::backend::host_arena& memory, ends& gathers, ends& sums)
{
  cm::sharding::sums_apart ranks{gathers, sums};
  const cm::sharded_model<cm::backend::host_arena, cm::sharding::sums_apart<ends>> m{memory, ranks};
}
