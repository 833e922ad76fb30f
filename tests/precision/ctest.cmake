# They start threads, but none that tests/equality and tests/optimizer do not start too: not under the thread sanitizer. Some make
# figures.
set(chunkmem_labels figures)
if(NOT CHUNKMEM_SANITIZE) # there it is the other way round
  set(chunkmem_compile_options -O1) # they run longer than they compile
endif()
