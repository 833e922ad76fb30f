# SPDX-License-Identifier: Apache-2.0
# Every way to get chunkmem, each with the same program. Two are in every run; ways that do the same in another form,
# and those whose tool is rarely installed, have the label slow.
set(CHUNKMEM_CPM_FILE "" CACHE FILEPATH "CPM.cmake, for a test")
find_program(CHUNKMEM_CONAN NAMES conan DOC "Conan 2, for a test")
mark_as_advanced(CHUNKMEM_CPM_FILE CHUNKMEM_CONAN)
set(ways find_package add_subdirectory fetch_content cpm conan vcpkg pkg_config plain_include cuda)
set(needs_install find_package pkg_config cuda)
foreach(way IN LISTS ways)
  if(way IN_LIST needs_install AND NOT CHUNKMEM_INSTALL)
    continue()
  endif()
  set(slow slow)
  if(way MATCHES "^(find_package|vcpkg)$")
    set(slow "")
  endif()
  chunkmem_test(consumers.${way} TIMEOUT 600 LABELS ${slow}
                COMMAND ${CMAKE_COMMAND} -DNAME=${way} -DROOT=${PROJECT_SOURCE_DIR} -DBUILD=${PROJECT_BINARY_DIR} -DVERSION=${PROJECT_VERSION}
                        -DGENERATOR=${CMAKE_GENERATOR} -DCOMPILER=${CMAKE_CXX_COMPILER} "-DNVCC=${chunkmem_nvcc}" "-DCONAN=${CHUNKMEM_CONAN}"
                        "-DCPM_FILE=${CHUNKMEM_CPM_FILE}" -P "${CMAKE_CURRENT_LIST_DIR}/run.cmake")
  set_tests_properties(consumers.${way} PROPERTIES SKIP_REGULAR_EXPRESSION "SKIPPED: " FIXTURES_SETUP consumers)
endforeach()

# Figure consumers.passed, where all ways could be tried.
chunkmem_test(consumers.passed LABELS slow figures
              COMMAND ${CMAKE_COMMAND} "-DWAYS=${ways}" -DBUILD=${PROJECT_BINARY_DIR} -P "${CMAKE_CURRENT_LIST_DIR}/count.cmake")
set_tests_properties(consumers.passed PROPERTIES SKIP_REGULAR_EXPRESSION "SKIPPED: " FIXTURES_REQUIRED consumers)
