// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

namespace chunkmem::inline v0 {

/// The default manager on host memory, compiled once by the target `chunkmem::compiled`.
///
/// Include this header before the first use of `manager<backend::host_arena>`, and link the target: each of your
/// sources then compiles faster, and the program is the same. Without the target the linker misses members of
/// `basic_manager`. A trainer with Adam or SGD includes <chunkmem/optimizer/compiled_step.hpp> instead.
///
///     find_package(chunkmem REQUIRED COMPONENTS compiled)
///     target_link_libraries(trainer PRIVATE chunkmem::compiled)
///
/// The headers alone stay the default. A manager of other policies is compiled once in the same way: these
/// declarations with its types in a header of yours, and the same without `extern` in one source.
/// Good where several sources use the manager, or one source is compiled often. Poor in a program of one source that
/// is compiled once: the library has to be compiled too. Figure: `house.compile_o0_over_before_compiled`.
using compiled_manager = manager<backend::host_arena>;

namespace detail {
using compiled_builder =
    model_builder<compiled_manager::engine_type, size_class_layout, placement::optimizer_on_host, gradient::separate>;
}

extern template class chunk_cache<eviction::belady>;
extern template class chunk_cache<eviction::by_retention>;
extern template class replay<eviction::belady>;
extern template class replay<eviction::by_retention>;
extern template class iteration_planner<eviction::belady, transfer::lookahead>;
extern template class copy_engine<backend::host_arena, copy_mover, trace::null_sink, checks::none>;
extern template class schedule<eviction::belady, transfer::lookahead, compiled_manager::engine_type::copies_type>;
extern template class engine<backend::host_arena, training_rules, eviction::belady, transfer::lookahead, copy_mover,
                             trace::null_sink, checks::none>;
extern template class model_builder<compiled_manager::engine_type, size_class_layout, placement::optimizer_on_host,
                                    gradient::separate>;
extern template class gradient_store<compiled_manager::engine_type, detail::compiled_builder>;
extern template class update_session<compiled_manager::engine_type, detail::compiled_builder>;
extern template class content_session<compiled_manager::engine_type, detail::compiled_builder>;
extern template class basic_manager<backend::host_arena, training_rules, size_class_layout, eviction::belady,
                                    placement::optimizer_on_host, gradient::separate, transfer::lookahead, copy_mover,
                                    trace::null_sink, checks::none>;

}  // namespace chunkmem::inline v0
