# SPDX-License-Identifier: Apache-2.0
# Instructions, not seconds: the same on every machine, so a test may hold them against their bound.
chunkmem_test(engine.instructions LABELS figures TIMEOUT 900 COMMAND acquire_bench)
set_tests_properties(engine.instructions PROPERTIES COST 900) # long: it starts early
