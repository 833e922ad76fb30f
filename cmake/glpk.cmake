# SPDX-License-Identifier: Apache-2.0
# For the ctest.cmake of a folder whose programs use the solver GLPK: its library, or the reason to skip the folder.
find_path(CHUNKMEM_GLPK_INCLUDE glpk.h)
find_library(CHUNKMEM_GLPK_LIBRARY glpk)
mark_as_advanced(CHUNKMEM_GLPK_INCLUDE CHUNKMEM_GLPK_LIBRARY)
if(NOT CHUNKMEM_GLPK_INCLUDE OR NOT CHUNKMEM_GLPK_LIBRARY)
  set(chunkmem_why_not "no glpk.h and libglpk were found (Debian: apt-get install libglpk-dev)")
else()
  chunkmem_try(chunkmem_why_not glpk INCLUDES "${CHUNKMEM_GLPK_INCLUDE}" LIBRARIES "${CHUNKMEM_GLPK_LIBRARY}" PROGRAM [[
#include <glpk.h>
int main() { return glp_version() == nullptr; }
]])
  set(chunkmem_libraries "${CHUNKMEM_GLPK_LIBRARY}")
endif()
get_property(is_summarized GLOBAL PROPERTY CHUNKMEM_GLPK_SUMMARIZED)
if(NOT is_summarized) # by the first of these folders
  set_property(GLOBAL PROPERTY CHUNKMEM_GLPK_SUMMARIZED ON)
  if(chunkmem_why_not)
    chunkmem_summarize(glpk "off" "${chunkmem_why_not}")
  else()
    chunkmem_summarize(glpk "on " "${CHUNKMEM_GLPK_LIBRARY}")
  endif()
endif()
