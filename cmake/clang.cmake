# SPDX-License-Identifier: Apache-2.0
# Toolchain of the sanitizer presets: the oldest supported clang, or else the newest one found.
if(NOT CMAKE_CXX_COMPILER)
  find_program(chunkmem_clang NAMES clang++-16 clang++-19 clang++-18 clang++-17 clang++)
  if(NOT chunkmem_clang)
    message(FATAL_ERROR "chunkmem: this preset needs clang 16 or newer and none was found "
            "(Debian 12: apt-get install clang-16 libclang-rt-16-dev; Debian 13: clang-19 libclang-rt-19-dev)")
  endif()
  execute_process(COMMAND ${chunkmem_clang} -dumpversion OUTPUT_VARIABLE chunkmem_clang_version
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(chunkmem_clang_version VERSION_LESS 16)
    message(FATAL_ERROR "chunkmem: this preset needs clang 16 or newer; ${chunkmem_clang} is ${chunkmem_clang_version}")
  endif()
  set(CMAKE_CXX_COMPILER "${chunkmem_clang}")
endif()
