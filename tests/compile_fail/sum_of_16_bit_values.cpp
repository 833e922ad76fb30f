// expect: no match for .operator\+|invalid operands
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/dtype.hpp>

#ifdef CHUNKMEM_COMPILES
const auto sum = static_cast<float>(chunkmem::bf16{1.0F}) + static_cast<float>(chunkmem::bf16{2.0F});
#else
const auto sum = chunkmem::bf16{1.0F} + chunkmem::bf16{2.0F};
#endif
