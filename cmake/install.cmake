# Headers and a package that `find_package(chunkmem)` finds. A header-only library fits every architecture; before 1.0
# a minor version may break its users.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

target_include_directories(chunkmem INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set(package_folder "${CMAKE_INSTALL_DATADIR}/cmake/chunkmem")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/chunkmem" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")

# The laws of each family of policies, for tests of policies of one's own: the component conformance.
set(laws_folder "${CMAKE_INSTALL_DATADIR}/chunkmem/laws")
set(support "${PROJECT_SOURCE_DIR}/tests/support")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/tests/conformance" DESTINATION "${laws_folder}")
install(DIRECTORY "${support}/oracles" DESTINATION "${laws_folder}/support")
install(FILES ${support}/adversarial.hpp ${support}/catch.hpp ${support}/main.cpp ${support}/plain_model.hpp
              ${support}/poisoned_memory.hpp ${support}/toy_trainer.hpp
        DESTINATION "${laws_folder}/support")

install(TARGETS chunkmem EXPORT chunkmem-targets)
install(EXPORT chunkmem-targets NAMESPACE chunkmem:: DESTINATION "${package_folder}")

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/chunkmem-config.cmake.in"
                              "${PROJECT_BINARY_DIR}/package/chunkmem-config.cmake"
                              INSTALL_DESTINATION "${package_folder}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/chunkmem-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/package/chunkmem-config.cmake"
              "${PROJECT_BINARY_DIR}/package/chunkmem-config-version.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/components.cmake"
        DESTINATION "${package_folder}")
