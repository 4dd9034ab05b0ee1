# SPDX-License-Identifier: Apache-2.0
"""Checks one reject test: the file compiles as it stands, and with -DREJECT fails with the expected text.

The file's first lines may say
    // expected-error: TEXT     (required; may be given several times: all must appear)
    // compiler: clang          (only this compiler; others skip)
    // flags: -Wfoo -Werror     (further flags)
"""
import argparse
import pathlib
import re
import subprocess
import sys

SKIPPED = 77


def directives(path):
    found = {"expected-error": [], "compiler": [], "flags": []}
    with open(path, encoding="utf-8") as file:
        for line in file:
            match = re.match(r"//\s*([a-z-]+):\s*(.*?)\s*$", line)
            if match and match[1] in found:
                found[match[1]].append(match[2])
    return found


def includes_model(path):
    return '#include "model.hpp"' in pathlib.Path(path).read_text(encoding="utf-8")


def use_precompiled(compiler, precompiled):
    if compiler == "clang":
        return ["-include-pch", str(precompiled)]
    # g++ takes X.hpp.gch where it looks for X.hpp.
    return ["-Winvalid-pch", "-I", str(precompiled.parent), "-include", precompiled.stem]


def compile_file(compiler, command, path, flags):
    # With -fsyntax-only g++ leaves templates uninstantiated.
    how = ["-fsyntax-only"] if compiler == "clang" else ["-O0", "-S", "-o", "/dev/null"]
    done = subprocess.run([*command, *flags, *how, path],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    # One line with single spaces: compilers break messages and quote types differently.
    return done.returncode, done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--id", required=True)
    parser.add_argument("--precompiled", help="model.hpp, which most cases begin with, as this compiler precompiled it")
    parser.add_argument("path")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()

    found = directives(arguments.path)
    if not found["expected-error"]:
        sys.exit(f"{arguments.path}: no line '// expected-error: TEXT'")
    if found["compiler"] and arguments.id not in found["compiler"]:
        print(f"only for {', '.join(found['compiler'])}")
        sys.exit(SKIPPED)
    flags = " ".join(found["flags"]).split()
    if arguments.precompiled and includes_model(arguments.path):
        flags += use_precompiled(arguments.id, pathlib.Path(arguments.precompiled))

    status, output = compile_file(arguments.id, arguments.command, arguments.path, flags)
    if status != 0:
        sys.exit(f"{output}\n{arguments.path}: does not compile without REJECT")
    status, output = compile_file(arguments.id, arguments.command, arguments.path, [*flags, "-DREJECT"])
    if status == 0:
        sys.exit(f"{arguments.path}: compiles with REJECT; expected the error: {found['expected-error'][0]}")
    for text in found["expected-error"]:
        # Only the errors themselves count: the echoed source lines would match comments and literals.
        errors = [line for line in output.splitlines() if re.search(r"\b(error|warning):", line)]
        if not any(text in line for line in errors):
            sys.exit(f"{output}\n{arguments.path}: fails with REJECT, but no error contains: {text}")
    print("rejected as expected: " + "; ".join(found["expected-error"]))


if __name__ == "__main__":
    main()
