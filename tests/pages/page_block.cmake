# SPDX-License-Identifier: Apache-2.0
# chunkmem_page_block(<page> <text> <file>): writes the ```cpp block of a page that has this text to a file that a test includes where
# its statements belong. The block is compiled as it stands; its includes have to be there before.
function(chunkmem_page_block name text file)
  set(script "${PROJECT_SOURCE_DIR}/tests/pages/page_block.py")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${name}" "${script}")
  execute_process(COMMAND "${CHUNKMEM_PYTHON}" -B "${script}" --page ${name} "--text=${text}" --out "${file}"
                  COMMAND_ERROR_IS_FATAL ANY)
  set_property(GLOBAL APPEND PROPERTY chunkmem_blocks_of_${name} "${text}")
endfunction()

# chunkmem_expect_all_blocks(<page...>): every ```cpp block of these pages was asked for above, so that none goes uncompiled, or is a
# file of examples/.
function(chunkmem_expect_all_blocks)
  foreach(name IN LISTS ARGN)
    get_property(texts GLOBAL PROPERTY chunkmem_blocks_of_${name})
    list(LENGTH texts compiled)
    execute_process(COMMAND "${CHUNKMEM_PYTHON}" -B "${PROJECT_SOURCE_DIR}/tests/pages/page_block.py" --page ${name}
                            --expect ${compiled} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endfunction()
