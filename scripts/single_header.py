#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes entry headers with all that they include of the library as one file, for code bases that copy headers:
single_header.py [--out FILE] [HEADER...]; shardkit/shardkit.hpp to standard output unless told."""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r"^\s*#\s*include\s*<(shardkit/[^>]+)>")
# Each header of the tree has a copy of its own in the file.
ALONE = ("#if defined(SHARDKIT_BUILD)",
         '#include "headers of shardkit come before its one file, which lacks them: '
         'single_header.py shardkit/shardkit.hpp shardkit/checkpoint.hpp"', "#endif",
         "#ifdef SHARDKIT_COMPILED",
         '#include "shardkit in one file is header-only: compile it without SHARDKIT_COMPILED"', "#endif")
LICENSE = "// SPDX-License-Identifier: Apache-2.0"


def header_only(lines):
    """The lines that a file reads which is not of the compiled form: that one's core would be in each file."""
    conditions = []  # of each open one: None, or of the form's whether its lines are read
    for line in lines:
        word = re.match(r"\s*#\s*(if\w*|else|endif)\b\s*(\w*)", line)
        of_form = False
        if word and word[1].startswith("if"):
            of_form = word[2] == "SHARDKIT_COMPILED"
            conditions.append(word[1] == "ifndef" if of_form else None)
        elif word:
            of_form = conditions[-1] is not None
            if word[1] == "endif":
                conditions.pop()
            elif of_form:
                conditions[-1] = not conditions[-1]
        if not of_form and False not in conditions:
            yield line


def expand(header, seen):
    """The lines of a header, with those of the library's headers in place of their includes: of each the first time, of
    what is no header each time."""
    for line in header_only((ROOT / "include" / header).read_text(encoding="utf-8").splitlines()):
        found = INCLUDE.match(line)
        if line in (LICENSE, "#pragma once"):
            continue
        if not found:
            yield line
        elif found[1].endswith(".inc") or found[1] not in seen:
            seen.add(found[1])
            yield from expand(found[1], seen)


def single_header(headers):
    version = re.search(r"version:\s*'([^']+)'", (ROOT / "meson.build").read_text(encoding="utf-8"))[1]
    seen, lines = set(), []
    for header in headers:
        if header not in seen:
            seen.add(header)
            lines += expand(header, seen)
    text = "\n".join([LICENSE, f"// shardkit {version} in one file: {', '.join(headers)}. Written by scripts/single_header.py.",
                      "#pragma once", "", *ALONE, ""] + lines + ["", "#define SHARDKIT_IN_ONE_FILE"])
    return re.sub(r"\n{3,}", "\n\n", text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("headers", nargs="*", metavar="HEADER", default=["shardkit/shardkit.hpp"])
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE")
    arguments = parser.parse_args()
    for header in arguments.headers:
        if not (ROOT / "include" / header).is_file():
            parser.error(f"{header}: expected a header as it is included, shardkit/mpi.hpp for example")
    text = single_header(arguments.headers)
    if arguments.out is None:
        sys.stdout.write(text)
    else:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
