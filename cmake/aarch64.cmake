# SPDX-License-Identifier: Apache-2.0
# Toolchain of the preset aarch64: Debian's cross compiler for 64-bit Arm. Its programs run under qemu-user on the building machine.
# Catch2, JSON and xxHash are headers, and those of the building machine serve.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
find_program(chunkmem_aarch64_compiler NAMES aarch64-linux-gnu-g++)
find_program(chunkmem_qemu NAMES qemu-aarch64)
if(NOT chunkmem_aarch64_compiler OR NOT chunkmem_qemu)
  message(FATAL_ERROR "chunkmem: this preset needs aarch64-linux-gnu-g++ and qemu-aarch64 "
          "(Debian: apt-get install g++-aarch64-linux-gnu qemu-user)")
endif()
set(CMAKE_CXX_COMPILER "${chunkmem_aarch64_compiler}")
set(CMAKE_CROSSCOMPILING_EMULATOR "${chunkmem_qemu};-L;/usr/aarch64-linux-gnu")
