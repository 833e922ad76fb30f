# SPDX-License-Identifier: Apache-2.0
import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout


class ConsumerOfChunkmem(ConanFile):
    settings = "os", "arch", "compiler", "build_type"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False  # nothing is written beside the sources
        options = self.dependencies["chunkmem"].options
        components = {"checkpoint": ["JSON", "XXHASH"], "json": ["JSON"], "dlpack": ["DLPACK"]}
        wanted = [name for name in components if options.get_safe(f"with_{name}")]
        toolchain.cache_variables["WANTED_COMPONENTS"] = ";".join(wanted)
        toolchain.cache_variables["WANTED_LIBRARIES"] = ";".join(library for name in wanted for library in components[name])
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        if can_run(self):
            self.run(os.path.join(self.cpp.build.bindir, "consumer"), env="conanrun")
