// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Chunked tensor memory for training: the mechanisms and the default policy of each family, standard library only.
/// Opt in to the rest by its own header:
///   <chunkmem/backend/host_arena.hpp>   <chunkmem/eviction/evictions.hpp>   <chunkmem/tensor/gradient_policies.hpp>
///   <chunkmem/optimizer/adam.hpp>   <chunkmem/optimizer/step.hpp>   <chunkmem/optimizer/thread_pool.hpp>
#include <chunkmem/backend/stream_backend.hpp>    // where bytes live and who copies them
#include <chunkmem/chunk/size_class_layout.hpp>   // default: large tensors first, small ones near their neighbours
#include <chunkmem/core/bytes.hpp>                // 4_MiB
#include <chunkmem/core/error.hpp>                // what may be thrown
#include <chunkmem/eviction/evictions.hpp>        // default: what is needed last leaves first
#include <chunkmem/fwd.hpp>                       // names only
#include <chunkmem/manager/manager.hpp>           // manager<Backend, Policies...>
#include <chunkmem/placement/placements.hpp>      // default: optimizer states stay on the host
#include <chunkmem/tensor/dtype.hpp>              // bf16 and fp16 from and to float
#include <chunkmem/tensor/gradient_policies.hpp>  // default: gradients have bytes of their own
#include <chunkmem/tensor/tensor.hpp>             // typed handles
#include <chunkmem/tensor/tensor_rules.hpp>       // default
#include <chunkmem/trace/trace_sink.hpp>          // default: null_sink
#include <chunkmem/transfer/transfers.hpp>        // default: copies start as early as they may
