# Where the text comes from on a machine without /usr/share/common-licenses: this repository's own documentation.
set(chunkmem_compile_options "-DCHUNKMEM_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")

# The whole program, small: trains twice, at a quarter of its memory and without a limit, and compares every bit.
set(gpt_small --layers 2 --width 32 --heads 2 --context 32 --batch 2 --steps 8 --sample 20 --verify)
foreach(eviction IN ITEMS belady lru)
  chunkmem_test(example.gpt_${eviction} LABELS example TIMEOUT 120 COMMAND gpt ${gpt_small} --eviction ${eviction})
endforeach()
foreach(precision IN ITEMS bf16 fp16)
  chunkmem_test(example.gpt_${precision} LABELS example TIMEOUT 120
                COMMAND gpt ${gpt_small} --precision ${precision} --accumulate 2 --threads 2)
  chunkmem_test(example.gpt_${precision}_in_place LABELS example TIMEOUT 120
                COMMAND gpt ${gpt_small} --precision ${precision} --gradient in_place --clip 1 --threads 2)
endforeach()

# Twenty steps against automatic differentiation: see oracle/oracle.py. It downloads JAX, or is skipped.
find_program(gpt_python python3)
if(gpt_python)
  chunkmem_test(example.gpt_oracle LABELS slow TIMEOUT 1800
                COMMAND ${gpt_python} "${CMAKE_CURRENT_LIST_DIR}/oracle/oracle.py" $<TARGET_FILE:gpt>
                        "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_BINARY_DIR}/oracle")
else()
  chunkmem_test(example.gpt_oracle LABELS slow COMMAND sh -c "echo 'SKIPPED: no python3 was found' && exit 4")
endif()
