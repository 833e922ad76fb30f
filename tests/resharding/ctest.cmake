# SPDX-License-Identifier: Apache-2.0
# Trainings over ranks that are saved and go on elsewhere. Threads, files and checksums have their sanitizers in tests/sharding and
# tests/checkpoint. It makes a figure.
set(chunkmem_joint ranks)
set(chunkmem_labels figures)
set(chunkmem_unsanitized ON)
set(chunkmem_why_not "${chunkmem_why_no_checkpoint}")
