# SPDX-License-Identifier: Apache-2.0
# Figures: every program that makes some writes an array of {name, value, unit, relation, bound, command} to the file
# <program>.json in the folder that the environment variable CHUNKMEM_FIGURES names. Its ctest has the label figures.
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/figures")

# Programs that a ctest with the label figures runs; `run_bench` builds these and no others.
function(chunkmem_makes_figures program)
  set_property(GLOBAL APPEND PROPERTY CHUNKMEM_FIGURE_PROGRAMS ${program})
endfunction()

function(chunkmem_add_figure_targets)
  get_property(programs GLOBAL PROPERTY CHUNKMEM_FIGURE_PROGRAMS)
  set(script "${PROJECT_SOURCE_DIR}/cmake/print_figures.cmake")
  add_custom_target(print_figures USES_TERMINAL VERBATIM
                    COMMAND ${CMAKE_COMMAND} -DFIGURES=${PROJECT_BINARY_DIR}/figures -P ${script})
  add_custom_target(run_bench USES_TERMINAL VERBATIM
                    COMMAND ${CMAKE_COMMAND} -DFIGURES=${PROJECT_BINARY_DIR}/figures -DRUN=${PROJECT_BINARY_DIR}
                            -DCTEST=${CMAKE_CTEST_COMMAND} -P ${script})
  if(programs)
    add_dependencies(run_bench ${programs})
  endif()
endfunction()
