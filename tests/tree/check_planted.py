# SPDX-License-Identifier: Apache-2.0
"""Plants one fault per check in a copy of the tree and expects check.py to find it, by its message; without a check it says
how it is used."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

import check as checks

HEADER = "// SPDX-License-Identifier: Apache-2.0\n#pragma once\n"


PUBLIC = "namespace shardkit {\n/// A planted name. And more.\nstruct Planted {};\n}\n"


def append(path, text):
    """Returns what was there; None where nothing was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_bytes() if path.exists() else None
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)
    return before


def restore(path, before):
    if before is None:
        path.unlink()
    else:
        path.write_bytes(before)


PLANTS = [
    ("lists", "include/shardkit/core/planted.hpp", HEADER, "lacks shardkit/core/planted.hpp"),
    ("lists", "tests/unit/core/planted_test.cpp", HEADER, "lacks unit/core/planted_test.cpp"),
    ("lists", "tests/unit/core/planted_test.cpp", HEADER, "planted_test.cpp lacks namespace planted_test"),
    ("lists", "tests/compile_fail/planted.cpp", HEADER, "lacks compile_fail/planted.cpp"),
    ("lists", "examples/99_planted.cpp", HEADER, "lacks 99_planted.cpp"),
    ("lists", "examples/99_planted.cpp", HEADER, "99_planted.cpp does not say how it is built"),
    ("lists", "tests/list.txt", "zz/absent_test.cpp\n", "names zz/absent_test.cpp, which does not exist"),
    ("umbrella", "include/shardkit/core/planted.hpp", HEADER + PUBLIC, "does not reach shardkit/core/planted.hpp"),
    ("umbrella", "include/shardkit/backend/mpi/planted.hpp", HEADER + PUBLIC, "mpi.hpp does not reach"),
    ("umbrella", "include/shardkit/shardkit.hpp", "#include <shardkit/detail/concat.hpp>\n",
     "lists shardkit/detail/concat.hpp, which has no public name"),
    ("umbrella", "include/shardkit/core/error.hpp", "#include <shardkit/backend/mpi/api.hpp>\n",
     "reaches shardkit/backend/mpi/api.hpp, which an umbrella of its own has"),
    ("umbrella", "include/shardkit/core/error.hpp", "#include <shardkit/tensor_parallel/embedding.hpp>\n",
     "reaches shardkit/tensor_parallel/embedding.hpp, which an umbrella of its own has"),
    ("umbrella", "include/shardkit/shardkit.hpp", "#include <shardkit/core/checked.hpp>\n",
     "lists 32 headers; a reader takes in 31 at most"),
    ("umbrella", "include/shardkit/shardkit.hpp", "int planted();\n", "holds more than includes: int planted();"),
    ("rooms", "include/shardkit/core/planted.hpp", "#include <cuda_runtime.h>\n", "planted.hpp:1: CUDA outside"),
    ("rooms", "include/shardkit/core/planted.hpp", "#ifdef __CUDACC__\n", "planted.hpp:1: CUDA outside"),
    ("rooms", "include/shardkit/comm/planted.hpp", "#include <mpi.h>\n", "planted.hpp:1: MPI outside"),
    ("rooms", "include/shardkit/backend/mpi/planted.hpp", "ncclComm_t c;\n", "planted.hpp:1: NCCL outside"),
    ("parameters", "include/shardkit/step/planted.hpp", "template <class Engine>\nclass Planted;\n",
     "step/planted.hpp:1: a template's parameter is called Engine, expected a value"),
    ("parameters", "include/shardkit/step/planted.hpp", "template <class T,\n          class Precision = float>\nclass Planted;\n",
     "step/planted.hpp:2: a template's parameter is called Precision, expected a value"),
    ("face", "include/shardkit/step/model.hpp", "template <class T>\nstruct Planted {\n" + "    T x;\n" * 100 + "};\n",
     "lines of templates, at most"),
    ("floors", "include/shardkit/core/planted.hpp", "#include <shardkit/comm/verb.hpp>\n",
     "core/planted.hpp includes shardkit/comm/verb.hpp, but core/ stands above comm/"),
    ("floors", "include/shardkit/backend/host/planted.hpp", "#include <shardkit/backend/self/communicator.hpp>\n",
     "but backend/host/ stands above backend/self/"),
    ("floors", "include/shardkit/plan/planted.hpp", "#include <shardkit/shardkit.hpp>\n",
     "but plan/ stands above the umbrella"),
    ("floors", "include/shardkit/factored/adafactor_rule.hpp", "#include <shardkit/detail/concat.hpp>\n",
     "factored/adafactor_rule.hpp uses what is internal"),
    ("floors", "include/shardkit/muon/planted.hpp", "#include <shardkit/sharded/group.hpp>\n",
     "muon/planted.hpp includes shardkit/sharded/group.hpp, which is internal"),
    ("floors", "include/shardkit/reshard/planted.hpp", "#include <shardkit/plan/plan.hpp>\n",
     "the part reshard/ does not say that it uses plan/"),
    ("floors", "include/shardkit/attic/planted.hpp", HEADER, "does not list the room attic/"),
    ("floors", "docs/architecture.md", "| `cellar/` | nothing | |\n", "lists the room cellar/, which does not exist"),
    ("errors", "include/shardkit/core/planted.hpp", "throw UsageError(text, {});\n",
     "core/planted.hpp:1: use throw_usage_error(where, ...)"),
    ("errors", "include/shardkit/core/planted.hpp", "throw std::invalid_argument(text);\n",
     "core/planted.hpp:1: use throw_invalid_argument(where, ...)"),
    ("words", "include/shardkit/core/planted.hpp", HEADER + "// __builtin_ia32_pause\n", "a builtin of the compiler's own"),
    ("words", "tests/planted.cpp", "// FIX" + "ME\n", "planted.cpp:1: left over"),
    ("words", "tests/planted.cpp", "/// Works. Cost:    none\n", "planted.cpp:1: a label within a line"),
    ("words", "include/shardkit/core/planted.hpp",
     HEADER + "namespace shardkit {\n}  // namespace shardkit SHARDKIT_BUILD\n", "the end of a namespace that does not"),
    ("words", "tests/planted.cpp", "int planted;\n", "no line '// SPDX-License-Identifier"),
    ("reference", "include/shardkit/core/planted.hpp", HEADER + PUBLIC,
     "For who writes a trainer: lacks | `Planted` | A planted name | `core/planted.hpp` |"),
    ("reference", "include/shardkit/core/planted.hpp", HEADER + PUBLIC.replace("shardkit", "shardkit::engine"),
     "For who writes an engine: lacks | `engine::Planted` | A planted name | `core/planted.hpp` |"),
    ("reference", "include/shardkit/core/planted.hpp", HEADER + PUBLIC.replace("shardkit", "shardkit::rules"),
     "For who writes an optimizer or a policy: lacks | `rules::Planted` | A planted name | `core/planted.hpp` |"),
    ("reference", "include/shardkit/core/planted.hpp", HEADER + PUBLIC.replace("///", "//"),
     "core/planted.hpp:5: Planted is public and has no docstring"),
    ("reference", "include/shardkit/core/planted.hpp",
     HEADER + PUBLIC.replace("struct Planted {};", "inline void (*planted)(int count) = nullptr;"),
     "For who writes a trainer: lacks | `planted` | A planted name | `core/planted.hpp` |"),
    ("reference", "docs/reference.md", "| `absent` | | |\n", "says what the headers do not say: | `absent` | | |"),
    ("figures", "examples/cuda_trainer/after.hpp", "// planted\n", "examples/cuda_trainer/README.md: by diff"),
    ("suites", "tests/list.txt", "zz/absent_test.cpp\n", "the table of suites lacks zz"),
    ("suites", "docs/testing.md", "| `planted` | nothing |\n", "has the suite planted, which there is not"),
    ("pages", "docs/planted.md", "# Planted\n", "CONTENTS lacks docs/planted.md"),
    ("stages", ".ci/run", "later_stage planted true\n", "the table of stages lacks planted in the second tier"),
    ("stages", "docs/testing.md", "| mpi | first | nothing |\n", "has the stage mpi in the first tier, where .ci/run has none"),
    ("questions", "docs/architecture.md", "| Where? | `core/absent.hpp` | `x` |\n", "'Where?': there is no file core/absent.hpp"),
    ("questions", "docs/architecture.md", "| Where? | `core/error.hpp` | `absent` |\n", "'Where?': core/error.hpp has no absent"),
    ("questions", "docs/architecture.md", "| Where? | `detail/ticks.hpp` | `ticks` |\n",
     "'Where?': detail/ticks.hpp is more than two steps away"),
    ("first", "README.md", "[a page](docs/glossary.md)\n", "first.txt has no line for docs/glossary.md, which README.md promises"),
    ("first", "tests/first.txt", "Adam: tree\n", "first.txt has a line for Adam, which README.md does not promise"),
    ("first", "tests/first.txt", "Planted: unit/optim/sgd_test.cpp\n", "first.txt: nothing for Planted names it"),
    ("first", "tests/first.txt", "docs/windows.md: zz/absent_test.cpp\n",
     "first.txt names zz/absent_test.cpp, which tests/list.txt lacks"),
    ("figures", "README.md", "| planted | 1.5 | `peak_bytes` | |\n", "README.md: `peak_bytes` is 1.5, but docs/benchmark_results.md"),
    ("versions", "docs/versions.md", "revision = v9.9\n", "docs/versions.md: version 0.1.0, 9.9, but meson.build has 0.1.0"),
    ("versions", "include/shardkit/core/version.hpp", "#define SHARDKIT_VERSION_PATCH 9\n", "version.hpp: version 0.1.0.9, but"),
    ("lengths", "include/shardkit/core/planted.hpp", HEADER + "int planted();\n" * 301, "planted.hpp: 301 lines of code"),
]
# What is no fault.
ALLOWED = [
    ("lengths", "include/shardkit/core/planted.hpp",
     HEADER + "#include <vector>\n/// Planted.\n  // Planted.\n\n" * 301 + "int planted();\n" * 300),
]


def main():
    check, root = sys.argv[1], pathlib.Path(sys.argv[2])
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        for top in ("include", "tests", "examples", "docs", ".ci"):
            shutil.copytree(root / top, copy / top, ignore=shutil.ignore_patterns("golden", "pictures", "__pycache__"))
        for name in ("meson.build", "CITATION.cff", "README.md"):
            shutil.copy(root / name, copy / name)
        for name, path, text, expected in PLANTS:
            before = append(copy / path, text)
            found = list(checks.CHECKS[name](copy))
            restore(copy / path, before)
            if not any(expected in line for line in found):
                wrong += 1
                print(f"{name}: a planted {path} was not found: expected '{expected}' in", *found, sep="\n")
        for name, path, text in ALLOWED:
            before = append(copy / path, text)
            found = list(checks.CHECKS[name](copy))
            restore(copy / path, before)
            if found:
                wrong += 1
                print(f"{name}: a planted {path} was found, which is no fault:", *found, sep="\n")
        # What is found ends with 1.
        before = append(copy / PLANTS[0][1], PLANTS[0][2])
        done = subprocess.run([sys.executable, "-B", check, PLANTS[0][0], copy], capture_output=True, text=True, check=False)
        restore(copy / PLANTS[0][1], before)
        if done.returncode != 1 or PLANTS[0][3] not in done.stdout:
            wrong += 1
            print(f"check.py {PLANTS[0][0]} ended with {done.returncode} and said\n{done.stdout}{done.stderr}")
    for arguments in ([], ["lists"], ["no_such_check", root]):
        done = subprocess.run([sys.executable, "-B", check, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 1 or "check.py CHECK ROOT" not in done.stderr or "Traceback" in done.stderr:
            wrong += 1
            print(f"check.py {arguments} did not say how it is used:\n{done.stderr}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
