# SPDX-License-Identifier: Apache-2.0
# Ranks are threads: the thread sanitizer runs what they do together. Without them the bytes are those of tests/equality and
# tests/manager, which the address sanitizer has. Some make figures.
set(chunkmem_joint ranks)
set(chunkmem_labels threads figures)
set(chunkmem_unsanitized ON)
set(chunkmem_sanitized_files "rank_load_test[.]cpp")
if("thread" IN_LIST CHUNKMEM_SANITIZE)
  set(chunkmem_sanitized_files "(sharded_model|step_of_ranks|rank_save)_test[.]cpp")
endif()
