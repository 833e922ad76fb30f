# SPDX-License-Identifier: Apache-2.0
# Writes a vcpkg registry of one port, to be committed as a git repository of its own or used as a folder.
#   cmake -DURL=<git address of the sources> -DREF=<commit> -DTO=<new folder> -P registry.cmake
# In the trainer's vcpkg-configuration.json: {"registries": [{"kind": "git", "repository": "<address of the registry>",
# "baseline": "<its commit>", "packages": ["chunkmem"]}]}
cmake_minimum_required(VERSION 3.25)
foreach(word IN ITEMS URL REF TO)
  if("${${word}}" STREQUAL "")
    message(FATAL_ERROR "usage: cmake -DURL=<git address> -DREF=<commit> -DTO=<new folder> -P registry.cmake")
  endif()
endforeach()
if(EXISTS "${TO}")
  message(FATAL_ERROR "there is ${TO} already (name a folder that is not there yet)")
endif()
find_program(git git REQUIRED)

set(port "${CMAKE_CURRENT_LIST_DIR}/ports/chunkmem")
file(COPY "${port}" DESTINATION "${TO}/ports")
file(READ "${port}/portfile.cmake" text)
string(REPLACE "@CHUNKMEM_URL@" "${URL}" text "${text}")
string(REPLACE "@CHUNKMEM_REF@" "${REF}" text "${text}")
file(WRITE "${TO}/ports/chunkmem/portfile.cmake" "${text}")

# The database of versions names the port by the hash that git gives its folder.
function(run_git out)
  execute_process(COMMAND "${git}" -C "${TO}" ${ARGN} OUTPUT_VARIABLE said OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(${out} "${said}" PARENT_SCOPE)
endfunction()
run_git(ignored init --quiet)
run_git(ignored add ports)
run_git(tree write-tree --prefix=ports/chunkmem/)
file(READ "${port}/vcpkg.json" manifest)
string(JSON version GET "${manifest}" version)
file(WRITE "${TO}/versions/baseline.json" "{\"default\": {\"chunkmem\": {\"baseline\": \"${version}\", \"port-version\": 0}}}\n")
file(WRITE "${TO}/versions/c-/chunkmem.json" "{\"versions\": [{\"version\": \"${version}\", \"port-version\": 0, \"git-tree\": \"${tree}\"}]}\n")
run_git(ignored add versions)
message(STATUS "a registry with chunkmem ${version} (${tree}) is in ${TO}: commit it")
