// SPDX-License-Identifier: Apache-2.0
// The library chunkmem::compiled: compiles the declarations of chunkmem/manager/compiled_manager.hpp.
#include <chunkmem/manager/compiled_manager.hpp>

namespace chunkmem::inline v0 {

template class chunk_cache<eviction::belady>;
template class chunk_cache<eviction::by_retention>;
template class replay<eviction::belady>;
template class replay<eviction::by_retention>;
template class iteration_planner<eviction::belady, transfer::lookahead>;
template class copy_engine<backend::host_arena, copy_mover, trace::null_sink, checks::none>;
template class schedule<eviction::belady, transfer::lookahead, compiled_manager::engine_type::copies_type>;
template class engine<backend::host_arena, training_rules, eviction::belady, transfer::lookahead, copy_mover,
                      trace::null_sink, checks::none>;
template class model_builder<compiled_manager::engine_type, size_class_layout, placement::optimizer_on_host,
                             gradient::separate>;
template class gradient_store<compiled_manager::engine_type, detail::compiled_builder>;
template class update_session<compiled_manager::engine_type, detail::compiled_builder>;
template class content_session<compiled_manager::engine_type, detail::compiled_builder>;
template class basic_manager<backend::host_arena, training_rules, size_class_layout, eviction::belady,
                             placement::optimizer_on_host, gradient::separate, transfer::lookahead, copy_mover,
                             trace::null_sink, checks::none>;

}  // namespace chunkmem::inline v0
