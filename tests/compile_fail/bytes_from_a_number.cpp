// expect: conver(t|sion)
#include <chunkmem/core/bytes.hpp>

#ifdef CHUNKMEM_COMPILES
chunkmem::bytes size = chunkmem::bytes{4096};
#else
chunkmem::bytes size = 4096;
#endif
