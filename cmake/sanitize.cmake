# SPDX-License-Identifier: Apache-2.0
# Sanitizers for the programs of this tree; the library is header-only, so all of its code is instrumented too.
set(chunkmem_sanitize_flags "")
if(CHUNKMEM_SANITIZE)
  string(REPLACE ";" "," names "${CHUNKMEM_SANITIZE}")
  set(chunkmem_sanitize_flags -fsanitize=${names} -fno-sanitize-recover=all -fno-omit-frame-pointer)

  include(CheckCXXSourceRuns)
  string(REPLACE ";" " " CMAKE_REQUIRED_FLAGS "${chunkmem_sanitize_flags}")
  string(MAKE_C_IDENTIFIER "chunkmem_runs_with_${names}" runs)
  check_cxx_source_runs("int main() { return 0; }" ${runs})
  unset(CMAKE_REQUIRED_FLAGS)
  if(NOT ${runs})
    message(FATAL_ERROR "chunkmem: a program built with -fsanitize=${names} does not build or run here "
            "(its runtime may be missing: Debian 12 has it in libclang-rt-16-dev; the thread sanitizer of clang 16 and 17 "
            "also needs vm.mmap_rnd_bits at most 28)")
  endif()
endif()
