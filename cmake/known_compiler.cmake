# SPDX-License-Identifier: Apache-2.0
# A second build folder, made by the same CMake and with the same compiler, need not detect and test the compiler again.

# chunkmem_known_compiler(<from> <to> [<language>...]): copies the detected properties of the compilers of these
# languages from <from> to the build folder <to>, before CMake has used it. CMake detects a compiler itself if <from>
# has no file about it.
function(chunkmem_known_compiler from to)
  set(known "CMakeFiles/${CMAKE_VERSION}")
  foreach(file IN ITEMS CMakeSystem ${ARGN})
    if(NOT file STREQUAL "CMakeSystem")
      set(file "CMake${file}Compiler")
    endif()
    if(EXISTS "${from}/${known}/${file}.cmake" AND NOT EXISTS "${to}/${known}/${file}.cmake")
      file(COPY "${from}/${known}/${file}.cmake" DESTINATION "${to}/${known}")
    endif()
  endforeach()
endfunction()
