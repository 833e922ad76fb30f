// expect: cannot convert .*bf16.* to .const float.|no viable conversion from .*bf16
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/dtype.hpp>

#ifdef CHUNKMEM_COMPILES
const float weight = static_cast<float>(chunkmem::bf16{1.5F});
#else
const float weight = chunkmem::bf16{1.5F};
#endif
