# They start threads, but none that tests/precision and tests/optimizer do not start too: under the thread sanitizer these
# many trainings would take as long as all the others together.
if(NOT CHUNKMEM_SANITIZE) # there it is the other way round
  set(chunkmem_compile_options -O1) # they run longer than they compile
endif()
