# SPDX-License-Identifier: Apache-2.0
# Headers, machines of the planner, and packages that `find_package(chunkmem)` and pkg-config find. A header-only library fits every
# architecture; before 1.0 a minor version may break its users.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

target_include_directories(chunkmem INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set(package_folder "${CMAKE_INSTALL_DATADIR}/cmake/chunkmem")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/chunkmem" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/examples/max_model/machines" DESTINATION "${CMAKE_INSTALL_DATADIR}/chunkmem" FILES_MATCHING PATTERN "*.json")
install(PROGRAMS "${PROJECT_SOURCE_DIR}/tools/plot.py" DESTINATION "${CMAKE_INSTALL_DATADIR}/chunkmem") # draws what trace::chrome_sink wrote
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/licenses/chunkmem")

# The laws of each family of policies, for tests of user-defined policies: the component conformance.
set(laws_folder "${CMAKE_INSTALL_DATADIR}/chunkmem/laws")
set(support "${PROJECT_SOURCE_DIR}/tests/support")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/tests/conformance" DESTINATION "${laws_folder}")
install(DIRECTORY "${support}/oracles" DESTINATION "${laws_folder}/support")
install(FILES ${support}/adversarial.hpp ${support}/catch.hpp ${support}/hostile.hpp ${support}/main.cpp
              ${support}/managed_parameters.hpp ${support}/mixed_model.hpp ${support}/mixed_reference.hpp
              ${support}/mixed_trainer.hpp ${support}/plain_optimizer.hpp ${support}/plain_parameters.hpp
              ${support}/poisoned_memory.hpp ${support}/rank_schedule.hpp ${support}/rank_threads.hpp ${support}/refusal.hpp
              ${support}/trainer_calls.hpp
        DESTINATION "${laws_folder}/support")

install(TARGETS chunkmem EXPORT chunkmem-targets)
install(EXPORT chunkmem-targets NAMESPACE chunkmem:: DESTINATION "${package_folder}")

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/chunkmem-config.cmake.in"
                              "${PROJECT_BINARY_DIR}/package/chunkmem-config.cmake"
                              INSTALL_DESTINATION "${package_folder}" PATH_VARS laws_folder)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/chunkmem-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/package/chunkmem-config.cmake"
              "${PROJECT_BINARY_DIR}/package/chunkmem-config-version.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/components.cmake" "${PROJECT_SOURCE_DIR}/cmake/compiled_manager.cpp"
              "${PROJECT_SOURCE_DIR}/cmake/compiled_step.cpp"
        DESTINATION "${package_folder}")

# For Makefiles. The prefix follows from the folder of the file, so the package may be moved.
file(RELATIVE_PATH prefix_from_pc "/${CMAKE_INSTALL_DATADIR}/pkgconfig" "/")
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/package/chunkmem.pc" @ONLY CONTENT [[
prefix=${pcfiledir}/@prefix_from_pc@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: chunkmem
Description: @PROJECT_DESCRIPTION@
Version: @PROJECT_VERSION@
Cflags: -I${includedir} -pthread
Libs: -pthread
]])
install(FILES "${PROJECT_BINARY_DIR}/package/chunkmem.pc" DESTINATION "${CMAKE_INSTALL_DATADIR}/pkgconfig")
