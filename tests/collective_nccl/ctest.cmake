# SPDX-License-Identifier: Apache-2.0
# NCCL itself: compiled and linked also where no GPU can run it. A program that needs a GPU is a test of its own.
set(chunkmem_why_not "${chunkmem_why_no_nccl}")
if(NOT chunkmem_why_not)
  set(chunkmem_libraries chunkmem::nccl)
  chunkmem_test(collective_nccl.gpu LABELS gpu TIMEOUT 300 COMMAND test_collective_nccl "[.gpu]")
  set_tests_properties(collective_nccl.gpu PROPERTIES RESOURCE_LOCK gpu)
endif()
