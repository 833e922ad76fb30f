# SPDX-License-Identifier: Apache-2.0
# Draws the pictures of pipelines that the docs show.
#
#     cmake -DPROGRAM=<schedule> -DPICTURES=<docs/pictures> -DFOLDER=<for fresh ones> -P pictures.cmake   compares each byte
#     cmake -DPROGRAM=<schedule> -DPICTURES=<docs/pictures> -P pictures.cmake                             writes them
function(draw name)
  set(there "${PICTURES}/pipeline_${name}.svg")
  set(drawn "${there}")
  if(FOLDER)
    set(drawn "${FOLDER}/pipeline_${name}.svg")
    file(MAKE_DIRECTORY "${FOLDER}")
    file(REMOVE "${drawn}")
  endif()
  execute_process(COMMAND "${PROGRAM}" --svg "${drawn}" ${ARGN} OUTPUT_QUIET RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "no picture of ${name} was drawn: ${failed}")
  endif()
  if(NOT FOLDER)
    return()
  endif()
  execute_process(COMMAND "${CMAKE_COMMAND}" -E compare_files "${drawn}" "${there}" RESULT_VARIABLE differs)
  if(differs)
    message(SEND_ERROR "${there} is not what the program draws. To draw it again: cmake --build <build> --target schedule_pictures")
  endif()
endfunction()

draw(gpipe --schedule gpipe)
draw(1f1b --schedule 1f1b)
draw(interleaved --schedule interleaved)
draw(2bw --schedule 2bw --microbatches 4 --batches 3)
draw(zb_h1 --schedule zb-h1)
draw(zb_h2 --schedule zb-h2)
draw(zb_v --schedule zb-v)
