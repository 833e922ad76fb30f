# SPDX-License-Identifier: Apache-2.0
# Ranks that are processes: mpirun starts the program 1 to 4 times, and every rank runs the same cases.
set(chunkmem_own_programs ON)
if(CHUNKMEM_SANITIZE) # what MPI itself does with memory and threads is not ours to mend
  return()
elseif(chunkmem_why_no_mpi)
  chunkmem_skipped_test(collective_mpi "${chunkmem_why_no_mpi}" LABELS mpi)
  return()
elseif(NOT chunkmem_mpi_launcher)
  chunkmem_skipped_test(collective_mpi "no mpirun was found (Debian: apt-get install openmpi-bin)" LABELS mpi)
  return()
endif()

file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*_test.cpp")
chunkmem_program(test_collective_mpi ${sources})
chunkmem_compile_as_one(test_collective_mpi)
target_link_libraries(test_collective_mpi PRIVATE chunkmem_test_main chunkmem::mpi)
foreach(which IN ITEMS rank stage model)
  chunkmem_program(mpi_${which}_that_dies "${CMAKE_CURRENT_LIST_DIR}/${which}_that_dies.cpp")
  target_include_directories(mpi_${which}_that_dies PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(mpi_${which}_that_dies PRIVATE chunkmem::mpi)
endforeach()

chunkmem_mpi_command(chunkmem_mpi_run)
foreach(ranks RANGE 1 4)
  set(name collective_mpi.${ranks})
  chunkmem_test(${name} LABELS mpi TIMEOUT 120 COMMAND ${chunkmem_mpi_run} -np ${ranks} $<TARGET_FILE:test_collective_mpi> "~[deaths]~[.]")
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ${chunkmem_mpi_environment})
endforeach()
chunkmem_test(collective_mpi.slow LABELS slow mpi TIMEOUT 7200
              COMMAND ${chunkmem_mpi_run} -np 3 $<TARGET_FILE:test_collective_mpi> "~[deaths][.]")
set_property(TEST collective_mpi.slow APPEND PROPERTY ENVIRONMENT ${chunkmem_mpi_environment})

# Ranks that are killed and stopped: only Open MPI's launcher leaves the others alive.
if("--oversubscribe" IN_LIST chunkmem_mpi_run)
  list(JOIN chunkmem_mpi_run " " words)
  chunkmem_test(collective_mpi.deaths LABELS mpi figures TIMEOUT 600 COMMAND test_collective_mpi "[deaths]~[.]")
  chunkmem_test(collective_mpi.deaths.slow LABELS slow mpi TIMEOUT 7200 COMMAND test_collective_mpi "[deaths][.]")
  foreach(name IN ITEMS collective_mpi.deaths collective_mpi.deaths.slow)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ${chunkmem_mpi_environment} "CHUNKMEM_MPIRUN=${words}"
                 "CHUNKMEM_MPI_RANK=$<TARGET_FILE:mpi_rank_that_dies>"
                 "CHUNKMEM_MPI_STAGE=$<TARGET_FILE:mpi_stage_that_dies>"
                 "CHUNKMEM_MPI_MODEL=$<TARGET_FILE:mpi_model_that_dies>")
  endforeach()
  chunkmem_makes_figures(test_collective_mpi)
  add_dependencies(test_collective_mpi mpi_rank_that_dies mpi_stage_that_dies mpi_model_that_dies)
else()
  chunkmem_skipped_test(collective_mpi.deaths "its launcher ends all ranks with the first: ${chunkmem_mpi_launcher}" LABELS mpi)
endif()
