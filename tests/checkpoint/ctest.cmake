# SPDX-License-Identifier: Apache-2.0
# A background save starts a thread: save_async_test and save_queue_test are tried under the thread sanitizer by hand, the others
# would cost its run a minute. Some make figures.
set(chunkmem_joint saves)
set(chunkmem_labels figures)
set(chunkmem_why_not "${chunkmem_why_no_checkpoint}")
set(chunkmem_libraries chunkmem::checkpoint)

# Python's own safetensors opens what is written here and by ranks, and the other way round. Its cases have the tag [.python].
function(chunkmem_python_test name program)
  if(chunkmem_why_no_checkpoint)
    chunkmem_skipped_test(${name} "${chunkmem_why_no_checkpoint}" LABELS slow)
  else()
    chunkmem_test(${name} LABELS slow COMMAND ${program} "[.python]")
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "CHUNKMEM_PYTHON=${CHUNKMEM_PYTHON}")
  endif()
endfunction()
if(NOT CHUNKMEM_SANITIZE)
  if(chunkmem_are_joined)
    chunkmem_python_test(checkpoint.python test_saves)
    chunkmem_python_test(resharding.python test_ranks)
  else()
    chunkmem_python_test(checkpoint.python test_checkpoint.checkpoint)
    chunkmem_python_test(resharding.python test_resharding)
  endif()
endif()
