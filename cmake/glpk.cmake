# For the ctest.cmake of a folder whose programs ask GLPK, the solver: its library, or why the folder is skipped.
find_path(CHUNKMEM_GLPK_INCLUDE glpk.h)
find_library(CHUNKMEM_GLPK_LIBRARY glpk)
mark_as_advanced(CHUNKMEM_GLPK_INCLUDE CHUNKMEM_GLPK_LIBRARY)
if(CHUNKMEM_GLPK_INCLUDE AND CHUNKMEM_GLPK_LIBRARY)
  set(chunkmem_libraries "${CHUNKMEM_GLPK_LIBRARY}")
else()
  set(chunkmem_why_not "no glpk.h and libglpk were found (Debian: apt-get install libglpk-dev)")
endif()
