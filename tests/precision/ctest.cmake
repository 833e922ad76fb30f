# These tests start threads: the thread sanitizer runs them. Some make figures.
set(chunkmem_labels threads figures)
# Many operations: worth optimising even under the address sanitizer.
set(chunkmem_compile_options -O1)
