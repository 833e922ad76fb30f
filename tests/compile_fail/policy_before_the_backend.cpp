// expect: error: static assertion.*a policy stands where the backend belongs: name the backend first
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

using arena = chunkmem::backend::host_arena;
#ifdef CHUNKMEM_COMPILES
using lru_manager = chunkmem::manager<arena, chunkmem::eviction::lru>;
#else
using lru_manager = chunkmem::manager<chunkmem::eviction::lru, arena>;
#endif
