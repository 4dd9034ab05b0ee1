# SPDX-License-Identifier: Apache-2.0
"""The Conan 2 recipe: `conan create .`, then require shardkit/VERSION. Nothing is compiled, unless `-o compiled=True` asks
for the core of the compiled form, which is then the target shardkit::compiled, and `-o mpi=True` and `-o nccl=True` for
shardkit::compiled_mpi and shardkit::compiled_nccl."""
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
    options = dict.fromkeys(("checked", "compiled", "mpi", "nccl"), [True, False])
    default_options = dict.fromkeys(options, False)
    options["gpu_architectures"] = ["ANY"]  # the newest last, whose PTX newer ones take
    default_options["gpu_architectures"] = "80,90,100"
    exports = "meson.build"
    exports_sources = "include/*", "cmake/*", "LICENSE"
    no_copy_source = True

    def set_version(self):
        project = (pathlib.Path(self.recipe_folder) / "meson.build").read_text(encoding="utf-8")
        self.version = re.search(r"\bversion: '([^']+)'", project)[1]

    def configure(self):
        if self.options.compiled:
            self.package_type = "static-library"
        if not self.options.compiled or not self.options.nccl:
            del self.options.gpu_architectures

    def engines(self):
        """The engines for which there is a core, beside those of one process."""
        return [engine for engine in ("mpi", "nccl") if self.options.compiled and self.options.get_safe(engine)]

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
            for engine in self.engines():
                toolchain.cache_variables[f"SHARDKIT_{engine.upper()}"] = True
            if "nccl" in self.engines():
                # CMake takes it for nvcc's, of which older ones do not know C++20: the targets ask for it themselves.
                toolchain.blocks.remove("cppstd")
                *others, newest = str(self.options.gpu_architectures).split(",")
                toolchain.cache_variables["CMAKE_CUDA_ARCHITECTURES"] = ";".join([*(f"{each}-real" for each in others), newest])
            toolchain.generate()

    def build(self):
        if self.options.compiled:
            cmake = CMake(self)
            cmake.configure(build_script_folder="cmake")
            for target in ("", *(f"_{engine}" for engine in self.engines())):
                cmake.build(target=f"shardkit_compiled{target}")

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
        for engine in self.engines():
            over = self.cpp_info.components[f"compiled_{engine}"]
            over.set_property("cmake_target_name", f"shardkit::compiled_{engine}")
            over.bindirs = []
            over.libs = [f"shardkit_compiled_{engine}"]
            over.requires = ["compiled"]
            if engine == "nccl":
                over.system_libs = ["nccl", "cudart_static", "rt", "dl"]  # where the linker finds them
