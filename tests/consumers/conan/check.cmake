# SPDX-License-Identifier: Apache-2.0
# `conan create` with no remote and a home of its own: packs, and builds this folder as its test package.
if(NOT CONAN)
  skip("no conan was found (pip install conan; CHUNKMEM_CONAN may name it)")
endif()
set(ENV{CONAN_HOME} "${scratch}/home")
set(ENV{CXX} "${COMPILER}")
run("${CONAN}" --version)
if(NOT output MATCHES "version 2")
  skip("Conan 2 is needed, found was ${output}")
endif()
run("${CONAN}" profile detect)
run("${CONAN}" create "${ROOT}" -nr -s compiler.cppstd=20 -c "tools.cmake.cmake_layout:test_folder=${scratch}/test")
if(NOT output MATCHES "loads: lru 3, fifo 4")
  message(FATAL_ERROR "the test package did not run:\n${output}")
endif()
run("${CONAN}" list "chunkmem/${VERSION}:*")
if(NOT output MATCHES "da39a3ee5e6b4b0d3255bfef95601890afd80709")
  message(FATAL_ERROR "the id of the package is not the one of headers alone:\n${output}")
endif()

# An optional part needs its library, which no remote provides.
execute_process(COMMAND "${CONAN}" graph info "${ROOT}" -nr -s compiler.cppstd=20 -o "&:with_json=True" RESULT_VARIABLE status OUTPUT_VARIABLE output
                ERROR_VARIABLE output)
if(status EQUAL 0 OR NOT output MATCHES "nlohmann_json")
  message(FATAL_ERROR "with_json asks for nothing:\n${output}")
endif()

# Stand-ins of those libraries have the names of their headers, and only the content that the small program of each
# component needs.
set(text_of_nlohmann_json "namespace nlohmann { struct json { bool empty() const { return true; } }; }")
set(text_of_xxhash "inline unsigned long XXH3_64bits(const void*, unsigned long) { return 1; }")
set(text_of_dlpack "enum { kDLCPU }; struct DLDevice { int type, id; }; struct DLTensor { DLDevice device; int ndim; };")
string(APPEND text_of_dlpack " struct DLManagedTensor { DLTensor dl_tensor; };")
foreach(library IN ITEMS "nlohmann_json/3.11.3 nlohmann/json.hpp" "xxhash/0.8.2 xxhash.h" "dlpack/0.8 dlpack/dlpack.h")
  string(REGEX MATCH "^(.+)/(.+) (.+)$" all "${library}")
  file(WRITE "${scratch}/${CMAKE_MATCH_1}/conanfile.py"
"import os
from conan import ConanFile
from conan.tools.files import save
class StandIn(ConanFile):
    name = '${CMAKE_MATCH_1}'
    version = '${CMAKE_MATCH_2}'
    package_type = 'header-library'
    def package(self):
        save(self, os.path.join(self.package_folder, 'include', '${CMAKE_MATCH_3}'), '${text_of_${CMAKE_MATCH_1}}')
")
  run("${CONAN}" create "${scratch}/${CMAKE_MATCH_1}" -nr)
endforeach()
foreach(part IN ITEMS "checkpoint;XXHASH" "json;JSON" "dlpack;DLPACK")
  list(GET part 0 component)
  list(GET part 1 library)
  run("${CONAN}" create "${ROOT}" -nr -s compiler.cppstd=20 -o "&:with_${component}=True" -c "tools.cmake.cmake_layout:test_folder=${scratch}/test")
  if(NOT output MATCHES "${library} is Conan's" OR NOT output MATCHES "loads: lru 3, fifo 4")
    message(FATAL_ERROR "with_${component} does not bring its library:\n${output}")
  endif()
endforeach()
