// expect: no matching (function|constructor)
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/dtype.hpp>

#ifdef CHUNKMEM_COMPILES
const chunkmem::bf16 weight = chunkmem::bf16::from_bits(0x3F80);
#else
const chunkmem::bf16 weight{0x3F80};
#endif
