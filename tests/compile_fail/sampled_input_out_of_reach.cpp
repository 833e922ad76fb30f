// expect: name what launches kernels on its streams as the third argument
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/sampled_input.hpp>

struct far_manager {
  struct engine_type {
#ifdef CHUNKMEM_COMPILES
    static constexpr bool host_addressable = true;
#else
    static constexpr bool host_addressable = false;
#endif
  };
};
constexpr auto size = sizeof(chunkmem::activation::sampled_input<far_manager, float>);
