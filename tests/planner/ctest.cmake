# Simulations: worth optimising even under the address sanitizer.
set(chunkmem_compile_options -O1)
