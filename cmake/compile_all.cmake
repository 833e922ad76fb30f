# SPDX-License-Identifier: Apache-2.0
# Compiles all CUDA code for every supported architecture.
#   cmake -DROOT= -DBUILD= -DGENERATOR= -DCOMPILER= -DNVCC= -DNVCC_VERSION= -P compile_all.cmake
cmake_minimum_required(VERSION 3.25)
set(architectures "75\;80\;86\;89\;90")
if(NVCC_VERSION VERSION_GREATER_EQUAL 12.8)
  string(APPEND architectures "\;100")
endif()

function(run)
  execute_process(COMMAND ${CMAKE_COMMAND} ${ARGN} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}\nreturned ${status}")
  endif()
endfunction()

run(-S "${ROOT}" -B "${BUILD}" -G ${GENERATOR} "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CUDA_COMPILER=${NVCC}"
    "-DCMAKE_CUDA_ARCHITECTURES=${architectures}" -DCMAKE_BUILD_TYPE=Release -DCHUNKMEM_WERROR=ON
    -DCHUNKMEM_WITH_CUDA=ON -DCHUNKMEM_BUILD_EXAMPLES=OFF)
run(--build "${BUILD}" --target cuda_units cuda_programs compiled_kernels --parallel 2)
