// SPDX-License-Identifier: Apache-2.0
// The library chunkmem::compiled: compiles the declarations of chunkmem/optimizer/compiled_step.hpp.
#include <chunkmem/optimizer/compiled_step.hpp>

namespace chunkmem::inline v0 {

namespace optimizer {

template class basic_adam<numerics::version_3>;
template class basic_sgd<numerics::version_3>;
template step_outcome step(compiled_manager&, adam&, const step_options&, const serial&, compiled_manager::place_type);
template step_outcome step(compiled_manager&, adam&, const step_options&, thread_pool&, compiled_manager::place_type);
template step_outcome step(compiled_manager&, sgd&, const step_options&, const serial&, compiled_manager::place_type);
template step_outcome step(compiled_manager&, sgd&, const step_options&, thread_pool&, compiled_manager::place_type);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
