# SPDX-License-Identifier: Apache-2.0
# The compilers that the project is tested with; an older one gets a sentence instead of a page of errors.
set(oldest_GNU 12)
set(oldest_Clang 16)
if(DEFINED oldest_${CMAKE_CXX_COMPILER_ID} AND
   CMAKE_CXX_COMPILER_VERSION VERSION_LESS oldest_${CMAKE_CXX_COMPILER_ID})
  message(FATAL_ERROR "chunkmem: ${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}; "
          "needed is g++ 12 or clang 16 or newer (choose one with -DCMAKE_CXX_COMPILER=...)")
endif()
