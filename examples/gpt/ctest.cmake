# Where the text comes from on a machine without /usr/share/common-licenses: this repository's own documentation.
set(chunkmem_compile_options "-DCHUNKMEM_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")

# The whole program, small: trains twice, at a quarter of its memory and without a limit, and compares every bit.
foreach(eviction IN ITEMS belady lru)
  chunkmem_test(example.gpt_${eviction} LABELS example TIMEOUT 120
                COMMAND gpt --layers 2 --width 32 --heads 2 --context 32 --batch 2 --steps 8 --sample 20 --verify
                        --eviction ${eviction})
endforeach()
