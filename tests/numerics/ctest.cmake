# SPDX-License-Identifier: Apache-2.0
# These tests start threads: the thread sanitizer runs them.
set(chunkmem_labels threads)

# bits.cpp, built with flags that must not change a bit, by every compiler at hand; a test compares what the builds print.
if(NOT CHUNKMEM_SANITIZE)
  include("${CMAKE_CURRENT_LIST_DIR}/builds.cmake")
endif()
