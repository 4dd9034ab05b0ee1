# SPDX-License-Identifier: Apache-2.0
"""Checks SHARDKIT_TEMPLATES with a trainer: with what needs no parameter's type compiled in a file of its own, the
trainer's file holds none of it, does not link without that file, and trains to the same numbers as without."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

# What the trainer's own file would have the code of.
APART = ("Context<shardkit::threads::Engine>::Context(", "::GroupState(", "::GroupOptimizer(", "::NormTable(",
         "threads::detail::World::World(", "::PlacedGroup shardkit::detail::place_group<")
MISSING = "undefined reference to `shardkit::"


def run(command, expect=0):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    if (done.returncode == 0) != (expect == 0):
        sys.exit(f"{' '.join(str(word) for word in command)}: status {done.returncode}\n{done.stdout}")
    return done.stdout


def code_of(thing):
    """Names of the functions that an object has the code of."""
    lines = [line.split(None, 2) for line in run(["nm", "-C", "--defined-only", thing]).splitlines()]
    return [words[2] for words in lines if len(words) == 3 and words[1] in "tTwW"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainers", type=pathlib.Path)
    parser.add_argument("compiler", nargs="+")
    arguments = parser.parse_args()
    trainer = arguments.trainers / "with_library.cpp"
    header = arguments.trainers / "templates.hpp"

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        compiler = [*arguments.compiler, "-O1"]
        run([*compiler, trainer, "-o", folder / "in_one"])
        run([*compiler, "-include", header, "-c", trainer, "-o", folder / "trainer.o"])
        run([*compiler, "-c", arguments.trainers / "templates.cpp", "-o", folder / "templates.o"])

        trainers, templates = code_of(folder / "trainer.o"), code_of(folder / "templates.o")
        for part in APART:
            if not any(part in function for function in templates):
                sys.exit(f"templates.o has no code of {part}: this check looks for a name that is gone")
            if any(part in function for function in trainers):
                sys.exit(f"trainer.o has the code of {part}, which templates.o is for")

        refused = run([*compiler, folder / "trainer.o", "-o", folder / "incomplete"], expect=1)
        if MISSING not in refused or "GroupState<shardkit::threads::Engine" not in refused:
            sys.exit(f"{refused}\nlinking without templates.o: expected '{MISSING}...GroupState<...>'")

        run([*compiler, folder / "trainer.o", folder / "templates.o", "-o", folder / "in_two"])
        one, two = run([folder / "in_one"]), run([folder / "in_two"])
        if "gradient norm" not in one or one != two:
            sys.exit(f"in one file:\n{one}\nin two:\n{two}")
    print("the same numbers, and none of the library's code twice")


if __name__ == "__main__":
    main()
