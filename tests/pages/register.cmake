# The examples of docs/policies, docs/integrating.md and docs/interop.md are compiled and run, and what the former quote is compared with what the library says.
file(GLOB pages CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/docs/policies/*.md" "${PROJECT_SOURCE_DIR}/docs/integrating.md" "${PROJECT_SOURCE_DIR}/docs/interop.md")
set(extracted "${PROJECT_BINARY_DIR}/generated/pages.cpp")
add_custom_command(OUTPUT "${extracted}" DEPENDS ${pages} "${CMAKE_CURRENT_LIST_DIR}/extract.cmake" VERBATIM
                   COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DOUT=${extracted}
                           -P "${CMAKE_CURRENT_LIST_DIR}/extract.cmake")
chunkmem_program(test_pages "${extracted}")
target_link_libraries(test_pages PRIVATE chunkmem_test_main)
chunkmem_test(pages COMMAND test_pages)
chunkmem_test(pages.sentences COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR}
                                      -P "${CMAKE_CURRENT_LIST_DIR}/sentences.cmake")
