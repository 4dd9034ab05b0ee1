# SPDX-License-Identifier: Apache-2.0
"""The Conan 2 recipe: `conan create .`, then require shardkit/VERSION. Nothing is compiled, unless `-o compiled=True` asks
for the core of the compiled form, which is then the target shardkit::compiled, and `-o mpi=True` for
shardkit::compiled_mpi."""
import pathlib
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy


class Shardkit(ConanFile):
    name = "shardkit"
    description = "Header-only C++20 library of sharded parameter containers on device meshes"
    license = "Apache-2.0"
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {name: [True, False] for name in ("checked", "compiled", "mpi")}
    default_options = dict.fromkeys(options, False)
    exports = "meson.build"
    exports_sources = "include/*", "cmake/*", "LICENSE"
    no_copy_source = True

    def set_version(self):
        project = (pathlib.Path(self.recipe_folder) / "meson.build").read_text(encoding="utf-8")
        self.version = re.search(r"\bversion: '([^']+)'", project)[1]

    def configure(self):
        if self.options.compiled:
            self.package_type = "static-library"
        else:
            del self.options.mpi  # of the core alone

    def with_mpi(self):
        return self.options.get_safe("mpi", False)

    def layout(self):
        cmake_layout(self, src_folder=".")

    def validate(self):
        check_min_cppstd(self, 20)

    def package_id(self):
        if not self.info.options.compiled:
            self.info.clear()

    def generate(self):
        if self.options.compiled:
            toolchain = CMakeToolchain(self)
            if self.options.checked:
                toolchain.preprocessor_definitions["SHARDKIT_CHECKED"] = 1
            toolchain.cache_variables["SHARDKIT_MPI"] = bool(self.with_mpi())
            toolchain.generate()

    def build(self):
        if self.options.compiled:
            cmake = CMake(self)
            cmake.configure(build_script_folder="cmake")
            cmake.build(target="shardkit_compiled_mpi" if self.with_mpi() else "shardkit_compiled")

    def package(self):
        copy(self, "LICENSE", self.source_folder, str(pathlib.Path(self.package_folder) / "licenses"))
        copy(self, "shardkit/*", str(pathlib.Path(self.source_folder) / "include"),
             str(pathlib.Path(self.package_folder) / "include"))
        for library in ("*.a", "*.lib"):
            copy(self, library, self.build_folder, str(pathlib.Path(self.package_folder) / "lib"), keep_path=False)

    def package_info(self):
        self.cpp_info.set_property("cmake_target_name", "shardkit::all")  # of all components
        headers = self.cpp_info.components["shardkit"]
        headers.set_property("cmake_target_name", "shardkit::shardkit")
        headers.bindirs = []
        headers.libdirs = []
        headers.system_libs = ["pthread"]
        if self.options.checked:
            headers.defines = ["SHARDKIT_CHECKED=1"]
        if self.options.compiled:
            compiled = self.cpp_info.components["compiled"]
            compiled.set_property("cmake_target_name", "shardkit::compiled")
            compiled.bindirs = []
            compiled.libs = ["shardkit_compiled"]
            compiled.defines = ["SHARDKIT_COMPILED"]
            compiled.requires = ["shardkit"]
        if self.with_mpi():
            over_mpi = self.cpp_info.components["compiled_mpi"]
            over_mpi.set_property("cmake_target_name", "shardkit::compiled_mpi")
            over_mpi.bindirs = []
            over_mpi.libs = ["shardkit_compiled_mpi"]
            over_mpi.requires = ["compiled"]
