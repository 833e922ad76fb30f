# SPDX-License-Identifier: Apache-2.0
# Ranks under mpirun that are killed while they save: see tests/collective_mpi, whose settings these are. Only files are
# read back, so no sanitizer is needed.
set(chunkmem_own_programs ON)
if(CHUNKMEM_SANITIZE)
  return()
endif()
set(why "")
if(chunkmem_why_no_mpi)
  set(why "${chunkmem_why_no_mpi}")
elseif(chunkmem_why_no_checkpoint)
  set(why "${chunkmem_why_no_checkpoint}")
elseif(NOT chunkmem_mpi_launcher)
  set(why "no mpirun was found (Debian: apt-get install openmpi-bin)")
else()
  execute_process(COMMAND ${chunkmem_mpi_launcher} --version OUTPUT_VARIABLE made ERROR_QUIET)
  if(NOT made MATCHES "Open MPI|open-mpi") # only its launcher leaves the others alive
    set(why "its launcher ends all ranks with the first: ${chunkmem_mpi_launcher}")
  endif()
endif()
if(why)
  chunkmem_skipped_test(rank_kills "${why}" LABELS mpi)
  return()
endif()

chunkmem_program(test_rank_kills "${CMAKE_CURRENT_LIST_DIR}/kills_test.cpp")
target_link_libraries(test_rank_kills PRIVATE chunkmem_test_main)
target_precompile_headers(test_rank_kills REUSE_FROM chunkmem_test_precompiled)
chunkmem_program(mpi_rank_that_saves "${CMAKE_CURRENT_LIST_DIR}/rank_that_saves.cpp")
target_compile_options(mpi_rank_that_saves PRIVATE -O0) # it compiles longer than it computes
target_include_directories(mpi_rank_that_saves PRIVATE "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(mpi_rank_that_saves PRIVATE chunkmem::mpi chunkmem::checkpoint)
add_dependencies(test_rank_kills mpi_rank_that_saves)
chunkmem_makes_figures(test_rank_kills)
chunkmem_test(rank_kills LABELS mpi figures TIMEOUT 600 COMMAND test_rank_kills "~[.]")
chunkmem_test(rank_kills.slow LABELS slow mpi TIMEOUT 7200 COMMAND test_rank_kills "[.slow]")
foreach(name IN ITEMS rank_kills rank_kills.slow)
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm=isolated
               OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_btl_base_warn_component_unused=0
               "CHUNKMEM_MPIRUN=${chunkmem_mpi_launcher} --oversubscribe --bind-to none" "CHUNKMEM_MPI_RANK=$<TARGET_FILE:mpi_rank_that_saves>")
endforeach()
