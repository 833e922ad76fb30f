// expect: element<.*double|double.*element|constraints not satisfied
#include <chunkmem/tensor/tensor.hpp>

#ifdef CHUNKMEM_COMPILES
chunkmem::tensor<float> weight;
#else
chunkmem::tensor<double> weight;
#endif
