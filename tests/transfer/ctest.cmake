# SPDX-License-Identifier: Apache-2.0
# Some of these tests make figures.
set(chunkmem_labels figures)
# Oracles that try everything: worth optimising. Plans are numbers, and whoever indexes past an end is caught here; files of other
# people and what a manager does with a plan are for the sanitizers too.
if(NOT CHUNKMEM_SANITIZE)
  set(chunkmem_compile_options -O1 -D_GLIBCXX_ASSERTIONS)
endif()
set(chunkmem_unsanitized ON)
set(chunkmem_sanitized_files "(plan_text|planned|transfers|retention_problem|update_split)_test[.]cpp")
