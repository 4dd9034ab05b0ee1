# SPDX-License-Identifier: Apache-2.0
"""The Conan 2 recipe: `conan create .`, then require shardkit/VERSION. Nothing is compiled."""
import pathlib
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy
from conan.tools.layout import basic_layout


class Shardkit(ConanFile):
    name = "shardkit"
    description = "Header-only C++20 library of sharded parameter containers on device meshes"
    license = "Apache-2.0"
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"checked": [True, False]}
    default_options = {"checked": False}
    exports = "meson.build"
    exports_sources = "include/*", "LICENSE"
    no_copy_source = True

    def set_version(self):
        project = (pathlib.Path(self.recipe_folder) / "meson.build").read_text(encoding="utf-8")
        self.version = re.search(r"\bversion: '([^']+)'", project)[1]

    def layout(self):
        basic_layout(self)

    def validate(self):
        check_min_cppstd(self, 20)

    def package_id(self):
        self.info.clear()

    def package(self):
        copy(self, "LICENSE", self.source_folder, str(pathlib.Path(self.package_folder) / "licenses"))
        copy(self, "shardkit/*", str(pathlib.Path(self.source_folder) / "include"),
             str(pathlib.Path(self.package_folder) / "include"))

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.system_libs = ["pthread"]
        if self.options.checked:
            self.cpp_info.defines = ["SHARDKIT_CHECKED=1"]
