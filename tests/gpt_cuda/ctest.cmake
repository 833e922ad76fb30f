# SPDX-License-Identifier: Apache-2.0
# The GPT of the GPU on a GPU that is threads: its host logic, and the source of its kernels.
set(gpt "${PROJECT_SOURCE_DIR}/examples/gpt")
add_library(gpt_cuda_host OBJECT EXCLUDE_FROM_ALL "${gpt}/display.cpp" "${gpt}/size_text.cpp" "${gpt}/text.cpp")
chunkmem_flags(gpt_cuda_host)
target_compile_options(gpt_cuda_host PRIVATE "-DCHUNKMEM_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
set(chunkmem_compile_options "-I${PROJECT_SOURCE_DIR}/examples" "-I${gpt}")
set(chunkmem_libraries gpt_cuda_host)
set(chunkmem_unsanitized ON) # managers on a fake GPU have the sanitizers in tests/faults
