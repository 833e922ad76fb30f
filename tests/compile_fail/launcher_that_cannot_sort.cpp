// expect: a third argument that is no sampling_launcher
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/sampled_input.hpp>

struct any_manager {
  struct engine_type {
    static constexpr bool host_addressable = true;
  };
};
struct launcher_alone {
  static constexpr unsigned long temporary_bytes(unsigned long) { return 0; }
};
#ifdef CHUNKMEM_COMPILES
using launcher = chunkmem::activation::by_calling_thread;
#else
using launcher = launcher_alone;
#endif
constexpr auto size = sizeof(chunkmem::activation::sampled_input<any_manager, float, launcher>);
