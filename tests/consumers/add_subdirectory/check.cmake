# SPDX-License-Identifier: Apache-2.0
# By Makefiles where make is installed.
find_program(make NAMES make gmake)
if(make)
  set(GENERATOR "Unix Makefiles")
endif()
build_by_cmake("-DCHUNKMEM_SOURCE=${ROOT}")
