# SPDX-License-Identifier: Apache-2.0
"""check_late.py PROGRAM READER [-- LAUNCHER...]: what train_gpt tells of a rank that is slow, with --stragglers, and of
one that misses its --deadline, with --record. On threads, or on the processes of the launcher."""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

PROGRAM, READER = sys.argv[1:3]
LAUNCHER = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
SMALL = ["--mesh", "3x1x1", "--sequence", "8", "--layers", "1", "--width", "8", "--heads", "2"]
wrong = 0


def run(*flags, batch=6):
    command = [*LAUNCHER, "-n", "3", PROGRAM, "--engine", "mpi"] if LAUNCHER else [PROGRAM]
    return subprocess.run([*command, *SMALL, "--batch", str(batch), *flags], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", timeout=60, check=False)


def expect(condition, what, text=""):
    global wrong
    print(("ok: " if condition else "WRONG: ") + what)
    if not condition:
        wrong += 1
        print(text[-4000:])


def told_by(folder, *flags, batch=6):
    done = run("--stragglers", "--json", f"{folder}/report.json", *flags, batch=batch)
    if done.returncode != 0:
        return done, {"ranks": None, "left_out": None, "steps": 0}
    with open(f"{folder}/report.json", encoding="utf-8") as file:
        return done, json.load(file)["stragglers"]


def check_stragglers(folder):
    done, told = told_by(folder, "--steps", "8", "--slow", "1:0.2")
    # Whoever else works on the machine may slow another rank down too; stragglers_test has the rule by numbers.
    expect(1 in (told["ranks"] or []) and told["steps"] == 8 and told["left_out"] == [], "a slow rank is named", done.stdout)
    expect("\nthe others waited for rank 1 for " in done.stdout, "and so says the text", done.stdout)
    longest = told["waits"][0]
    expect(longest["rank"] == 1 and 0.15 < longest["seconds"] and longest["share"] > 0.5
           and longest["group"] == "'embedding' parameters over dp", "it is late to the step's first call", done.stdout)
    first = [line.split() for line in done.stdout.splitlines() if line.endswith("'embedding' parameters over dp")][0]
    expect(first[0] == "1" and first[3] == "s" and 0.15 < float(first[2]), "the table begins with it", done.stdout)
    done, told = told_by(folder, "--steps", "20")
    nobody = "\nno rank is late in most of 20 steps\n" in done.stdout
    expect(told["steps"] == 20 and nobody == (told["ranks"] == []), "the text names whom the report names", done.stdout)
    # More calls in a step than the recorder keeps.
    done, told = told_by(folder, "--steps", "2", "--microbatches", "400", batch=1200)
    expect(told["left_out"] == [1, 2] and told["waits"] == [] and "all of their calls: steps 1-2\n" in done.stdout,
           "steps with too many calls are left out, and named", done.stdout)


def check_deadline(folder):
    prefix = f"{folder}/run"
    files = [f"{prefix}-rank-{rank}.json" for rank in range(3)]
    for slow in (1, 2):
        done = run("--steps", "4", "--deadline", "0.5", "--record", prefix, "--slow", f"{slow}:3")
        named = f"rank {slow} has not entered all_gather of "
        in_error = f"rank {slow} has not entered it" if LAUNCHER else named
        expect(done.returncode != 0 and "late: " in done.stdout and in_error in done.stdout, f"rank {slow} is named in time",
               done.stdout)
        there = sorted(glob.glob(f"{prefix}-rank-*"))
        read = subprocess.run([READER, "--svg", f"{folder}/lanes.svg", *there], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False).stdout
        expect(there == files and read.startswith(named) and "another run" not in read, "and in the files", read)
        drawn = "".join(xml.etree.ElementTree.parse(f"{folder}/lanes.svg").getroot().itertext())
        expect(named in drawn and "rank 2" in drawn, "and in the picture", drawn)
    # An earlier run's file of another rank.
    shutil.copy(files[0], f"{folder}/old.json")
    with open(f"{folder}/old.json", encoding="utf-8") as file:
        old = json.load(file)
    with open(f"{folder}/old.json", "w", encoding="utf-8") as file:
        json.dump({**old, "run": old["run"] // 2, "rank": 7, "taken": old["taken"] - 1}, file)
    read = subprocess.run([READER, f"{folder}/old.json", *files], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    expect("rank 7 is left out: it is of another run" in read.stderr and "rank 7" not in read.stdout,
           "a file of another run is left out", read.stdout + read.stderr)
    # What the failed run has left is no trouble of the next one.
    done = run("--steps", "4", "--deadline", "20", "--record", prefix)
    left = [name for name in os.listdir(folder) if name.startswith("run-")]
    expect(done.returncode == 0 and left == [], "the next run goes well, and leaves no record", f"{left}\n{done.stdout}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        check_stragglers(scratch)
        check_deadline(scratch)
    sys.exit(1 if wrong else 0)
