// expect: an embedding reads numbers of tokens
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/activation/sampled_input.hpp>

#include <cstdint>

struct any_manager {
  struct engine_type {
    static constexpr bool host_addressable = true;
  };
};
#ifdef CHUNKMEM_COMPILES
using input = float;
#else
using input = std::int32_t;
#endif
constexpr auto size = sizeof(chunkmem::activation::sampled_input<any_manager, input>);
