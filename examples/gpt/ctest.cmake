# SPDX-License-Identifier: Apache-2.0
# The whole program, small: trains twice, at a quarter of its memory and without a limit, and compares every bit.
set(gpt_small --layers 2 --width 32 --heads 2 --context 32 --batch 2 --steps 8 --sample 20 --verify)
# Each policy that can be chosen runs at least once; the run without a limit has the defaults.
foreach(choice IN ITEMS "belady append optimizer_on_host lookahead" "lru best_fit optimizer_on_host no_prefetch"
        "fifo size_class optimizer_on_host lookahead" "list_order best_fit device_margin lookahead"
        "cost_aware append fixed_split lookahead" "cost_aware size_class device_margin no_prefetch"
        "belady best_fit optimizer_on_host planned")
  string(REPLACE " " ";" words "${choice}")
  list(GET words 0 eviction)
  list(GET words 1 layout)
  list(GET words 2 placement)
  list(GET words 3 transfer)
  string(REPLACE " " "." name "${choice}")
  set(device "")
  if(placement STREQUAL "device_margin") # at a quarter of the need there is none
    set(device --device-memory 760KiB)
  endif()
  chunkmem_test(example.gpt.${name} LABELS example TIMEOUT 120
                COMMAND gpt ${gpt_small} ${device} --eviction ${eviction} --layout ${layout} --placement ${placement}
                        --transfer ${transfer})
endforeach()
# Activations are kept, recomputed, planned, or some of their rows are sampled; over ranks too.
foreach(choice IN ITEMS keep recompute karma planned sample=0.3)
  chunkmem_test(example.gpt_activations.${choice} LABELS example TIMEOUT 120
                COMMAND gpt ${gpt_small} --activations ${choice} --transfer planned --accumulate 2)
endforeach()
find_program(gpt_python python3)
if(gpt_python)
  set(gpt_plots "${gpt_python}" "${PROJECT_SOURCE_DIR}/tools/plot.py")
endif()
if(TARGET chunkmem::checkpoint)
  chunkmem_test(example.gpt_activations.sampling LABELS example TIMEOUT 120
                COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/tests/sampling.sh" $<TARGET_FILE:gpt> "${PROJECT_BINARY_DIR}/gpt_sampling" ${gpt_plots})
endif()
chunkmem_test(example.gpt_activations.ranks LABELS example TIMEOUT 120
              COMMAND gpt --layers 3 --width 32 --heads 2 --context 32 --batch 2 --steps 4 --verify --ranks 2 --activations recompute)
# Less device memory than needed on every rank: activations by a planner, and updates at the next use of a weight or
# before the norm is known. The first step is clipped, so its early updates are undone; those of the other steps are
# not.
set(gpt_updates sh "${CMAKE_CURRENT_LIST_DIR}/tests/updates.sh")
foreach(choice IN ITEMS "late karma 3" "early karma 3" "late planned 1" "early planned 2")
  string(REPLACE " " ";" words "${choice}")
  list(GET words 0 when)
  list(GET words 1 activations)
  list(GET words 2 shard)
  chunkmem_test(example.gpt_out_of_core.${when}.${activations} LABELS example TIMEOUT 120
                COMMAND ${gpt_updates} ${when} $<TARGET_FILE:gpt> --layers 4 --width 32 --heads 2 --context 32 --batch 2 --steps 4 --clip 2.5 --verify --ranks 3
                        --shard ${shard} --activations ${activations} --update ${when} --transfer planned)
endforeach()
# Updates on the device and on the host, by measured steps: on one rank, and on ranks that divide every weight.
foreach(choice IN ITEMS "0" "3 --ranks 3 --shard 3")
  string(REPLACE " " ";" words "${choice}")
  list(POP_FRONT words ranks)
  chunkmem_test(example.gpt_out_of_core.measured.${ranks} LABELS example TIMEOUT 120
                COMMAND ${gpt_updates} measured $<TARGET_FILE:gpt> --layers 2 --width 32 --heads 2 --context 32 --batch 2 --steps 46 --sample 0 --clip 1 --verify
                        --precision bf16 --activations karma --transfer planned --update measured ${words})
endforeach()
# The output of the first command that the README shows.
chunkmem_test(docs.output LABELS slow TIMEOUT 900
              COMMAND sh "${PROJECT_SOURCE_DIR}/tests/pages/output.sh" $<TARGET_FILE:gpt> "${PROJECT_SOURCE_DIR}/bench/results/gpt.txt")
foreach(precision IN ITEMS bf16 fp16)
  chunkmem_test(example.gpt_${precision} LABELS example TIMEOUT 120
                COMMAND gpt ${gpt_small} --precision ${precision} --accumulate 2 --threads 2)
  chunkmem_test(example.gpt_${precision}_in_place LABELS example TIMEOUT 120
                COMMAND gpt ${gpt_small} --precision ${precision} --gradient in_place --clip 1 --threads 2)
endforeach()

# A trace of a training, which the test of traces reads.
if(TARGET test_perfetto)
  set(gpt_traced ${gpt_small})
  list(REMOVE_ITEM gpt_traced --verify)
  list(JOIN gpt_traced " " gpt_traced)
  set(folder "${PROJECT_BINARY_DIR}/gpt_trace")
  chunkmem_test(example.gpt.trace LABELS example TIMEOUT 120
                COMMAND sh -c "mkdir -p '${folder}' && \"$1\" ${gpt_traced} --trace '${folder}/trace.json' --report '${folder}/report.json' && \
CHUNKMEM_TRACE='${folder}' \"$2\" '[.trace]'" trace $<TARGET_FILE:gpt> $<TARGET_FILE:test_perfetto>)
endif()

# Over ranks: every ZeRO stage, with more than one batch for each rank; and as processes, where MPI is installed.
set(gpt_over_ranks --layers 2 --width 32 --heads 2 --context 32 --batch 2 --steps 5 --clip 1 --verify)
foreach(stage RANGE 0 3)
  chunkmem_test(example.gpt_ranks.${stage} LABELS example TIMEOUT 120
                COMMAND gpt ${gpt_over_ranks} --ranks 3 --shard ${stage} --accumulate 2)
endforeach()
chunkmem_test(example.gpt_ranks.nodes LABELS example TIMEOUT 120
              COMMAND gpt ${gpt_over_ranks} --ranks 4 --nodes 2 --precision bf16 --transfer planned --eviction cost_aware)
if(TARGET chunkmem::mpi AND chunkmem_mpi_launcher AND NOT CHUNKMEM_SANITIZE)
  chunkmem_test(example.gpt_mpi LABELS example mpi TIMEOUT 120
                COMMAND ${chunkmem_mpi_launcher} -np 2 $<TARGET_FILE:gpt> ${gpt_over_ranks} --shard 3)
  chunkmem_test(example.gpt_out_of_core.mpi LABELS example mpi TIMEOUT 120
                COMMAND ${gpt_updates} late ${chunkmem_mpi_launcher} -np 2 $<TARGET_FILE:gpt> ${gpt_over_ranks} --shard 3 --activations karma --update late)
  # Over links with limited rates, where a computer may make network namespaces: elsewhere the script reports a skip.
  chunkmem_test(example.gpt_nodes LABELS slow mpi TIMEOUT 300
                COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/tests/nodes.sh" $<TARGET_FILE:gpt>)
  if(TARGET probe_links AND NOT chunkmem_why_no_json)
    chunkmem_test(example.gpt_nodes.order.slow LABELS slow mpi TIMEOUT 5400
                  COMMAND sh "${PROJECT_SOURCE_DIR}/bench/out_of_core/order_on_nodes.sh" $<TARGET_FILE_DIR:gpt>)
  endif()
  set(gpt_launches ON)
  set(gpt_mpi_environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm=isolated
      OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_btl_base_warn_component_unused=0
      OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe) # of version 4, and of 5
  foreach(name IN ITEMS example.gpt_mpi example.gpt_out_of_core.mpi)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ${gpt_mpi_environment})
  endforeach()
endif()

# Stages of a pipeline, as threads and processes: each with a quarter of its memory, against one device without a limit.
set(gpt_in_stages --layers 4 --width 32 --heads 2 --context 32 --batch 2 --steps 5 --verify)
foreach(choice IN ITEMS "gpipe 2 4 swap" "1f1b 3 6 recompute" "eager 3 6 swap" "interleaved 2 4 recompute" "2bw 4 4 swap" "2bw 1 3 swap"
        "zb-h1 2 4 swap" "zb-h2 4 8 swap" "zb-v 2 4 swap")
  string(REPLACE " " ";" words "${choice}")
  list(GET words 0 schedule)
  list(GET words 1 stages)
  list(GET words 2 micro_batches)
  list(GET words 3 activations)
  chunkmem_test(example.gpt_stages.${schedule}.${stages} LABELS example TIMEOUT 120
                COMMAND gpt ${gpt_in_stages} --schedule ${schedule} --stages ${stages} --microbatches ${micro_batches}
                        --activations ${activations} --precision bf16 --clip 0.5)
endforeach()
chunkmem_test(example.gpt_stages.fp16 LABELS example TIMEOUT 120
              COMMAND gpt ${gpt_in_stages} --schedule 2bw --stages 2 --microbatches 4 --precision fp16 --clip 0.5)
# Parallel pipelines, which divide the data that --shard says.
foreach(choice IN ITEMS "1f1b 2 2 1" "interleaved 2 2 1" "2bw 3 2 2" "zb-v 2 3 3")
  string(REPLACE " " ";" words "${choice}")
  list(GET words 0 schedule)
  list(GET words 1 stages)
  list(GET words 2 replicas)
  list(GET words 3 shard)
  chunkmem_test(example.gpt_replicas.${schedule} LABELS example TIMEOUT 120
                COMMAND gpt ${gpt_in_stages} --schedule ${schedule} --stages ${stages} --microbatches 4 --replicas ${replicas}
                        --shard ${shard} --precision bf16 --clip 0.5)
endforeach()
set(file "${PROJECT_BINARY_DIR}/gpt_schedule.txt")
chunkmem_test(example.gpt_stages.file LABELS example TIMEOUT 120
              COMMAND sh -c "\"$1\" --schedule zb-1p --stages 2 --microbatches 4 --batches 5 --text '${file}' && \
\"$2\" --layers 4 --width 32 --heads 2 --context 32 --batch 2 --steps 5 --verify --stages 2 --microbatches 4 --schedule '${file}'"
                      file $<TARGET_FILE:schedule> $<TARGET_FILE:gpt>)
if(gpt_launches)
  chunkmem_test(example.gpt_replicas.mpi LABELS example mpi TIMEOUT 120
                COMMAND ${chunkmem_mpi_launcher} -np 4 $<TARGET_FILE:gpt> ${gpt_in_stages} --stages 2 --microbatches 4 --replicas 2
                        --shard 2 --precision bf16 --clip 0.5)
  set_property(TEST example.gpt_replicas.mpi APPEND PROPERTY ENVIRONMENT ${gpt_mpi_environment})
  chunkmem_test(example.gpt_stages.mpi.count LABELS example mpi TIMEOUT 120
                COMMAND sh -c "! \"$@\" >'${PROJECT_BINARY_DIR}/gpt_count.txt' 2>&1 && \
grep 'a training on 3 ranks was started as 2 processes (start 3)' '${PROJECT_BINARY_DIR}/gpt_count.txt'"
                        count ${chunkmem_mpi_launcher} -np 2 $<TARGET_FILE:gpt> ${gpt_in_stages} --stages 3 --microbatches 4)
  set_property(TEST example.gpt_stages.mpi.count APPEND PROPERTY ENVIRONMENT ${gpt_mpi_environment})
  foreach(processes IN ITEMS 2 4)
    chunkmem_test(example.gpt_stages.mpi.${processes} LABELS example mpi TIMEOUT 120
                  COMMAND ${chunkmem_mpi_launcher} -np ${processes} $<TARGET_FILE:gpt> ${gpt_in_stages} --schedule 2bw
                          --stages ${processes} --microbatches 4 --precision bf16 --clip 0.5)
    set_property(TEST example.gpt_stages.mpi.${processes} APPEND PROPERTY ENVIRONMENT ${gpt_mpi_environment})
  endforeach()
endif()

if(NOT chunkmem_why_no_json)
  chunkmem_test(example.gpt_forecast LABELS example TIMEOUT 120
                COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/tests/forecast.sh" $<TARGET_FILE:gpt>
                        "${PROJECT_SOURCE_DIR}/examples/configure/clusters/four_processes.json" "${PROJECT_BINARY_DIR}/gpt_forecast")
endif()

# Plans of configure, for threads and processes; every plan over slow links; and random plans on four nodes.
if(TARGET configure)
  set(gpt_planned sh "${CMAKE_CURRENT_LIST_DIR}/tests/plans.sh" $<TARGET_FILE:gpt> $<TARGET_FILE:configure>
      "${PROJECT_SOURCE_DIR}/examples/configure/clusters/four_processes.json")
  chunkmem_test(example.gpt_plans LABELS example TIMEOUT 300 COMMAND ${gpt_planned} "${PROJECT_BINARY_DIR}/gpt_plans")
  if(gpt_launches)
    chunkmem_test(example.gpt_plans.mpi.slow LABELS slow mpi TIMEOUT 600
                  COMMAND ${gpt_planned} "${PROJECT_BINARY_DIR}/gpt_plans_mpi" ${chunkmem_mpi_launcher})
    set_property(TEST example.gpt_plans.mpi.slow APPEND PROPERTY ENVIRONMENT ${gpt_mpi_environment})
  endif()
  if(gpt_launches AND TARGET probe_links)
    chunkmem_test(example.gpt_plans.nodes.slow LABELS slow mpi TIMEOUT 5400
                  COMMAND sh "${PROJECT_SOURCE_DIR}/bench/configurator/plans_on_nodes.sh" $<TARGET_FILE_DIR:gpt>)
  endif()
  if(gpt_launches AND TARGET slow_link)
    chunkmem_test(example.gpt_plans.every.slow LABELS slow mpi TIMEOUT 3600
                  COMMAND sh "${PROJECT_SOURCE_DIR}/bench/configurator/every_plan.sh" $<TARGET_FILE_DIR:gpt> $<TARGET_FILE:slow_link>)
    set_property(TEST example.gpt_plans.every.slow APPEND PROPERTY ENVIRONMENT ${gpt_mpi_environment})
  endif()
endif()

# Saved after 3, 6 and 8 steps, and resumed after 6 with another device, layout and eviction: every loss is that of one
# run.
if(TARGET chunkmem::checkpoint)
  set(folder "${PROJECT_BINARY_DIR}/gpt_checkpoint")
  list(JOIN gpt_small " " small)
  string(REPLACE " --verify" "" saving "${small}")
  chunkmem_test(example.gpt.resume LABELS example TIMEOUT 120
                COMMAND sh -c "rm -rf '${folder}' && \"$1\" ${saving} --precision bf16 --checkpoint '${folder}' --every 3 && \
rm '${folder}/generation-000003.manifest' && \
\"$1\" ${small} --precision bf16 --resume '${folder}' --layout size_class --eviction cost_aware --device-memory 760KiB"
                        resume $<TARGET_FILE:gpt>)
  chunkmem_test(example.gpt.fine_tuning LABELS example TIMEOUT 120
                COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/tests/fine_tuning.sh" $<TARGET_FILE:gpt> "${PROJECT_SOURCE_DIR}/LICENSE"
                        "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_BINARY_DIR}/gpt_fine_tuning")
  chunkmem_test(example.gpt.checkpoints LABELS example TIMEOUT 120
                COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/tests/checkpoints.sh" $<TARGET_FILE:gpt> "${PROJECT_BINARY_DIR}/gpt_checkpoints")
  chunkmem_test(example.gpt_stages.resume LABELS example TIMEOUT 120
                COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/tests/stages.sh" $<TARGET_FILE:gpt> "${PROJECT_BINARY_DIR}/gpt_stages")
  if(gpt_launches)
    chunkmem_test(example.gpt_stages.killed.slow LABELS slow mpi TIMEOUT 1200
                  COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/tests/killed_stages.sh" $<TARGET_FILE:gpt> "${PROJECT_BINARY_DIR}/gpt_killed" 50
                          ${chunkmem_mpi_launcher})
    set_property(TEST example.gpt_stages.killed.slow APPEND PROPERTY ENVIRONMENT ${gpt_mpi_environment})
  endif()
  set(ranks_resume sh "${CMAKE_CURRENT_LIST_DIR}/tests/ranks_resume.sh" $<TARGET_FILE:gpt>)
  chunkmem_test(example.gpt_ranks.resume LABELS example TIMEOUT 120 COMMAND ${ranks_resume} "${PROJECT_BINARY_DIR}/gpt_ranks_resume")
  if(gpt_launches)
    chunkmem_test(example.gpt_mpi.resume LABELS example mpi TIMEOUT 120
                  COMMAND ${ranks_resume} "${PROJECT_BINARY_DIR}/gpt_mpi_resume" ${chunkmem_mpi_launcher})
    set_property(TEST example.gpt_mpi.resume APPEND PROPERTY ENVIRONMENT ${gpt_mpi_environment})
    chunkmem_test(example.gpt_out_of_core.killed.slow LABELS slow mpi TIMEOUT 1200
                  COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/tests/killed_ranks.sh" $<TARGET_FILE:gpt> "${PROJECT_BINARY_DIR}/gpt_killed_ranks" 50
                          ${chunkmem_mpi_launcher})
    set_property(TEST example.gpt_out_of_core.killed.slow APPEND PROPERTY ENVIRONMENT ${gpt_mpi_environment})
  endif()
endif()

# Programs that a user ends resume to the same result. A few moments here; ten moments and processes in the slow tests.
if(NOT TARGET chunkmem::checkpoint)
  chunkmem_skipped_test(example.interrupted "${chunkmem_why_no_checkpoint}" LABELS example)
elseif(gpt_python)
  chunkmem_test(example.gpt.metrics LABELS example TIMEOUT 120
                COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/tests/metrics.sh" $<TARGET_FILE:gpt> "${PROJECT_BINARY_DIR}/gpt_metrics" "${gpt_python}")
  chunkmem_test(example.gpt.tensorboard LABELS example TIMEOUT 120
                COMMAND sh "${CMAKE_CURRENT_LIST_DIR}/tests/tensorboard.sh" $<TARGET_FILE:gpt> "${PROJECT_BINARY_DIR}/gpt_tensorboard"
                        "${gpt_python}" "${PROJECT_SOURCE_DIR}/tools/metrics_to_tensorboard.py")
  set(gpt_launcher "")
  if(gpt_launches)
    set(gpt_launcher ${chunkmem_mpi_launcher})
  endif()
  set(gpt_interrupted "${gpt_python}" "${CMAKE_CURRENT_LIST_DIR}/tests/interrupted.py" $<TARGET_FILE_DIR:gpt>)
  chunkmem_test(example.interrupted LABELS example TIMEOUT 300 COMMAND ${gpt_interrupted} "${PROJECT_BINARY_DIR}/interrupted" 1)
  chunkmem_test(example.interrupted.slow LABELS slow figures TIMEOUT 3600
                COMMAND ${gpt_interrupted} "${PROJECT_BINARY_DIR}/interrupted_slow" 10 ${gpt_launcher})
  set_property(TEST example.interrupted.slow APPEND PROPERTY ENVIRONMENT ${gpt_mpi_environment})
else()
  foreach(name IN ITEMS example.gpt.metrics example.gpt.tensorboard example.interrupted example.interrupted.slow)
    chunkmem_skipped_test(${name} "no python3 was found" LABELS example)
  endforeach()
endif()

# Twenty steps against automatic differentiation: see oracle/oracle.py. The script downloads JAX, or is skipped.
find_program(gpt_python python3)
if(gpt_python)
  chunkmem_test(example.gpt_oracle LABELS slow TIMEOUT 1800
                COMMAND ${gpt_python} "${CMAKE_CURRENT_LIST_DIR}/oracle/oracle.py" $<TARGET_FILE:gpt>
                        "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_BINARY_DIR}/oracle")
else()
  chunkmem_test(example.gpt_oracle LABELS slow COMMAND sh -c "echo 'SKIPPED: no python3 was found' && exit 4")
endif()
