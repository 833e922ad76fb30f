# SPDX-License-Identifier: Apache-2.0
import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy, load, rmdir


class Chunkmem(ConanFile):
    """Headers, and the package's own CMake files: components find CUDA, NCCL, MPI and the like on the system, where they are asked for."""

    name = "chunkmem"
    description = "Chunk-based heterogeneous memory for training, header-only"
    license = "Apache-2.0"
    topics = ("training", "memory", "offloading", "cuda", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"with_checkpoint": [True, False], "with_json": [True, False], "with_dlpack": [True, False]}
    default_options = {"with_checkpoint": False, "with_json": False, "with_dlpack": False}
    no_copy_source = True
    exports_sources = "CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "examples/max_model/machines/*", "tools/plot.py", "tests/conformance/*", "tests/support/*"
    test_package_folder = os.path.join("tests", "consumers", "conan")

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "include", "chunkmem", "core", "version.hpp"))
        number = int(re.search(r"^#define CHUNKMEM_VERSION (\d+)$", text, re.MULTILINE).group(1))
        self.version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def requirements(self):
        # CUDA, NCCL, CCCL and MPI are the system's: their components look for them.
        if self.options.with_checkpoint or self.options.with_json:
            self.requires("nlohmann_json/[>=3.11 <4]", transitive_headers=True)
        if self.options.with_checkpoint:
            self.requires("xxhash/[>=0.8 <1]", transitive_headers=True)
        if self.options.with_dlpack:
            self.requires("dlpack/[>=0.6]", transitive_headers=True)

    def validate(self):
        check_min_cppstd(self, 20)

    def package_id(self):
        self.info.clear()

    def generate(self):
        toolchain = CMakeToolchain(self)
        for switch in ("TESTS", "EXAMPLES", "BENCH"):
            toolchain.cache_variables[f"CHUNKMEM_BUILD_{switch}"] = False
        toolchain.cache_variables["CHUNKMEM_INSTALL"] = True
        toolchain.cache_variables["CHUNKMEM_WITH_CUDA"] = "OFF"
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        rmdir(self, os.path.join(self.package_folder, "share", "licenses"))

    def package_info(self):
        # The package brings its own files for find_package, with the components of any other installation.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "chunkmem")]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread"]
