# The tree keeps its rules, and the checker of the rules notices each violation.
set(checker "${PROJECT_SOURCE_DIR}/cmake/check_layout.cmake")
chunkmem_test(layout.tree COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -P "${checker}")
chunkmem_test(layout.words COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR}
                                   -P "${PROJECT_SOURCE_DIR}/cmake/check_words.cmake")
chunkmem_test(layout.checkers COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR}
                                      -DSCRATCH=${PROJECT_BINARY_DIR}/layout
                                      -P "${CMAKE_CURRENT_LIST_DIR}/check_the_checkers.cmake")
