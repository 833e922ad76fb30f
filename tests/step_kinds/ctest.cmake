# SPDX-License-Identifier: Apache-2.0
# Steps of all kinds, on backends of all kinds: the address sanitizer has their parts in other folders. One figure.
set(chunkmem_labels figures)
set(chunkmem_unsanitized ON)
set(chunkmem_why_not "${chunkmem_why_no_checkpoint}")

if(NOT CHUNKMEM_SANITIZE)
  file(GLOB step_kinds_parts CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cpp")
  list(FILTER step_kinds_parts EXCLUDE REGEX "_test[.]cpp$")
  add_library(step_kinds_parts OBJECT EXCLUDE_FROM_ALL ${step_kinds_parts})
  chunkmem_flags(step_kinds_parts)
  target_include_directories(step_kinds_parts PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  set(chunkmem_libraries step_kinds_parts)
endif()
