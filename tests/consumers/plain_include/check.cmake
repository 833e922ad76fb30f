# SPDX-License-Identifier: Apache-2.0
# One line of each compiler, for C++20 and 23, with the warnings that trainers treat as errors.
find_program(clang NAMES clang++-16 clang++-19 clang++-18 clang++-17)
set(compilers "${COMPILER}")
if(clang)
  list(APPEND compilers "${clang}")
endif()
set(warnings -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast -Werror)
foreach(compiler IN LISTS compilers)
  foreach(standard IN ITEMS 20 2b)
    run("${compiler}" -std=c++${standard} ${warnings} "-I${ROOT}/include" "${ROOT}/tests/consumers/program.cpp" -pthread -o "${scratch}/consumer")
    run("${scratch}/consumer")
  endforeach()
endforeach()
