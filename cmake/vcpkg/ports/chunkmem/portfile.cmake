# SPDX-License-Identifier: Apache-2.0
# An overlay port in a checkout uses the sources around it. In a registry (see ../../registry.cmake) they are fetched.
set(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../..")
if(EXISTS "${SOURCE_PATH}/include/chunkmem/chunkmem.hpp")
  get_filename_component(SOURCE_PATH "${SOURCE_PATH}" ABSOLUTE)
else()
  vcpkg_from_git(OUT_SOURCE_PATH SOURCE_PATH URL "@CHUNKMEM_URL@" REF "@CHUNKMEM_REF@")
endif()

set(VCPKG_BUILD_TYPE release) # headers alone
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DCHUNKMEM_BUILD_TESTS=OFF -DCHUNKMEM_BUILD_EXAMPLES=OFF -DCHUNKMEM_BUILD_BENCH=OFF -DCHUNKMEM_INSTALL=ON -DCHUNKMEM_WITH_CUDA=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/chunkmem)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/licenses" "${CURRENT_PACKAGES_DIR}/share/cmake" "${CURRENT_PACKAGES_DIR}/lib")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
