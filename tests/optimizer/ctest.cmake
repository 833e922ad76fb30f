# SPDX-License-Identifier: Apache-2.0
# These tests start threads: the thread sanitizer runs them.
set(chunkmem_labels threads)
if("thread" IN_LIST CHUNKMEM_SANITIZE)
  set(chunkmem_unsanitized ON)
  set(chunkmem_sanitized_files
      "(device_optimizer|device_step|early_updates|late_updates|loop_launcher|measure_parameter|optimizer_kernel|step|thread_pool|update_parameter|update_site)_test[.]cpp")
endif()
