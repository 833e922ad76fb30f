# SPDX-License-Identifier: Apache-2.0
# The examples of docs/policies, docs/integrating.md, docs/interop.md, docs/pipelines.md and docs/recipes.md are compiled and run.
# Quotations of messages in the first ones are compared with the library.
file(GLOB pages CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/docs/policies/*.md" "${PROJECT_SOURCE_DIR}/docs/integrating.md" "${PROJECT_SOURCE_DIR}/docs/interop.md"
     "${PROJECT_SOURCE_DIR}/docs/pipelines.md" "${PROJECT_SOURCE_DIR}/docs/recipes.md")
set(extracted "${PROJECT_BINARY_DIR}/generated/pages.cpp")
add_custom_command(OUTPUT "${extracted}" DEPENDS ${pages} "${CMAKE_CURRENT_LIST_DIR}/extract.py" VERBATIM
                   COMMAND "${CHUNKMEM_PYTHON}" -B "${CMAKE_CURRENT_LIST_DIR}/extract.py" --out "${extracted}"
                   COMMAND ${CMAKE_COMMAND} -E touch "${extracted}")
# The examples in the comments of public functions, a file for each.
set(examples "${PROJECT_BINARY_DIR}/generated/api_examples")
file(GLOB_RECURSE public_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/chunkmem/*.hpp")
add_custom_command(OUTPUT "${examples}/written" DEPENDS ${public_headers} "${CMAKE_CURRENT_LIST_DIR}/api_examples.py" VERBATIM
                   COMMAND "${CHUNKMEM_PYTHON}" -B "${CMAKE_CURRENT_LIST_DIR}/api_examples.py" --out "${examples}"
                   COMMAND ${CMAKE_COMMAND} -E touch "${examples}/written")
if(chunkmem_why_no_checkpoint)
  chunkmem_skipped_test(pages "${chunkmem_why_no_checkpoint}")
else()
  chunkmem_program(test_pages "${extracted}" "${examples}/written" "${CMAKE_CURRENT_LIST_DIR}/api_examples.cpp"
                   "${CMAKE_CURRENT_LIST_DIR}/configurator_examples.cpp")
  target_include_directories(test_pages PRIVATE "${examples}" "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(test_pages PRIVATE chunkmem_test_main chunkmem::checkpoint)
  chunkmem_test(pages COMMAND test_pages)
endif()

# The checkers of the pages: each is a script of this folder, and docs.checkers plants a mistake for each of them.
set(check "${CHUNKMEM_PYTHON}" -B)
chunkmem_test(pages.sentences COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/sentences.py")
chunkmem_test(docs.policies COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/policies.py")
chunkmem_test(docs.steps COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/steps.py")
chunkmem_test(docs.programs COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/programs.py")
chunkmem_test(docs.links COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/links.py")
chunkmem_test(docs.api COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/api_names.py")
chunkmem_test(docs.api_examples LABELS figures COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/api_examples.py")
chunkmem_test(docs.toctrees COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/toctrees.py")
chunkmem_test(docs.floors COMMAND ${check} "${PROJECT_SOURCE_DIR}/tools/floors.py" --check)
chunkmem_test(docs.commands COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/commands.py")
chunkmem_test(docs.numbers LABELS figures COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/numbers.py")
chunkmem_test(docs.checkers COMMAND ${check} "${CMAKE_CURRENT_LIST_DIR}/check_the_checkers.py")

# Every public comment, read by Doxygen: a warning is an error. The site itself is made by the target docs, which installs Sphinx
# from PyPI and is therefore no test.
add_custom_target(docs COMMAND sh "${PROJECT_SOURCE_DIR}/tools/site.sh" "${PROJECT_BINARY_DIR}/site" VERBATIM USES_TERMINAL)
find_program(CHUNKMEM_DOXYGEN NAMES doxygen DOC "Doxygen, for the site of the docs")
mark_as_advanced(CHUNKMEM_DOXYGEN)
if(CHUNKMEM_DOXYGEN)
  chunkmem_test(docs.site LABELS slow TIMEOUT 600
                COMMAND ${CMAKE_COMMAND} -E chdir "${PROJECT_SOURCE_DIR}" ${CMAKE_COMMAND} -E env "CHUNKMEM_SITE=${PROJECT_BINARY_DIR}/doxygen"
                        "${CHUNKMEM_DOXYGEN}" docs/Doxyfile)
else()
  chunkmem_skipped_test(docs.site "no doxygen was found (Debian: apt-get install doxygen)" LABELS slow)
endif()

# Blocks that need surroundings, and checkpoints: compiled under the label slow.
include("${CMAKE_CURRENT_LIST_DIR}/page_block.cmake")
set(blocks "${PROJECT_BINARY_DIR}/generated/blocks")
chunkmem_page_block(README.md "using mine =" "${blocks}/policies.inc")
chunkmem_page_block(README.md "cm::memory_requirement need" "${blocks}/rehearsal.inc")
chunkmem_page_block(docs/site/index.md "m.rehearse(train_one_step)" "${blocks}/start_page.inc")
chunkmem_page_block(docs/errors.md "to_string(m.residency())" "${blocks}/errors.inc")
chunkmem_page_block(docs/training.md "cm::gradient::in_place> m" "${blocks}/sixteen_bits.inc")
chunkmem_page_block(docs/training.md "cm::bf16::from_bits" "${blocks}/sixteen_bit_values.inc")
chunkmem_page_block(docs/training.md "cm::optimizer::early_updates early" "${blocks}/early_updates.inc")
chunkmem_page_block(docs/training.md "cm::optimizer::split_updates<" "${blocks}/split_updates.inc")
chunkmem_page_block(docs/ranks.md "cm::sharded_model<memory_type" "${blocks}/ranks.inc")
chunkmem_page_block(docs/ranks.md "cm::optimizer::late_updates late{m, adam, pool}" "${blocks}/late_ranks.inc")
chunkmem_page_block(docs/ranks.md "m.broadcast(" "${blocks}/first_values.inc")
chunkmem_page_block(docs/checkpoints.md "cm::checkpoint::save(m, folder)" "${blocks}/checkpoints.inc")
chunkmem_page_block(docs/activations.md "if (set_slope(" "${blocks}/other_steps.inc")
chunkmem_page_block(docs/activations.md "auto iteration = siamese" "${blocks}/instances.inc")
chunkmem_page_block(docs/activations.md "decoder.reads(saved)" "${blocks}/skips.inc")
chunkmem_page_block(docs/activations.md "const auto mean = layer.saves" "${blocks}/active_rows.inc")
chunkmem_page_block(docs/activations.md "network.measure_again()" "${blocks}/new_plans.inc")
chunkmem_page_block(docs/checkpoints.md "found.names.begun_anew" "${blocks}/partial_load.inc")
chunkmem_page_block(docs/checkpoints.md "file_name_rule> gpt2" "${blocks}/foreign_names.inc")
chunkmem_page_block(docs/gpu.md "my_kernel<<<" "${blocks}/gpu.inc")
chunkmem_page_block(docs/gpu.md "adam.step(" "${blocks}/gpu_updates.inc")
chunkmem_page_block(docs/gpu.md "device_updates<" "${blocks}/gpu_device_updates.inc")
chunkmem_page_block(docs/gpu.md "source::slab(mapping" "${blocks}/gpu_memory.inc")
chunkmem_page_block(docs/gpu.md "resize_to_free(" "${blocks}/gpu_rest.inc")
chunkmem_expect_all_blocks(README.md docs/site/index.md docs/errors.md docs/training.md docs/ranks.md docs/checkpoints.md docs/gpu.md)
if(chunkmem_why_no_checkpoint)
  chunkmem_skipped_test(pages.blocks "${chunkmem_why_no_checkpoint}" LABELS slow)
else()
  chunkmem_test(pages.blocks LABELS slow
                COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only -Wall -Wextra "-I${PROJECT_SOURCE_DIR}/include" "-I${blocks}"
                        "-I${CHUNKMEM_JSON_INCLUDE}" "${CMAKE_CURRENT_LIST_DIR}/blocks.cpp")
endif()
if(chunkmem_nvcc)
  set(host "")
  if(CMAKE_CUDA_HOST_COMPILER)
    set(host "-ccbin=${CMAKE_CUDA_HOST_COMPILER}")
  endif()
  chunkmem_test(pages.blocks.cuda LABELS slow
                COMMAND "${chunkmem_nvcc}" ${host} -std=c++20 -arch=sm_90 "-I${PROJECT_SOURCE_DIR}/include" "-I${blocks}" -c
                        -x cu "${CMAKE_CURRENT_LIST_DIR}/gpu_blocks.cuh" -o "${blocks}/blocks.o")
else()
  chunkmem_skipped_test(pages.blocks.cuda "${chunkmem_why_no_nvcc}" LABELS slow)
endif()
