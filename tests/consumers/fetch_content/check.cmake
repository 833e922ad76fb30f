# SPDX-License-Identifier: Apache-2.0
# From git where this tree is a clone: the last commit is fetched. Else this folder stands in for the fetched one.
find_program(git git)
set(commit 1)
if(git)
  execute_process(COMMAND "${git}" -C "${ROOT}" rev-parse HEAD RESULT_VARIABLE commit OUTPUT_VARIABLE hash OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(commit EQUAL 0)
  build_by_cmake("-DCHUNKMEM_ADDRESS=file://${ROOT}" -DCHUNKMEM_COMMIT=${hash})
else()
  build_by_cmake(-DCHUNKMEM_ADDRESS=nowhere -DCHUNKMEM_COMMIT=none "-DFETCHCONTENT_SOURCE_DIR_CHUNKMEM=${ROOT}")
endif()
