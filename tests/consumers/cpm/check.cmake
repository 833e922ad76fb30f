# SPDX-License-Identifier: Apache-2.0
if(NOT EXISTS "${CPM_FILE}")
  skip("no CPM.cmake (CHUNKMEM_CPM_FILE may name it)")
endif()
build_by_cmake("-DCPM_FILE=${CPM_FILE}" "-DCPM_chunkmem_SOURCE=${ROOT}")
