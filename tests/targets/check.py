# SPDX-License-Identifier: Apache-2.0
"""Files of one program that are compiled for unlike processors, and one with -ffast-math: whatever the order in which
they are linked, each part makes the numbers of arithmetic one number at a time, the latter but for their last bits. Parts
that this processor cannot run are left out.

Usage: check.py ROOT [--flags "-O2 -ffast-math"]... -- COMPILER [ARGUMENT ...]; without --flags: -O0.
"""
import argparse
import itertools
import pathlib
import subprocess
import sys
import tempfile

# Name of the part, its flags, and the /proc/cpuinfo words that it needs.
PARTS = {
    "plain": ([], set()),
    "avx2": (["-mavx2"], {"avx2"}),
    "v3": (["-march=x86-64-v3"], {"avx2", "fma", "f16c", "bmi2"}),
    "avx512": (["-mavx512f"], {"avx512f"}),
    "fast": (["-O2", "-fno-inline", "-ffast-math"], set()),
}


def run(command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(word) for word in command)}: status {done.returncode}\n{done.stdout}")
    return done.stdout


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("flags"):
            return set(line.split())
    return set()


def check(here, folder, compiler, flags, parts):
    """Compiles each part once, and links every two of them in both orders, and all."""
    # Where products are not fused into additions, all bits are equal.
    near = ["1e-4"] if "-ffast-math" in flags else []
    compiler = [*compiler, *flags, "-ffp-contract=off"]
    running = []
    for part in parts:
        command = [*compiler, f"-DPART={part}", *PARTS[part][0], "-c", here / "part.cpp", "-o", folder / f"{part}.o"]
        running.append(subprocess.Popen(command))
        if len(running) % 2 == 0:
            running[-2].wait()
    if any(process.wait() != 0 for process in running):
        sys.exit(f"{flags}: a part does not compile")
    sets = [*itertools.combinations(parts, 2), *([tuple(parts)] if len(parts) > 2 else [])]
    for linked in sets:
        names = " ".join(f"f({part})" for part in linked)
        run([*compiler, f"-DPARTS(f)={names}", "-c", here / "main.cpp", "-o", folder / "main.o"])
        for order in (linked, linked[::-1]):
            objects = [folder / f"{part}.o" for part in order]
            run([*compiler, folder / "main.o", *objects, "-o", folder / "program"])
            print(" ".join([*flags, *order]), run([folder / "program", *near]), end="")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--flags", action="append")
    parser.add_argument("--widest", action="store_true", help="of processors two parts only: any and this one")
    parser.add_argument("compiler", nargs="+")
    arguments = parser.parse_args()
    has = processor()
    parts = [part for part in PARTS if PARTS[part][1] <= has]
    if arguments.widest:
        parts = list(dict.fromkeys([parts[0], parts[-2], parts[-1]]))
    compiler = [*arguments.compiler, "-std=c++20", "-I" + str(arguments.root / "include")]
    with tempfile.TemporaryDirectory() as name:
        for flags in arguments.flags or ["-O0"]:
            check(pathlib.Path(__file__).resolve().parent, pathlib.Path(name), compiler, flags.split(), parts)
    return 0


sys.exit(main())
