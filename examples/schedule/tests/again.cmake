# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=<schedule> -DFOLDER=<for files> [-DPYTHON=<python3>] -P again.cmake
#
# Writes a schedule as text, reads it, and compares the printed text and the files of both runs.
set(times --times 1,1.2,0.7,1.3 --update 2 --updates-aside)
file(MAKE_DIRECTORY "${FOLDER}")
function(run number)
  execute_process(COMMAND "${PROGRAM}" ${ARGN} ${times} --steps --text "${FOLDER}/${number}.txt" --svg "${FOLDER}/${number}.svg"
                          --trace "${FOLDER}/${number}.json" OUTPUT_FILE "${FOLDER}/${number}.out" RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "schedule ${ARGN}: ${failed}")
  endif()
endfunction()

run(first --schedule 2bw --microbatches 4)
run(second --schedule "${FOLDER}/first.txt")
foreach(file IN ITEMS txt svg json out)
  execute_process(COMMAND "${CMAKE_COMMAND}" -E compare_files "${FOLDER}/first.${file}" "${FOLDER}/second.${file}" RESULT_VARIABLE differs)
  if(differs)
    message(SEND_ERROR "${FOLDER}/second.${file} differs from first.${file}")
  endif()
endforeach()
if(PYTHON)
  execute_process(COMMAND "${PYTHON}" -m json.tool "${FOLDER}/first.json" OUTPUT_QUIET RESULT_VARIABLE failed)
  if(failed)
    message(SEND_ERROR "${FOLDER}/first.json is no JSON")
  endif()
else()
  message(STATUS "LEFT OUT: whether the traces are JSON (no python3 was found)")
endif()
