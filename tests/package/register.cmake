# What users do with the package: find it installed, add it as a folder, ask for a version it does not have.
if(CHUNKMEM_INSTALL)
  chunkmem_test(package TIMEOUT 300
                COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DBUILD=${PROJECT_BINARY_DIR}
                        -DVERSION=${PROJECT_VERSION} -DGENERATOR=${CMAKE_GENERATOR} -DCOMPILER=${CMAKE_CXX_COMPILER}
                        -P "${CMAKE_CURRENT_LIST_DIR}/check.cmake")
endif()
