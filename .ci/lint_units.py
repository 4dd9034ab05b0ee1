# SPDX-License-Identifier: Apache-2.0
"""lint_units.py BUILD: writes what clang-tidy reads into BUILD/lint, the unit of all headers and every source of the
programs as few units, and prints one a line.

Nearly all of clang-tidy's time goes into the headers that a unit includes, so a folder's sources are one unit; those
that MPICH compiles are one more. A source with a main is in a namespace of its own, and what it includes stands before.
"""
import json
import pathlib
import re
import shlex
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def flags_of(entry):
    """What a unit is compiled with besides the names of files."""
    flags, skip = [], False
    for word in shlex.split(entry["command"])[1:]:
        if skip or word in ("-c", "-MD", entry["file"]):
            skip = False
        elif word in ("-o", "-MQ", "-MF"):
            skip = True
        elif not word.startswith("-W"):
            flags.append(re.sub(r"^-I(?=[^/])", f"-I{entry['directory']}/", word))
    return flags


def sources_of(entry):
    """The unit, or what it is made of where Meson made it."""
    unit = pathlib.Path(entry["directory"], entry["file"]).resolve()
    sources = re.findall(r"^#include\s*<(.*\.cpp)>", unit.read_text(encoding="utf-8"), re.M)
    return [(unit.parent / source).resolve() for source in sources] or [unit]


def included(source, number):
    """The lines by which a unit includes the source."""
    text = source.read_text(encoding="utf-8")
    itself = f'#include "{source}"\n'
    if not re.search(r"^int main\(", text, re.M):
        return itself
    lines = []
    for line in re.findall(r"^#include.*$", text, re.M):
        beside = re.match(r'#include "(.*)"', line)
        lines.append(f'#include "{(source.parent / beside[1]).resolve()}"' if beside else line)
    # An example's main may let an exception out, as examples/.clang-tidy says: by another name it is any function.
    renamed = "#define main example_main" if source.is_relative_to(ROOT / "examples") else ""
    return "\n".join([*lines, renamed, f"namespace program_{number} {{", f"{itself}}}", "#undef main", ""])


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    units = {}  # name: sources, flags
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        folder = entry["output"].split("/")[0]
        if entry["file"].endswith("/everything.cpp"):
            folder = "headers"
        elif folder not in ("examples", "benchmarks"):
            continue
        sources, flags = units.setdefault(folder + ("_mpich" if "_mpich.p/" in entry["output"] else ""), ([], []))
        sources += [source for source in sources_of(entry) if source not in sources]
        # Read header-only, as all others, also where a program is built over the compiled core.
        flags += [flag for flag in flags_of(entry) if flag not in (*flags, "-DSHARDKIT_COMPILED")]

    out = build / "lint"
    out.mkdir(exist_ok=True)
    commands = []
    for name, (sources, flags) in units.items():
        unit = out / f"{name}.cpp"
        unit.write_text("".join(included(source, number) for number, source in enumerate(sources)), encoding="utf-8")
        commands.append({"directory": str(out), "file": str(unit), "arguments": ["clang++", *flags, "-c", str(unit)]})
        print(unit)
    (out / "compile_commands.json").write_text(json.dumps(commands, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
