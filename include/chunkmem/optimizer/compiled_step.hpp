// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/executor.hpp>
#include <chunkmem/manager/compiled_manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Adam, SGD and their steps over `compiled_manager`, compiled once by the target `chunkmem::compiled`.
///
/// Include this header first, in place of `manager/compiled_manager.hpp`, and link the target:
///
///     find_package(chunkmem REQUIRED COMPONENTS compiled)
///     target_link_libraries(trainer PRIVATE chunkmem::compiled)
///
/// A step with your own optimizer or executor is compiled where it is called, as without this header. Figure:
/// `house.compiled_o2_over_plain`.
extern template class basic_adam<numerics::version_3>;
extern template class basic_sgd<numerics::version_3>;
extern template step_outcome step(compiled_manager&, adam&, const step_options&, const serial&,
                                  compiled_manager::place_type);
extern template step_outcome step(compiled_manager&, adam&, const step_options&, thread_pool&,
                                  compiled_manager::place_type);
extern template step_outcome step(compiled_manager&, sgd&, const step_options&, const serial&,
                                  compiled_manager::place_type);
extern template step_outcome step(compiled_manager&, sgd&, const step_options&, thread_pool&,
                                  compiled_manager::place_type);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
