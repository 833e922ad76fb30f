# SPDX-License-Identifier: Apache-2.0
# Under sanitizers tests/differential does the same.
if(CHUNKMEM_SANITIZE)
  set(chunkmem_own_programs ON)
endif()
