# SPDX-License-Identifier: Apache-2.0
# Searches without bytes, and worth optimising. Some read measured data, and one makes figures of them.
set(chunkmem_unsanitized ON)
set(chunkmem_compile_options -O1 "-DCHUNKMEM_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
set(chunkmem_labels figures)
chunkmem_part(measured "measured_trainings")
set(chunkmem_labels "")
