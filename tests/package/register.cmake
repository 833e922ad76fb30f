# SPDX-License-Identifier: Apache-2.0
# The uses of the package: find it installed, add it as a folder, ask for a version it does not have.
if(CHUNKMEM_INSTALL)
  set(components "")
  foreach(component IN LISTS chunkmem_components)
    if(TARGET chunkmem::${component})
      list(APPEND components ${component})
    endif()
  endforeach()
  list(JOIN components "," components)
  chunkmem_test(package TIMEOUT 900
                COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DBUILD=${PROJECT_BINARY_DIR}
                        -DVERSION=${PROJECT_VERSION} -DGENERATOR=${CMAKE_GENERATOR} -DCOMPILER=${CMAKE_CXX_COMPILER}
                        "-DCOMPONENTS=${components}" "-DNVCC=${chunkmem_nvcc}"
                        -P "${CMAKE_CURRENT_LIST_DIR}/check.cmake")

  # Policies of another project, with the installed package.
  chunkmem_test(package.strangers TIMEOUT 900 LABELS slow
                COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DBUILD=${PROJECT_BINARY_DIR}
                        -DGENERATOR=${CMAKE_GENERATOR} -DCOMPILER=${CMAKE_CXX_COMPILER}
                        "-DCATCH2_INCLUDE=${CHUNKMEM_CATCH2_INCLUDE}" -P "${CMAKE_CURRENT_LIST_DIR}/third_party.cmake")
  set_tests_properties(package.strangers PROPERTIES COST 800) # long: it starts early
endif()
