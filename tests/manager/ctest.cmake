# SPDX-License-Identifier: Apache-2.0
# They start threads, but none that tests/equality and tests/faults do not start too: not under the thread
# sanitizer, where they would take a third of its time. Some make figures.
set(chunkmem_joint managers)
set(chunkmem_why_not "${chunkmem_why_no_json}")
set(chunkmem_libraries chunkmem::json)
chunkmem_part(json "report_json")

set(chunkmem_why_not "")
set(chunkmem_libraries "")
set(chunkmem_labels figures)
