# SPDX-License-Identifier: Apache-2.0
# Traces are read with the library that our tools read JSON with; example.gpt.trace asks for a whole one.
set(chunkmem_why_not "${chunkmem_why_no_json}")
set(chunkmem_libraries $<TARGET_NAME_IF_EXISTS:chunkmem::json>)
set(chunkmem_unsanitized ON)
