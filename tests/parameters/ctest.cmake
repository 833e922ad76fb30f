# SPDX-License-Identifier: Apache-2.0
# What they run, tests/precision and tests/optimizer run under the address sanitizer and tests/optimizer under that of threads: under
# one these many trainings would take as long as all the others together.
set(chunkmem_unsanitized ON)
set(chunkmem_compile_options -O1) # they run longer than they compile
