# SPDX-License-Identifier: Apache-2.0
# Trainings over ranks that are saved and go on elsewhere. Threads, files and checksums have their sanitizers in tests/sharding and
# tests/checkpoint. It makes a figure.
set(chunkmem_joint ranks)
set(chunkmem_labels figures)
set(chunkmem_unsanitized ON)
set(chunkmem_why_not "${chunkmem_why_no_checkpoint}")

# PyTorch's own Adam counts the updates of each weight: its histories have the tag [.pytorch].
if(NOT CHUNKMEM_SANITIZE)
  execute_process(COMMAND "${CHUNKMEM_PYTHON}" "${CMAKE_CURRENT_LIST_DIR}/pytorch_adam.py" ask RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(chunkmem_why_no_checkpoint)
    chunkmem_skipped_test(resharding.pytorch "${chunkmem_why_no_checkpoint}" LABELS slow)
  elseif(failed)
    chunkmem_skipped_test(resharding.pytorch "${CHUNKMEM_PYTHON} has no PyTorch (CHUNKMEM_PYTHON may name another)" LABELS slow)
  else()
    if(chunkmem_are_joined)
      chunkmem_test(resharding.pytorch LABELS slow COMMAND test_ranks "[.pytorch]")
    else()
      chunkmem_test(resharding.pytorch LABELS slow COMMAND test_resharding "[.pytorch]")
    endif()
    set_property(TEST resharding.pytorch APPEND PROPERTY ENVIRONMENT "CHUNKMEM_PYTHON=${CHUNKMEM_PYTHON}")
  endif()
endif()
