# Integer programs come from a solver that is kept by others: without it these tests are skipped.
find_path(CHUNKMEM_GLPK_INCLUDE glpk.h)
find_library(CHUNKMEM_GLPK_LIBRARY glpk)
mark_as_advanced(CHUNKMEM_GLPK_INCLUDE CHUNKMEM_GLPK_LIBRARY)
if(CHUNKMEM_GLPK_INCLUDE AND CHUNKMEM_GLPK_LIBRARY)
  set(chunkmem_libraries "${CHUNKMEM_GLPK_LIBRARY}")
else()
  set(chunkmem_why_not "no glpk.h and libglpk were found (Debian: apt-get install libglpk-dev)")
endif()
# The traces and the program are those of the bench.
set(chunkmem_compile_options "-I${PROJECT_SOURCE_DIR}/bench" -O1)
