// expect: two policies of one kind: keep one of them
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/transfer/transfers.hpp>

#include <concepts>

using chunkmem::backend::simulated;
using chunkmem::eviction::belady;
using chunkmem::eviction::lru;
using chunkmem::transfer::no_prefetch;

#ifdef CHUNKMEM_COMPILES
using chosen = chunkmem::manager<simulated, no_prefetch, lru>;
static_assert(std::same_as<chosen, chunkmem::manager<simulated, lru, no_prefetch>>, "order made a new type");
#else
using chosen = chunkmem::manager<simulated, lru, no_prefetch, belady>;
#endif

chosen* made = nullptr;
