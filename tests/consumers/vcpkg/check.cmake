# SPDX-License-Identifier: Apache-2.0
# The portfile with stand-ins for vcpkg's functions, as an overlay port and as one of a registry; and by the tool itself where VCPKG_ROOT names it.
file(READ "${ROOT}/cmake/vcpkg/ports/chunkmem/vcpkg.json" manifest)
string(JSON said GET "${manifest}" version)
if(NOT said VERSION_EQUAL VERSION)
  message(FATAL_ERROR "the port has version ${said}, and this is ${VERSION}")
endif()

set(options -DVERSION=${VERSION} -DGENERATOR=${GENERATOR} -DCOMPILER=${COMPILER} -DBUILD=${BUILD})
run(${CMAKE_COMMAND} -DPORT_DIR=${ROOT}/cmake/vcpkg/ports/chunkmem -DSCRATCH=${scratch}/overlay ${options} -P
    "${ROOT}/tests/consumers/vcpkg/stand_in.cmake")
build_by_cmake("-DCMAKE_PREFIX_PATH=${scratch}/overlay/package")

find_program(git git)
if(git)
  run(${CMAKE_COMMAND} -DURL=file://${ROOT} -DREF=none "-DTO=${scratch}/registry" -P "${ROOT}/cmake/vcpkg/registry.cmake")
  file(READ "${scratch}/registry/versions/c-/chunkmem.json" versions)
  string(JSON tree GET "${versions}" versions 0 git-tree)
  run("${git}" -C "${scratch}/registry" -c user.name=tests -c user.email=tests@localhost commit --quiet -m registry)
  run("${git}" -C "${scratch}/registry" rev-parse HEAD:ports/chunkmem)
  string(STRIP "${output}" output)
  if(NOT output STREQUAL tree)
    message(FATAL_ERROR "the database of versions has ${tree}, git says ${output}")
  endif()
  run(${CMAKE_COMMAND} -DPORT_DIR=${scratch}/registry/ports/chunkmem -DSCRATCH=${scratch}/fetched -DSOURCES=${ROOT} ${options} -P
      "${ROOT}/tests/consumers/vcpkg/stand_in.cmake")
endif()

if(DEFINED ENV{VCPKG_ROOT})
  set(ENV{VCPKG_FORCE_SYSTEM_BINARIES} 1)
  run("$ENV{VCPKG_ROOT}/vcpkg" install chunkmem "--overlay-ports=${ROOT}/cmake/vcpkg/ports" --binarysource=clear "--x-install-root=${scratch}/tool")
  file(REMOVE_RECURSE "${scratch}/build")
  build_by_cmake("-DCMAKE_TOOLCHAIN_FILE=$ENV{VCPKG_ROOT}/scripts/buildsystems/vcpkg.cmake" "-DVCPKG_INSTALLED_DIR=${scratch}/tool"
                 -DVCPKG_MANIFEST_MODE=OFF)
  message(STATUS "vcpkg: the port by stand-ins, and by the tool of VCPKG_ROOT")
else()
  message(STATUS "LEFT OUT: vcpkg itself; the port was tried with stand-ins for its functions (VCPKG_ROOT may name the tool)")
endif()
