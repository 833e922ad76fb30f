# SPDX-License-Identifier: Apache-2.0
# Part stages: stages that are threads. The thread sanitizer runs it.
set(chunkmem_labels threads)
chunkmem_part(stages "stage_runner|managed_stages|weight_versions")

# The others plan.
set(chunkmem_labels "")
