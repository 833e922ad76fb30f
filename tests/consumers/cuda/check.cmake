# SPDX-License-Identifier: Apache-2.0
# The same program as a .cu file, with the component cuda.
if(NOT NVCC)
  skip("no nvcc was found")
endif()
install_to("${scratch}/prefix")
build_by_cmake("-DCMAKE_PREFIX_PATH=${scratch}/prefix" "-DCMAKE_CUDA_COMPILER=${NVCC}")
