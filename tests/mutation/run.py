# SPDX-License-Identifier: Apache-2.0
"""run.py [--compiler g++] [--jobs N]: drops, doubles and runs over a wrong axis every reduction call site of the
library, one at a time, and builds and runs killer.cpp against each mutant. Prints site, mutant and what killed it;
fails on a survivor, and when a site is written in a way that this script does not understand.
"""
import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
INCLUDE = HERE.parent.parent / "include"
FOLDERS = ["sharded", "optim", "mesh"]
CALL = re.compile(r"\b(?P<verb>all_reduce|reduce_scatter)(?P<in_place>_in_place)?\((?P<arguments>[^;{}]*)\);")
# What a site may reduce over, and the wrong axes to try instead.
AXES = {
    "comms_.shards": ["comms_.replicas", "comms_.data"],
    "comms_.replicas": ["comms_.shards", "comms_.data"],
    "comms_.data": ["comms_.shards", "comms_.replicas"],
    "context.world()": ["context.template sub_mesh<Axes<Dp>>()", "context.template sub_mesh<Axes<Tp>>()"],
}


def split_arguments(text):
    arguments, depth, current = [], 0, ""
    for character in text:
        depth += (character in "([{<") - (character in ")]}>")
        if character == "," and depth == 0:
            arguments.append(current.strip())
            current = ""
        else:
            current += character
    return arguments + [current.strip()]


def mutants_of(match):
    """(name, replacement) of every mutant of one call."""
    call = match.group(0)
    arguments = split_arguments(match.group("arguments"))
    axes = arguments[0]
    if axes not in AXES:
        sys.exit(f"unknown axes '{axes}' in {call}; add them to AXES")
    yield "dropped", "static_cast<void>(0);"
    if match.group("in_place"):
        yield "doubled", call + " " + call
    else:
        # Calling it again would give the same result, so the result is counted twice.
        target = arguments[3]
        yield "doubled", f"{call} Kernels::accumulate(stream, std::span<const Reduction>({target}), {target});"
    for other in AXES[axes]:
        yield f"over {other}", call.replace(axes, other, 1)


def find_mutants():
    for folder in FOLDERS:
        for header in sorted((INCLUDE / "shardkit" / folder).glob("*.hpp")):
            text = header.read_text(encoding="utf-8")
            for match in CALL.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                for name, replacement in mutants_of(match):
                    mutated = text[:match.start()] + "{ " + replacement + " }" + text[match.end():]
                    yield f"{header.relative_to(INCLUDE)}:{line}", name, header.relative_to(INCLUDE), mutated


def run_killer(compiler, overlay, folder):
    """None when the killer passes, else what stopped it."""
    program = folder / "killer"
    command = [compiler, "-std=c++20", "-O0", "-w", "-pthread"]
    if overlay:
        command += ["-I", str(overlay)]
    command += ["-I", str(INCLUDE), str(HERE / "killer.cpp"), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        errors = [line for line in built.stderr.splitlines() if "error" in line]
        return "compiler: " + (errors or ["failed"])[0].strip()
    try:
        ran = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=120)
    except subprocess.TimeoutExpired:
        return "time limit"
    return None if ran.returncode == 0 else (ran.stdout.strip().splitlines() or [f"status {ran.returncode}"])[-1]


def try_mutant(compiler, mutant):
    site, name, header, text = mutant
    with tempfile.TemporaryDirectory() as folder:
        overlay = pathlib.Path(folder) / "include"
        target = overlay / header
        target.parent.mkdir(parents=True)
        target.write_text(text, encoding="utf-8")
        return site, name, run_killer(compiler, overlay, pathlib.Path(folder))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        reason = run_killer(options.compiler, None, pathlib.Path(folder))
    if reason is not None:
        sys.exit(f"the unchanged library fails: {reason}")

    mutants = list(find_mutants())
    if not mutants:
        sys.exit("no reduction call site was found")
    survivors = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for site, name, reason in pool.map(lambda mutant: try_mutant(options.compiler, mutant), mutants):
            not_built = reason is not None and reason.startswith("compiler:")
            survivors += reason is None or not_built
            verdict = "SURVIVED" if reason is None else "NO MUTANT" if not_built else "killed by"
            print(f"{site}: {name}: {verdict} {reason or ''}", flush=True)
    print(f"{len(mutants)} mutants, {survivors} survived or did not compile")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
