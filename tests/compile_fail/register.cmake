# Every promised compile-time message: see check.sh.
chunkmem_test(compile_fail TIMEOUT 600
              COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/check.sh" "${PROJECT_SOURCE_DIR}" "${CMAKE_CXX_COMPILER}")
chunkmem_test(compile_fail.older_standard
              COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/older_standard.sh" "${PROJECT_SOURCE_DIR}" "${CMAKE_CXX_COMPILER}")
