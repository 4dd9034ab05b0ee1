#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare_hashes.py FIRST SECOND: says in which step and group two runs of train_gpt --hashes part.

Compares the steps that both files have, whatever the runs' meshes and policies. Within a step gradients come first, then
states, then parameters, as each is made of the one before. What one file alone has is passed over: gradients beside a run
with --release on, which never has all of them. Exit status: 0 where all hashes are equal, 1 where one differs, 2 for files
that cannot be compared.
"""
import argparse
import sys

BEGIN = "step\tof\tgroup\tkind\thash"


def refuse(why):
    """Ends the program: two files cannot be compared."""
    print(f"compare_hashes: {why}", file=sys.stderr)
    sys.exit(2)


def read(path):
    """The hashes of each step: {step: {(of, group, kind): hash}}, in the order of the file."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        refuse(f"{path}: {error}")
    if lines[0] != BEGIN:
        refuse(f"{path}: the first line is not that of a file of train_gpt --hashes")
    steps = {}
    for number, line in enumerate(lines[1:-1], 2):  # a last line without its end is of a run that was killed
        fields = line.split("\t")
        if len(fields) != 5 or not fields[0].isdigit():
            refuse(f"{path}: line {number} has not the five fields of a hash")
        steps.setdefault(int(fields[0]), {})[tuple(fields[1:4])] = fields[4]
    return steps


def compare(first, second, names):
    """The lines to print, and whether all is equal."""
    common = [step for step in first if step in second]
    if not common:
        refuse(f"{names[0]} and {names[1]} have no step in common")
    count = 0
    for number, step in enumerate(common):
        ours, theirs = first[step], second[step]
        shared = [key for key in ours if key in theirs]
        differing = [key for key in shared if ours[key] != theirs[key]]
        if differing:
            key = of, group, kind = differing[0]
            before = f"all are equal up to step {common[number - 1]}" if number > 0 else "it is the first step that both have"
            return [f"step {step}: {of} of {group} ({kind}) differs: {ours[key]} and {theirs[key]}",
                    f"{len(differing)} of the step's {len(shared)} hashes differ; {before}"], False
        count += len(shared)
    if count == 0:
        refuse(f"{names[0]} and {names[1]} have no hash in common")
    return [f"equal: {count} hashes of steps {common[0]} to {common[-1]}"], True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("FIRST", "SECOND"):
        parser.add_argument(name)
    names = list(vars(parser.parse_args()).values())
    lines, equal = compare(*map(read, names), names)
    print("\n".join(lines))
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
