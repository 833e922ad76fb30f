# SPDX-License-Identifier: Apache-2.0
# Ranks are threads: the thread sanitizer runs what they do together. Without them the bytes are those of tests/equality and
# tests/manager, which the address sanitizer has. Some make figures.
set(chunkmem_joint ranks)

# Part saves: models over ranks that are saved, loaded and imported.
if(NOT CHUNKMEM_SANITIZE)
  set(chunkmem_labels threads figures)
  set(chunkmem_why_not "${chunkmem_why_no_checkpoint}")
  set(chunkmem_libraries chunkmem::checkpoint)
  chunkmem_part(saves "gradients_in_place|own_items|rank_import|rank_load|rank_save|rank_save_async|saves_behind_updates")
  set(chunkmem_why_not "")
  set(chunkmem_libraries "")
endif()

set(chunkmem_labels threads figures)
set(chunkmem_unsanitized ON)
set(chunkmem_sanitized_files "rank_load_test[.]cpp")
if("thread" IN_LIST CHUNKMEM_SANITIZE)
  set(chunkmem_sanitized_files "(sharded_model|step_of_ranks|rank_save)_test[.]cpp")
endif()
if(CHUNKMEM_SANITIZE AND NOT chunkmem_why_no_checkpoint)
  set(chunkmem_libraries chunkmem::checkpoint)
elseif(CHUNKMEM_SANITIZE)
  set(chunkmem_sanitized_files "(sharded_model|step_of_ranks)_test[.]cpp")
endif()
