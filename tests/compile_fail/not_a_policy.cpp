// expect: an argument is no policy: give it a policy_kind and a name, or remove it
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/manager/manager.hpp>

struct nothing_of_the_kind {};

#ifdef CHUNKMEM_COMPILES
using chosen = chunkmem::manager<chunkmem::backend::simulated>;
#else
using chosen = chunkmem::manager<chunkmem::backend::simulated, nothing_of_the_kind>;
#endif

chosen* made = nullptr;
