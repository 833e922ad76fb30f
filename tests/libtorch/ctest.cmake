# SPDX-License-Identifier: Apache-2.0
# The bridge of examples/libtorch_gpt, and the statements of docs/integrating.md and docs/interop.md on LibTorch, where
# it is installed.
include("${PROJECT_SOURCE_DIR}/cmake/torch.cmake")
chunkmem_find_torch(chunkmem_why_not)
if(NOT chunkmem_why_not)
  set(chunkmem_why_not "${chunkmem_why_no_checkpoint}")
endif()
set(chunkmem_libraries libtorch_gpt_parts chunkmem::checkpoint)
set(extract "${PROJECT_SOURCE_DIR}/tests/pages/extract.py")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/docs/integrating.md" "${PROJECT_SOURCE_DIR}/docs/interop.md"
             "${extract}")
execute_process(COMMAND "${CHUNKMEM_PYTHON}" -B "${extract}" --libtorch --out "${PROJECT_BINARY_DIR}/generated/integrating_libtorch.hpp"
                COMMAND_ERROR_IS_FATAL ANY)
set(chunkmem_compile_options "-I${PROJECT_BINARY_DIR}/generated")
