// expect: element<.*double|double.*element|constraints not satisfied
// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/tensor.hpp>

#ifdef CHUNKMEM_COMPILES
chunkmem::tensor<float> weight;
#else
chunkmem::tensor<double> weight;
#endif
