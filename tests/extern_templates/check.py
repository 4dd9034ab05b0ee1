# SPDX-License-Identifier: Apache-2.0
"""Checks SHARDKIT_TEMPLATES with a trainer: with what needs no parameter's type compiled in a file of its own, the
trainer's file holds none of it, does not link without that file, and trains to the same numbers as without. A second
optimizer has SHARDKIT_RULE_TEMPLATES, in the same files."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

# What the trainer's own file would have the code of.
APART = ("Context<shardkit::threads::Engine>::Context(", "::GroupState(", "::GroupOptimizer(", "::RuleOptimizer(",
         "::NormTable(", "threads::detail::World::World(", " shardkit::detail::place_group<")
# And of a second optimizer.
SECOND = "::GroupOptimizer<shardkit::rules::SgdRule, shardkit::threads::Engine, float>::"
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


def expect_same_numbers(in_one, in_two):
    one, two = run([in_one]), run([in_two])
    if "gradient norm" not in one or one != two:
        sys.exit(f"in one file:\n{one}\nin two:\n{two}")


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
        expect_same_numbers(folder / "in_one", folder / "in_two")

        # The same trainer with SGD, by a line for its rule beside those for AdamW.
        def with_sgd(path, *changes):
            text = path.read_text(encoding="utf-8")
            for old, new in (("adamw.hpp>", "sgd.hpp>"), *changes):
                if old not in text:
                    sys.exit(f"{path} has no {old}")
                text = text.replace(old, new)
            return text

        (folder / "sgd.cpp").write_text(with_sgd(trainer, ("sk::AdamW ", "sk::SGD ")), encoding="utf-8")
        lines = with_sgd(header, ("optim/sgd.hpp>", "optim/sgd.hpp>\n#include <shardkit/optim/adamw.hpp>"))
        rule = "SHARDKIT_RULE_TEMPLATES({}, shardkit::threads::Engine, shardkit::DefaultPrecision<float>, shardkit::rules::SgdRule)\n"
        (folder / "both.hpp").write_text(lines + rule.format("extern"), encoding="utf-8")
        source = (arguments.trainers / "templates.cpp").read_text(encoding="utf-8")
        (folder / "both.cpp").write_text(source.replace('"templates.hpp"', '"both.hpp"') + rule.format(""), encoding="utf-8")
        compiler.append(f"-I{arguments.trainers}")
        run([*compiler, folder / "sgd.cpp", "-o", folder / "sgd_in_one"])
        run([*compiler, "-include", folder / "both.hpp", "-c", folder / "sgd.cpp", "-o", folder / "sgd.o"])
        run([*compiler, "-c", folder / "both.cpp", "-o", folder / "both.o"])
        if not any(SECOND in function for function in code_of(folder / "both.o")):
            sys.exit(f"both.o has no code of {SECOND}")
        if any(SECOND in function for function in code_of(folder / "sgd.o")):
            sys.exit(f"sgd.o has the code of {SECOND}, which both.o is for")
        for object_file in ("sgd.o", "trainer.o"):
            run([*compiler, folder / object_file, folder / "both.o", "-o", folder / f"{object_file}.in_two"])
        expect_same_numbers(folder / "sgd_in_one", folder / "sgd.o.in_two")
        expect_same_numbers(folder / "in_one", folder / "trainer.o.in_two")
    print("the same numbers, and none of the library's code twice")


if __name__ == "__main__":
    main()
