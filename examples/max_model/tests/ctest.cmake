# SPDX-License-Identifier: Apache-2.0
set(machines "${PROJECT_SOURCE_DIR}/examples/max_model/machines")
# Tests read the files of machines, and search among many models.
set(chunkmem_compile_options "-DMAX_MODEL_MACHINES=\"${machines}\"" -O2)

chunkmem_test(example.max_model LABELS example TIMEOUT 120
              COMMAND max_model --machine "${machines}/v100_32_node.json" --model GPT3_18B --micro-batch 8 --layers 100)
chunkmem_test(example.max_model.refusals LABELS example TIMEOUT 120
              COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/refusals.sh" $<TARGET_FILE:max_model> "${machines}"
                      "${PROJECT_BINARY_DIR}/max_model")

# The picture: a Python with matplotlib draws it; without matplotlib any Python compiles the script.
function(max_model_can_draw result program)
  execute_process(COMMAND "${program}" -c "import matplotlib" RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed)
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()
find_program(max_model_python python3 VALIDATOR max_model_can_draw)
find_program(max_model_python python3)
if(max_model_python)
  chunkmem_test(example.max_model.picture LABELS example TIMEOUT 120
                COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/picture.sh" "${max_model_python}"
                        "${PROJECT_SOURCE_DIR}/tools/plot.py" "${PROJECT_BINARY_DIR}/max_model"
                        $<TARGET_FILE:max_model> "${machines}/v100_32_node.json")
else()
  chunkmem_test(example.max_model.picture LABELS example COMMAND sh -c "echo 'SKIPPED: no python3 was found' && exit 4")
endif()
