# chunkmem_program(<name> <sources...>): one program of ours, with our warnings; nothing of this reaches a user.
function(chunkmem_flags target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wshadow $<$<BOOL:${CHUNKMEM_WERROR}>:-Werror>
                         ${chunkmem_sanitize_flags})
  target_link_options(${target} PRIVATE ${chunkmem_sanitize_flags})
  target_link_libraries(${target} PRIVATE chunkmem::chunkmem)
endfunction()

function(chunkmem_program name)
  add_executable(${name} ${ARGN})
  chunkmem_flags(${name})
endfunction()

# chunkmem_read_folder(<folder>): what a folder wants beyond the rule. Its optional ctest.cmake may set
#   chunkmem_labels            ctest labels of the folder, such as threads
#   chunkmem_compile_options   added last to the flags of the folder's program
#   chunkmem_libraries         linked to it
#   chunkmem_timeout           seconds that one run may take (600 where unset)
# and may add tests of its own.
macro(chunkmem_read_folder folder)
  set(chunkmem_labels "")
  set(chunkmem_compile_options "")
  set(chunkmem_libraries "")
  set(chunkmem_timeout 600)
  include("${folder}/ctest.cmake" OPTIONAL)
endmacro()

# chunkmem_test(<name> LABELS <label...> COMMAND <command...>): a ctest that knows where figures go, and that is shown as
# skipped when it prints a line that begins with SKIPPED and returns 4, the number Catch2 uses for "all cases skipped".
function(chunkmem_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "LABELS;COMMAND")
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" SKIP_RETURN_CODE 4
                       ENVIRONMENT "CHUNKMEM_FIGURES=${PROJECT_BINARY_DIR}/figures")
  if(arg_TIMEOUT)
    set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT})
  endif()
endfunction()
