# SPDX-License-Identifier: Apache-2.0
"""check_forms.py ROOT -- COMPILER [flags]: what a file of the compiled form reads, refuses and links with.

README's first program compiles in at most LIMIT times ten standard headers, each entry header alone compiles, by clang
and nvcc all together, every other one is refused with one sentence, a core with -ffast-math likewise, and files of forms
that do not match are refused by the linker. The trainer after.cu of examples/cuda_trainer is not much more for a compiler than before.cu, and a header-only
program compiles what it calls."""
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "headers"))
import check_alone

# Times the processor time of a file that includes ten of the standard library's headers; at rest it takes 1.2.
LIMIT = 1.5
# Functions that after.cu's file has, and lines that it reads, times those of before.cu: 1.6 and 1.1. nvcc takes as
# long for it. Header-only it has 8 times the functions.
MOST_FUNCTIONS = 2.5
MOST_LINES = 1.5
# Functions of README's first program header-only, without optimisation: 6,750, which are half its time of compilation.
MOST_HEADER_ONLY = 7400
STANDARD = "algorithm chrono functional map memory optional ranges string thread vector".split()
ENTRIES = ("shardkit/shardkit.hpp", "shardkit/adafactor.hpp", "shardkit/checkpoint.hpp", "shardkit/local_shards.hpp", "shardkit/moving_average.hpp",
           "shardkit/context_parallel.hpp", "shardkit/expert_parallel.hpp", "shardkit/tensor_parallel.hpp",
           "shardkit/muon.hpp", "shardkit/nccl.hpp", "shardkit/plan.hpp", "shardkit/reshard.hpp", "shardkit/rules.hpp", "shardkit/schedule.hpp", "shardkit/verbs.hpp", "shardkit/verify.hpp",
           "shardkit/backend/cub/kernels.hpp", "shardkit/optim/options.hpp", "shardkit/backend/threads/launch_options.hpp", "shardkit/sharded/list_shards.hpp")
REFUSED = ("shardkit/optim/adamw.hpp", "shardkit/rank/gather_values.hpp", "shardkit/rank/rank_resources.hpp")
SENTENCE = "include shardkit/shardkit.hpp"
OVER_NCCL = """#include <shardkit/nccl.hpp>
int main() { shardkit::nccl::run(shardkit::DeviceMesh<1>{}, [](shardkit::Rank&) {}); }
"""


class Compiler:
    def __init__(self, root, command, folder):
        self.command = [*command, f"-I{root / 'include'}"]
        self.folder = folder

    def run(self, *words, fails=False):
        done = subprocess.run([*self.command, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        if (done.returncode != 0) != fails:
            sys.exit(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stdout[:4000]}")
        return done.stdout

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def seconds(self, *words):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        self.run(*words)
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def check_time(compiler, program):
    unit = compiler.write("unit.cpp", "".join(f"#include <{name}>\n" for name in STANDARD) + "int main() {}\n")
    out = compiler.folder / "timed.o"
    took = {unit: [], program: []}
    for _ in range(4):
        for source, times in took.items():
            times.append(compiler.seconds("-O2", "-DSHARDKIT_COMPILED", "-c", source, "-o", out))
    ratio = min(took[program]) / min(took[unit])
    print(f"README's first program: {min(took[program]):.2f} s, {ratio:.2f} times ten standard headers")
    if ratio > LIMIT:
        sys.exit(f"{ratio:.2f} times ten standard headers, expected at most {LIMIT}")


def check_header_only(compiler, program):
    """What a program does not call is not compiled."""
    out = compiler.folder / "header_only.o"
    compiler.run("-O0", "-c", program, "-o", out)
    names = subprocess.run(["nm", out], stdout=subprocess.PIPE, text=True, check=True).stdout
    functions = len(re.findall(r" [tTW] ", names))
    print(f"README's first program header-only: {functions} functions")
    if functions > MOST_HEADER_ONLY:
        sys.exit(f"{functions} functions, expected at most {MOST_HEADER_ONLY}")


def check_trainer(root, compiler):
    """Without device code: that of before.cu is compiled with it, and that of after.cu in a file of its own."""
    example = root / "examples/cuda_trainer"
    before = compiler.write("before.cu", (example / "before.cu").read_text(encoding="utf-8").replace('#include "launch.cuh"\n', ""))
    flags = ("-x", "c++", "-O2", "-I", example, "-I", root / "tests/standin/include")
    functions, lines = [], []
    for source, form in ((before, ()), (example / "after.cu", ("-DSHARDKIT_COMPILED",))):
        out = compiler.folder / "trainer.o"
        compiler.run(*flags, *form, "-c", source, "-o", out)
        names = subprocess.run(["nm", out], stdout=subprocess.PIPE, text=True, check=True).stdout
        functions.append(len(re.findall(r" [tTW] ", names)))
        lines.append(compiler.run(*flags, *form, "-E", "-P", source).count("\n"))
    print(f"after.cu: {functions[1]} functions and {lines[1]} lines, before.cu: {functions[0]} and {lines[0]}")
    if functions[1] > MOST_FUNCTIONS * functions[0] or lines[1] > MOST_LINES * lines[0]:
        sys.exit(f"expected at most {MOST_FUNCTIONS} times the functions and {MOST_LINES} times the lines")


def check_headers(root, compiler):
    parts = sorted(path.relative_to(root / "include").as_posix() for path in (root / "include/shardkit/compiled").glob("*.hpp"))
    read_by_trainers = [part for part in parts if not re.search(r"/(core\w*|define_\w+)\.hpp$", part)]
    if "shardkit/compiled/trainer.hpp" not in read_by_trainers:
        sys.exit(f"shardkit/compiled has {read_by_trainers}: this check looks for headers that are gone")
    check_alone.check([*compiler.command, "-Wall", "-Wextra", "-Werror", "-DSHARDKIT_COMPILED"], compiler.folder,
                      [*ENTRIES, *read_by_trainers])
    # Other compilers read them all as one.
    source = compiler.write("entries.cu", "".join(f"#include <{header}>\n" for header in (*ENTRIES, *read_by_trainers)))
    for name, flags in (("clang++", ("-x", "c++", "-Wall", "-Wextra", "-Werror", "-fsyntax-only")),
                        ("nvcc", ("--expt-relaxed-constexpr", "-Werror", "all-warnings", "-cuda", "-o", compiler.folder / "entries.ii"))):
        if path := shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin"):
            Compiler(root, [path, "-std=c++20"], compiler.folder).run(*flags, "-DSHARDKIT_COMPILED", source)
    for header in REFUSED:
        source = compiler.write("refused.cpp", f"#include <{header}>\n")
        said = compiler.run("-DSHARDKIT_COMPILED", "-fsyntax-only", source, fails=True)
        if SENTENCE not in said or said.count("error:") != 1:
            sys.exit(f"{header}: expected one sentence with '{SENTENCE}':\n{said[:2000]}")


def check_core_flags(compiler):
    """The core, whose bits are those of all files, is refused with -ffast-math and its kin; a trainer's file is not."""
    core = compiler.write("core.cpp", "#include <shardkit/compiled.hpp>\n")
    for flag in ("-ffast-math", "-fassociative-math -fno-signed-zeros -fno-trapping-math"):
        said = compiler.run(*flag.split(), "-O2", "-E", core, fails=True)
        if "shardkit's core is compiled with -ffast-math" not in said or said.count("error:") != 1:
            sys.exit(f"{flag}: expected one sentence about it:\n{said[-2000:]}")


def check_links(compiler, program):
    """A form that a file was compiled in is in the names that it asks the linker for."""
    forms = {"compiled": ("-DSHARDKIT_COMPILED",), "checked": ("-DSHARDKIT_COMPILED", "-DSHARDKIT_CHECKED=1")}
    asked = {}
    for form, flags in forms.items():
        out = compiler.folder / f"{form}.o"
        compiler.run("-O0", *flags, "-c", program, "-o", out)
        said = compiler.run(out, "-pthread", "-o", compiler.folder / "refused", fails=True)
        asked[form] = set(re.findall(r"undefined reference to `(shardkit::(?!detail::)(?:\w+::)*compiled(?:_form)?::[^(]*)", said))
        if not asked[form]:
            sys.exit(f"a file of the form {form} is linked without the core:\n{said[:2000]}")
    both = asked["compiled"] & asked["checked"]
    if both or not all("checked_build" in name for name in asked["checked"]):
        sys.exit(f"a checked file is linked with a core that is not: {sorted(both)}")


def main():
    split = sys.argv.index("--")
    root = pathlib.Path(sys.argv[1])
    page = (root / "README.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="shardkit-forms-") as name:
        compiler = Compiler(root, sys.argv[split + 1:], pathlib.Path(name))
        program = compiler.write("readme.cpp", re.search(r"```cpp program\n(.*?)```", page, re.DOTALL)[1])
        check_headers(root, compiler)
        check_core_flags(compiler)
        check_links(compiler, program)
        check_links(compiler, compiler.write("over_nccl.cpp", OVER_NCCL))
        check_header_only(compiler, program)
        check_trainer(root, compiler)
        check_time(compiler, program)


if __name__ == "__main__":
    main()
