# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=<configure> -DCLUSTERS=<folder> -DFOLDER=<for files> -P configure.cmake
#
# Plans a model for a cluster twice, compares the printed text and the files of both runs, and tries impossible options.
file(MAKE_DIRECTORY "${FOLDER}")
set(cluster "${CLUSTERS}/one_slow_link.json")
set(asked --cluster "${cluster}" --model PatrickStar/GPT2_1B --rows 64 --sequence 512 --schedules 1f1b,zb-h1 --best 3 --quiet)
foreach(number IN ITEMS 1 2)
  execute_process(COMMAND "${PROGRAM}" ${asked} --threads ${number} --without-tensor-parallelism --plan "${FOLDER}/${number}.plan" --svg
                          "${FOLDER}/${number}.svg" --trace "${FOLDER}/${number}.json" OUTPUT_VARIABLE printed RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "configure: ${failed}")
  endif()
  foreach(text IN ITEMS "the fastest: " "a device needs" "replica 0:" "Left out:")
    string(FIND "${printed}" "${text}" place)
    if(place EQUAL -1)
      message(SEND_ERROR "configure does not print '${text}':\n${printed}")
    endif()
  endforeach()
endforeach()
foreach(file IN ITEMS plan svg json)
  execute_process(COMMAND "${CMAKE_COMMAND}" -E compare_files "${FOLDER}/1.${file}" "${FOLDER}/2.${file}" RESULT_VARIABLE differs)
  if(differs)
    message(SEND_ERROR "${FOLDER}/2.${file} differs from 1.${file}")
  endif()
endforeach()

# a limit of time also ends the comparison of places
execute_process(COMMAND "${PROGRAM}" --quiet --cluster "${cluster}" --model PatrickStar/GPT2_4B --rows 4096 --seconds 1
                OUTPUT_VARIABLE printed)
if(NOT printed MATCHES "no plan was found before the search was stopped|the search was stopped before other places were compared")
  message(SEND_ERROR "configure --seconds 1 compares places after its end:\n${printed}")
endif()

# refuses(<regular expression> <words>...): the program ends with one sentence and the status 2.
function(refuses sentence)
  execute_process(COMMAND "${PROGRAM}" --quiet ${ARGN} OUTPUT_QUIET ERROR_VARIABLE said RESULT_VARIABLE status)
  string(REGEX MATCHALL "\n" lines "${said}")
  list(LENGTH lines count)
  if(NOT status EQUAL 2 OR NOT said MATCHES "${sentence}" OR NOT count EQUAL 1)
    message(SEND_ERROR "configure ${ARGN} ended with ${status} and said '${said}', not '${sentence}'")
  endif()
endfunction()
refuses("--cluster is missing" --model GPT2_1B --rows 8)
refuses("neither a file nor a name" --cluster "${cluster}" --model GPT0 --rows 64)
refuses("is the size of no number" --cluster "${cluster}" --model PatrickStar/GPT2_1B --rows 64 --activation-bytes 3)
refuses("choose adam, momentum or sgd" --cluster "${cluster}" --model PatrickStar/GPT2_1B --rows 64 --optimizer 4x4)
refuses("choose ring or direct" --cluster "${cluster}" --model PatrickStar/GPT2_1B --rows 64 --sums tree)
refuses("is no folder" --cluster "${cluster}" --model PatrickStar/GPT2_1B --rows 64 --plans "${FOLDER}/1.plan/all")
refuses("'zb-3' is no schedule" --cluster "${cluster}" --model PatrickStar/GPT2_1B --rows 64 --schedules zb-3)
refuses("key \"format\" is not that of this version" --cluster "${cluster}" --model PatrickStar/GPT2_1B --rows 64
        --profile "${cluster}")
string(REPEAT ", 1" 23 ones)
string(REPEAT ", \"layer\"" 23 names)
string(REPEAT ", [28000000]" 23 weights)
file(WRITE "${FOLDER}/profile.json"
     "{\"format\": \"chunkmem model profile 1\", \"name\": \"24 layers\", \"source\": \"stated for this test\",
       \"input_bytes_of_row\": 4, \"times_have_sums\": false, \"weights\": {\"1\": [[28000000]${weights}]},
       \"parts\": {\"names\": [\"layer\"${names}], \"layers\": [1${ones}], \"all_reduces\": [1${ones}]},
       \"sizes\": {\"1 x 1\": {\"saved\": [1${ones}], \"boundary\": [1${ones}], \"transient\": [1${ones}]}},
       \"times\": {\"a100\": {\"1 x 1\": {\"forward\": [1${ones}], \"backward\": [1${ones}]}}}}")
set(profiled --cluster "${cluster}" --rows 64 --schedules 1f1b --profile "${FOLDER}/profile.json")
refuses("has 24 layers, and --model PatrickStar/GPT2_1B has 20" ${profiled} --model PatrickStar/GPT2_1B)
refuses("leave --sequence and --activation-bytes out" ${profiled} --model PatrickStar/GPT2small --sequence 512)
file(READ "${FOLDER}/profile.json" other_kind)
string(REPLACE "a100" "h100" other_kind "${other_kind}")
file(WRITE "${FOLDER}/h100.json" "${other_kind}")
refuses("no times for nodes of the kind \"a100\"" --cluster "${cluster}" --rows 64 --model PatrickStar/GPT2small
        --profile "${FOLDER}/h100.json")
execute_process(COMMAND "${PROGRAM}" --quiet ${profiled} --model PatrickStar/GPT2small OUTPUT_VARIABLE printed RESULT_VARIABLE failed)
if(failed OR NOT printed MATCHES " 192 +42[.]67 ") # 64 rows of 24 layers of two seconds, on 16 devices
  message(SEND_ERROR "configure with a profile ended with '${failed}' and printed:\n${printed}")
endif()
file(READ "${cluster}" text)
string(REPLACE "\"value\": 4," "\"value\": 0," text "${text}")
file(WRITE "${FOLDER}/wrong.json" "${text}")
refuses("kinds.a100.devices" --cluster "${FOLDER}/wrong.json" --model PatrickStar/GPT2_1B --rows 64)
string(REPLACE "\"value\": 0," "\"value\": 101," text "${text}")
file(WRITE "${FOLDER}/odd.json" "${text}")
refuses("no plan divides 7 rows" --cluster "${FOLDER}/odd.json" --model PatrickStar/GPT2small --rows 7
        --without-tensor-parallelism)
