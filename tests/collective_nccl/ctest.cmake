# NCCL itself: compiled and linked also where no GPU can run it.
set(chunkmem_labels gpu)
set(chunkmem_why_not "${chunkmem_why_no_nccl}")
if(NOT chunkmem_why_not)
  set(chunkmem_libraries chunkmem::nccl)
endif()
