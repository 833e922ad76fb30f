# SPDX-License-Identifier: Apache-2.0
# Tensors come back from threads of their consumers; nothing else here starts one.
set(chunkmem_labels threads)
if("thread" IN_LIST CHUNKMEM_SANITIZE)
  set(chunkmem_unsanitized ON)
  set(chunkmem_sanitized_files "dlpack_test[.]cpp")
endif()

# NumPy, and PyTorch where it is there, look at what is lent, and theirs fill weights. The library that Python opens is built by
# the test before.
set(why_no_exchange "")
if(chunkmem_why_no_dlpack)
  set(why_no_exchange "${chunkmem_why_no_dlpack}")
else()
  execute_process(COMMAND "${CHUNKMEM_PYTHON}" "${CMAKE_CURRENT_LIST_DIR}/exchange_dlpack.py" ask RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed)
    set(why_no_exchange "${CHUNKMEM_PYTHON} has no numpy (Debian: apt-get install python3-numpy; CHUNKMEM_PYTHON may name another)")
  endif()
endif()
if(CHUNKMEM_SANITIZE)
  return()
elseif(why_no_exchange)
  chunkmem_skipped_test(interop.python "${why_no_exchange}" LABELS slow)
else()
  add_library(interop_python MODULE EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/python_module.cpp")
  chunkmem_flags(interop_python)
  target_include_directories(interop_python PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(interop_python PRIVATE chunkmem::dlpack)
  chunkmem_test(interop.python.build LABELS slow COMMAND ${CMAKE_COMMAND} --build "${PROJECT_BINARY_DIR}" --target interop_python)
  set_tests_properties(interop.python.build PROPERTIES FIXTURES_SETUP interop_python RESOURCE_LOCK build)
  chunkmem_test(interop.python LABELS slow
                COMMAND "${CHUNKMEM_PYTHON}" "${CMAKE_CURRENT_LIST_DIR}/exchange_dlpack.py" $<TARGET_FILE:interop_python>)
  set_tests_properties(interop.python PROPERTIES FIXTURES_REQUIRED interop_python)
endif()
