# These tests start threads: the thread sanitizer runs them.
set(chunkmem_labels threads)
# Many operations: worth optimising even under the address sanitizer.
set(chunkmem_compile_options -O1)
