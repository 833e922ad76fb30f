# SPDX-License-Identifier: Apache-2.0
# These tests start threads: the thread sanitizer runs them.
set(chunkmem_joint numbers)
set(chunkmem_labels threads)
if("thread" IN_LIST CHUNKMEM_SANITIZE)
  set(chunkmem_unsanitized ON)
  set(chunkmem_sanitized_files
      "(device_kernel|device_optimizer|early_updates|late_updates|optimizer_kernel|step|thread_pool|update_parameter|update_site)_test[.]cpp")
endif()
