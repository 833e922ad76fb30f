# SPDX-License-Identifier: Apache-2.0
# LibTorch, only for the example libtorch_gpt and its tests: the library does not need it.
include("${PROJECT_SOURCE_DIR}/cmake/packages.cmake")

# chunkmem_find_torch(<why_not>): makes the target libtorch_gpt_parts, the example's headers and all that they need, or
# sets <why_not> to the reason why there is none. Debian: apt-get install libtorch-dev; for the PyTorch of a Python:
#   -DCMAKE_PREFIX_PATH=$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)')
function(chunkmem_find_torch why_not)
  get_property(is_known GLOBAL PROPERTY CHUNKMEM_WHY_NO_TORCH SET)
  if(NOT is_known)
    chunkmem_look_for_torch(missing)
    set_property(GLOBAL PROPERTY CHUNKMEM_WHY_NO_TORCH "${missing}")
  endif()
  get_property(missing GLOBAL PROPERTY CHUNKMEM_WHY_NO_TORCH)
  set(${why_not} "${missing}" PARENT_SCOPE)
endfunction()

function(chunkmem_look_for_torch why_not)
  set(${why_not} "" PARENT_SCOPE)
  if(CHUNKMEM_SANITIZE)
    set(${why_not} "LibTorch itself is not built with sanitizers, and its tests were not tried with them" PARENT_SCOPE)
    return()
  endif()
  # In a function, so that the compiler flags that Torch sets for CUDA stay here, and its many messages are hidden.
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
  set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
  chunkmem_rehearse(missing Torch "\${TORCH_LIBRARIES}")
  if(NOT missing)
    find_package(Torch QUIET)
  endif()
  set(options "")
  set(with "CPU")
  if(TARGET torch_cuda AND TARGET chunkmem::cuda)
    set(options LINKER:--allow-shlib-undefined) # of libraries that Python keeps in other folders
    set(with "CUDA")
  endif()
  if(missing MATCHES "^no ")
    set(missing "no LibTorch was found (Debian: apt-get install libtorch-dev, or CMAKE_PREFIX_PATH)")
  elseif(NOT missing AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND Torch_VERSION VERSION_LESS 2)
    set(missing "the headers of LibTorch ${Torch_VERSION} do not compile with clang as C++20 (2.0 or newer is needed)")
  elseif(NOT missing)
    chunkmem_try(missing torch INCLUDES ${TORCH_INCLUDE_DIRS} LIBRARIES ${TORCH_LIBRARIES} LINK_OPTIONS ${options}
                 PROGRAM [[
#include <torch/csrc/autograd/variable.h>
int main() { return torch::autograd::Variable{}.defined() ? 1 : 0; }
]])
  endif()
  if(missing)
    set(${why_not} "${missing}" PARENT_SCOPE)
    return()
  endif()
  add_library(libtorch_gpt_parts INTERFACE)
  target_include_directories(libtorch_gpt_parts INTERFACE "${PROJECT_SOURCE_DIR}/examples/libtorch_gpt"
                                                          "${PROJECT_SOURCE_DIR}/examples/gpt")
  target_include_directories(libtorch_gpt_parts SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  target_link_libraries(libtorch_gpt_parts INTERFACE ${TORCH_LIBRARIES})
  if(with STREQUAL "CUDA")
    target_link_libraries(libtorch_gpt_parts INTERFACE chunkmem::cuda)
    target_link_options(libtorch_gpt_parts INTERFACE ${options})
    target_compile_definitions(libtorch_gpt_parts INTERFACE LIBTORCH_GPT_HAS_CUDA)
  endif()
  set_property(GLOBAL PROPERTY CHUNKMEM_TORCH "${Torch_VERSION}, ${with}")
endfunction()
