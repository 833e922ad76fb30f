// SPDX-License-Identifier: Apache-2.0
// The blocks of the README and of pages whose statements need surroundings, each word by word. They are compiled,
// and not run.
#include <chunkmem/activation/checkpointed.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checkpoint/export_values.hpp>
#include <chunkmem/checkpoint/file_name_rule.hpp>
#include <chunkmem/checkpoint/import_values.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/io/posix_folder.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/early_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/split_updates.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>
#include <chunkmem/transfer/transfers.hpp>

#include <cstdint>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cm = chunkmem;
using namespace cm::literals;
using memory_type = cm::backend::host_arena;
using manager_type = cm::manager<memory_type>;

inline void start_page(cm::bytes device, cm::bytes host, cm::bytes chunk, void (*train_one_step)())
{
#include "start_page.inc"
  (void)need;
}
inline void rehearsal(manager_type& m, void (*train_one_step)(manager_type&))
{
#include "rehearsal.inc"
}
inline void sixteen_bits(memory_type& memory)
{
#include "sixteen_bits.inc"
  (void)w, (void)scale, (void)pool;
}
inline void sixteen_bit_values(manager_type& m, const cm::tensor<cm::bf16>& w)
{
#include "sixteen_bit_values.inc"
  (void)back, (void)half, (void)bits;
}
inline int early_updates(manager_type& m, cm::optimizer::adam& adam, cm::optimizer::thread_pool& pool, int steps,
                         void (*pass_through_layers)(manager_type&))
{
  int skipped = 0;
#include "early_updates.inc"
  return skipped;
}
using split_manager = cm::manager<memory_type, cm::placement::update_share>;
template <class Step>
void split_updates(split_manager& m, cm::optimizer::thread_pool& pool, int steps, Step train_step)
{
#include "split_updates.inc"
  (void)need, (void)found;
}
inline void several_ranks(memory_type& memory, cm::collective::local_threads& ranks, cm::optimizer::adam& adam)
{
#include "ranks.inc"
}
inline void late_updates_over_ranks(cm::sharded_model<memory_type, cm::collective::local_threads>& m,
                                    cm::optimizer::adam& adam, cm::optimizer::thread_pool& pool)
{
#include "late_ranks.inc"
}
inline void first_values(cm::sharded_model<memory_type, cm::collective::local_threads>& m,
                         std::span<const cm::tensor<float>> weights, float (*random)())
{
#include "first_values.inc"
}
inline void checkpoints(manager_type& m, const cm::tensor<float>& w, cm::optimizer::adam& adam,
                        cm::optimizer::loss_scale& scale, std::uint64_t& cursor)
{
#include "checkpoints.inc"
  (void)found;
}
inline void partial_load(manager_type& m, cm::io::posix_folder& folder)
{
#include "partial_load.inc"
}
inline void foreign_names(manager_type& m, cm::io::posix_folder& folder)
{
#include "foreign_names.inc"
}
namespace policies {
#include "policies.inc"
mine* first = nullptr;
}  // namespace policies
inline void errors(const manager_type& m)
{
  try {
    m.residency();
  }
#include "errors.inc"
}
using network_type = cm::activation::checkpointed<manager_type>;
using block_type = network_type::block_type;
template <class Set, class Print>
void other_steps(manager_type& m, network_type& network, cm::tensor<float> output, std::uint64_t steps, Set set_slope,
                 Print print_accuracy)
{
#include "other_steps.inc"
}
template <class Contrast>
void instances(manager_type& m, network_type& siamese, block_type& last, cm::tensor<float> output, std::uint64_t step,
               Contrast contrast)
{
#include "instances.inc"
}
template <class Concatenate>
void skips(block_type& encoder, block_type& decoder, std::uint64_t rows, std::uint64_t width, Concatenate concatenate)
{
#include "skips.inc"
}
inline void active_rows(network_type& network, block_type& layer, std::uint64_t rows, std::uint64_t width,
                        std::uint64_t count, std::uint64_t step)
{
#include "active_rows.inc"
  (void)hidden, (void)mean;
}
inline void new_plans(network_type& network, cm::bytes room)
{
#include "new_plans.inc"
}
