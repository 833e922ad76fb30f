# SPDX-License-Identifier: Apache-2.0
# The package as it is installed: headers, package files, licence, machines, the script that draws runs, and the laws of policies; nothing else.
install_to("${scratch}/prefix")
file(GLOB_RECURSE installed RELATIVE "${scratch}/prefix" "${scratch}/prefix/*")
list(FILTER installed EXCLUDE REGEX
     "^(include/chunkmem/|share/cmake/chunkmem/|share/chunkmem/machines/|share/chunkmem/laws/|share/chunkmem/plot[.]py$|share/licenses/chunkmem/|share/pkgconfig/chunkmem[.]pc$)")
if(installed)
  message(FATAL_ERROR "installed was also ${installed}")
endif()
foreach(file IN ITEMS include/chunkmem/chunkmem.hpp share/chunkmem/machines/gh200.json share/licenses/chunkmem/LICENSE share/pkgconfig/chunkmem.pc)
  if(NOT EXISTS "${scratch}/prefix/${file}")
    message(FATAL_ERROR "not installed was ${file}")
  endif()
endforeach()
build_by_cmake("-DCMAKE_PREFIX_PATH=${scratch}/prefix" -DWANTED_VERSION=${VERSION})
