// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Chunk-based tensor memory for training: the mechanisms, and the default policy of each family with the small
///   policies in its header. Includes the standard library alone. Include the rest by its own header:
///   <chunkmem/backend/host_arena.hpp>   <chunkmem/chunk/layouts.hpp>   <chunkmem/transfer/planned.hpp>
///   <chunkmem/optimizer/adam.hpp>   <chunkmem/optimizer/step.hpp>   <chunkmem/optimizer/thread_pool.hpp>
#include <chunkmem/backend/stream_backend.hpp>    // where bytes live and who copies them
#include <chunkmem/chunk/size_class_layout.hpp>   // the default: large tensors first, small ones near neighbours
#include <chunkmem/core/bytes.hpp>                // 4_MiB
#include <chunkmem/core/error.hpp>                // what may be thrown
#include <chunkmem/eviction/evictions.hpp>        // belady, the default, and others: what leaves first
#include <chunkmem/fwd.hpp>                       // names only
#include <chunkmem/manager/manager.hpp>           // manager<Backend, Policies...>
#include <chunkmem/placement/placements.hpp>      // optimizer_on_host, the default: where optimizer states live
#include <chunkmem/tensor/dtype.hpp>              // bf16 and fp16 from and to float
#include <chunkmem/tensor/gradient_policies.hpp>  // separate, the default, and in_place
#include <chunkmem/tensor/tensor.hpp>             // typed handles
#include <chunkmem/tensor/tensor_rules.hpp>       // training_rules, the default, and inference_rules
#include <chunkmem/trace/trace_sink.hpp>          // null_sink, the default
#include <chunkmem/transfer/transfers.hpp>        // lookahead, the default, and no_prefetch
