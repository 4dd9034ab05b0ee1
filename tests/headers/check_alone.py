# SPDX-License-Identifier: Apache-2.0
"""check_alone.py FOLDER UNIT HEADER...: each header compiles in a unit of its own, where it stands twice: a missing
include and a missing guard are errors. FOLDER is a build folder and UNIT one of its sources, whose flags are used.
Only parsed, which takes a third of compiling: what a header defines is linked elsewhere.

A header is read after another one only if it includes that one itself, directly or through others, always: so it sees
nothing that it does not name, and what it names is checked alone too. So a unit reads several headers, each of which
includes the one before it, and takes as long as the last of them; and some headers that many include are precompiled.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

DIRECTIVE = re.compile(r'^\s*#\s*(?:(?P<form>if(?P<not>n)?def\s+SHARDKIT_COMPILED\b)|(?P<opens>if)|(?P<changes>el)|(?P<closes>endif)|'
                       r'include\s*[<"](?P<name>[^">]+))', re.MULTILINE)
# How long a header takes that is not among those given, against one that is; how long writing what was read takes,
# against reading it.
FOREIGN = 5
WRITING = 1.5


def flags_of(folder, unit):
    """What compiles a source in the build folder, without its input and its outputs."""
    for entry in json.loads((folder / "compile_commands.json").read_text(encoding="utf-8")):
        if (folder / entry["file"]).resolve() == unit.resolve():
            break
    else:
        sys.exit(f"{folder}/compile_commands.json: no {unit}")
    kept, words = [], iter(shlex.split(entry["command"]))
    for word in words:
        if word in ("-o", "-MF", "-MQ", "-MT", "-c"):
            next(words)
        elif word not in ("-MD", "-MMD"):
            kept.append(word)
    return kept


def named_in(path, compiled):
    """What a header includes whatever the preprocessor decides, in that form."""
    branches = []  # whether each that is open is read; None: who knows
    for directive in DIRECTIVE.finditer(path.read_text(encoding="utf-8")):
        if directive["form"]:
            branches.append(compiled == (directive["not"] is None))
        elif directive["opens"]:
            branches.append(None)
        elif directive["changes"]:
            branches[-1] = None if branches[-1] is None else not branches[-1]
        elif directive["closes"]:
            branches.pop()
        elif all(branches):
            yield directive["name"]


def closures_of(headers, folders, compiled=False):
    """For each header all that it includes, directly or through others that are given."""
    paths = {header: next((place / header for place in folders if (place / header).is_file()), None) for header in headers}
    named = {header: set(named_in(path, compiled)) if path else set() for header, path in paths.items()}
    closures = {}
    for header in headers:
        found, left = set(), [header]
        while left:
            new = named.get(left.pop(), set()) - found
            found |= new
            left += new
        closures[header] = found
    return closures


def weights_of(closures):
    """How long reading each header takes, and reading none."""
    return {None: 0, **{header: 1 + sum(1 if name in closures else FOREIGN for name in names)
                        for header, names in closures.items()}}


def bases_of(headers, closures, weight):
    """For each of the headers the one of those to precompile that it includes and that spares it most; None where none does."""
    best = dict.fromkeys(headers)

    def spares(base):
        return sum(max(0, weight[base] - weight[best[header]]) for header in headers if base in closures[header])

    while headers:
        base = max(closures, key=lambda each: spares(each) - WRITING * weight[each])
        if spares(base) <= WRITING * weight[base]:
            break
        for header in headers:
            if base in closures[header] and weight[base] > weight[best[header]]:
                best[header] = base
    return best


def units_of(closures, weight):
    """All headers as lists, in which each one includes the one before, which spares it most."""
    best = bases_of(list(closures), closures, weight)
    pairs = [(weight[first] - weight[best[then]], first, then) for then, names in closures.items() for first in names
             if first in closures and weight[first] < weight[then] and weight[first] >= weight[best[then]]]
    behind, before = {}, {}
    for _, first, then in sorted(pairs, reverse=True):
        if first not in behind and then not in before:
            behind[first], before[then] = then, first
    units = []
    for header in closures:
        if header not in before:
            units.append([header])
            while units[-1][-1] in behind:
                units[-1].append(behind[units[-1][-1]])
    return units


def precompile(command, folder, header, at):
    """The flags with which a unit begins with that header, which was read already; none where it does not compile."""
    unit = at / "base.hpp"
    at.mkdir()
    unit.write_text(f"#include <{header}>\n", encoding="utf-8")
    macros = subprocess.run([*command, "-E", "-dM", "-x", "c++", os.devnull], cwd=folder, text=True, check=True,
                            capture_output=True).stdout
    is_clang = "__clang__" in macros
    written = at / ("base.pch" if is_clang else "base.hpp.gch")
    done = subprocess.run([*command, "-x", "c++-header", unit, "-o", written], cwd=folder, check=False, capture_output=True)
    if done.returncode != 0:
        return []
    return ["-include-pch", written] if is_clang else ["-Winvalid-pch", "-include", unit]


def refused_in(command, folder, headers, begin):
    """Those headers of a unit that do not compile alone, or all of them where only the unit does not, with what the compiler
    says."""
    unit = "".join(f"#include <{header}>\n" for header in headers)
    done = subprocess.run([*command, *begin, "-fsyntax-only", "-x", "c++", "-"], cwd=folder, text=True, check=False,
                          input=unit * 2, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode == 0:
        return {}
    alone = {}
    if len(headers) > 1:
        for header in headers:
            alone |= refused_in(command, folder, [header], [])
    return alone or dict.fromkeys(headers, done.stdout)


def check(command, folder, headers):
    """Compiles each header as the command does, called in the folder. Says how; ends with those that are refused."""
    folders = [folder / word.removeprefix("-I") for word in command if word.startswith("-I")]
    closures = closures_of(headers, folders, "-DSHARDKIT_COMPILED" in command)
    weight = weights_of(closures)
    units = units_of(closures, weight)
    best = bases_of([first for first, *_ in units], closures, weight)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool, tempfile.TemporaryDirectory() as room:
        bases = sorted({base for base in best.values() if base})
        begins = dict(zip(bases, pool.map(
            lambda number: precompile(command, folder, bases[number], pathlib.Path(room, str(number))), range(len(bases)))))
        refused = {}
        for said in pool.map(lambda unit: refused_in(command, folder, unit, begins.get(best[unit[0]], [])), units):
            refused |= said
    if refused:
        print(*refused.values(), sep="\n")
        sys.exit(f"not alone: {' '.join(header for header in headers if header in refused)}")
    print(f"{len(headers)} headers, each alone, in {len(units)} units; {len(bases)} precompiled for those that include them")


def main():
    folder, unit, headers = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    if not headers:
        sys.exit("no header is given")
    check(flags_of(folder, unit), folder, headers)


if __name__ == "__main__":
    main()
