# SPDX-License-Identifier: Apache-2.0
# Part divergence: trainings that leave their records at random moments. Under sanitizers the folder's own program does what they do.
set(chunkmem_joint numbers)
set(chunkmem_unsanitized ON)
chunkmem_part(divergence "divergence.*")
set(chunkmem_joint "")
set(chunkmem_unsanitized OFF)

# These tests start threads: the thread sanitizer runs them. Some make figures.
set(chunkmem_labels threads figures)

# A bug that only a header can have: a copy of the library in which a chunk with one pin may leave the device, in a namespace of
# its own. It is made while configuring, since it has to follow the headers.
set(mutant "${PROJECT_BINARY_DIR}/generated/lost_pin")
set(header chunkmem/manager/chunk_table.hpp)
set(mutated "${PROJECT_SOURCE_DIR}/include/${header}")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${mutated}")
file(READ "${mutated}" text)
string(REPLACE "|| chunk_state.pins[where] > 0) return;" "|| chunk_state.pins[where] > 1) return;" broken "${text}")
if(broken STREQUAL text)
  message(FATAL_ERROR "chunkmem: ${mutated} has no line that tests/differential could break")
endif()
file(CONFIGURE OUTPUT "${mutant}/${header}" CONTENT "${broken}" @ONLY)

file(GLOB differential_parts CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cpp")
list(FILTER differential_parts EXCLUDE REGEX "_test[.]cpp$")
if(CHUNKMEM_SANITIZE) # bugs that are worlds of their own are found without
  list(FILTER differential_parts EXCLUDE REGEX "on_(lost_pin|lenient_rules)[.]cpp$")
endif()
add_library(differential_parts OBJECT EXCLUDE_FROM_ALL ${differential_parts})
chunkmem_flags(differential_parts)
chunkmem_compile_as_one(differential_parts)
target_include_directories(differential_parts PRIVATE "${PROJECT_SOURCE_DIR}/tests")
# These two run for a moment only: not worth the time of an optimiser.
set_source_files_properties("${CMAKE_CURRENT_LIST_DIR}/on_lost_pin.cpp" "${CMAKE_CURRENT_LIST_DIR}/on_lenient_rules.cpp"
                            PROPERTIES COMPILE_OPTIONS -O0)
set_source_files_properties("${CMAKE_CURRENT_LIST_DIR}/on_lost_pin.cpp" PROPERTIES
                            INCLUDE_DIRECTORIES "${mutant}" COMPILE_DEFINITIONS v0=v0_lost_pin)
set(chunkmem_libraries differential_parts)
