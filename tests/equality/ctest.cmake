# SPDX-License-Identifier: Apache-2.0
# Part precision: a matrix of 16-bit trainings. It starts threads, but none that the folder's own program and tests/optimizer do not start
# too: not under the thread sanitizer. The address sanitizer has its code there, in tests/optimizer and in the mixed trainings of
# tests/backend_thrust. Some make figures.
set(chunkmem_joint numbers)
set(chunkmem_unsanitized ON)
set(chunkmem_labels figures)
chunkmem_part(precision "precision.*")

# Part parameters: 16-bit trainings in orders that few trainers have. tests/optimizer runs the same code under sanitizers.
set(chunkmem_labels "")
chunkmem_part(parameters "accumulation|experts|order|overflow|promised_errors|retry|sparse_gradients|storage")

# The others start threads: the thread sanitizer runs them.
set(chunkmem_unsanitized OFF)
set(chunkmem_labels threads)

# builds.cpp, built with flags that must not change a bit, by every compiler at hand; tests compare what the builds print.
if(NOT CHUNKMEM_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  include("${CMAKE_CURRENT_LIST_DIR}/builds.cmake")
endif()
