// expect: use of deleted function .*operator Element\*|invokes a deleted function
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

namespace cm = chunkmem;
using manager = cm::manager<cm::backend::host_arena>;

const float* first(manager& m, cm::tensor<float> w)
{
#ifdef CHUNKMEM_COMPILES
  static const auto pin = m.acquire(w, cm::access::read);
  return pin;
#else
  return m.acquire(w, cm::access::read);
#endif
}
