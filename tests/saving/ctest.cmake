# SPDX-License-Identifier: Apache-2.0
# The queue in virtual time and the bound lie beside the bench that uses them. The real queue beside them needs xxHash; tests/checkpoint
# has its sanitizers.
set(chunkmem_unsanitized ON)
set(chunkmem_why_not "${chunkmem_why_no_checkpoint}")
set(chunkmem_compile_options "-I${PROJECT_SOURCE_DIR}/bench" -O1 -D_GLIBCXX_ASSERTIONS)
if(TARGET chunkmem::checkpoint)
  set(chunkmem_libraries chunkmem::checkpoint)
endif()
