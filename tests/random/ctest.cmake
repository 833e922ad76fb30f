# They start threads; under the thread sanitizer tests/differential does the same.
# Many operations: worth optimising even under the address sanitizer.
set(chunkmem_compile_options -O1)
