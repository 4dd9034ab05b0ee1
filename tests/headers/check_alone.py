# SPDX-License-Identifier: Apache-2.0
"""check_alone.py FOLDER UNIT HEADER...: each header compiles in a unit of its own, where it stands twice: a missing
include and a missing guard are errors. FOLDER is a build folder and UNIT one of its sources, whose flags are used.
Only parsed, which takes a third of compiling: what a header defines is linked elsewhere.
"""
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys


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


def parse(command, folder, header):
    done = subprocess.run([*command, "-fsyntax-only", "-x", "c++", "-"], cwd=folder, text=True, check=False,
                          input=f"#include <{header}>\n" * 2, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def main():
    folder, unit, headers = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    if not headers:
        sys.exit("no header is given")
    command = flags_of(folder, unit)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = dict(zip(headers, pool.map(lambda header: parse(command, folder, header), headers)))
    refused = [header for header, (status, _) in said.items() if status != 0]
    for header in refused:
        print(said[header][1])
    if refused:
        sys.exit(f"not alone: {' '.join(refused)}")
    print(f"{len(headers)} headers, each alone")


if __name__ == "__main__":
    main()
