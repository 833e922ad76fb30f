# SPDX-License-Identifier: Apache-2.0
# A build folder that is made beside another one, by the same CMake and with the same compiler, need not ask the compiler again
# what it is and whether it works.

# chunkmem_known_compiler(<from> <to> [<language>...]): the build folder <to>, before CMake has seen it, knows of the compilers of
# these languages what <from> does. CMake detects a compiler itself if <from> has no file about it.
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
