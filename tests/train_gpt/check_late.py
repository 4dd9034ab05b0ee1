# SPDX-License-Identifier: Apache-2.0
"""check_late.py PROGRAM READER [-- LAUNCHER...]: what is told of a rank that is slow, and of one that misses
its --deadline, by train_gpt and by the records of --record. On threads, or on the processes of the launcher."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

PROGRAM, READER = sys.argv[1:3]
LAUNCHER = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
SMALL = ["--mesh", "3x1x1", "--sequence", "8", "--layers", "1", "--width", "8", "--heads", "2"]
wrong = 0


def command(*flags):
    program = [*LAUNCHER, "-n", "3", PROGRAM, "--engine", "mpi"] if LAUNCHER else [PROGRAM]
    return [*program, *SMALL, "--batch", "6", *flags]


def run(*flags):
    return subprocess.run(command(*flags), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", timeout=60, check=False)


def expect(condition, what, text=""):
    global wrong
    print(("ok: " if condition else "WRONG: ") + what)
    if not condition:
        wrong += 1
        print(text[-4000:])


def check_slow(folder):
    """The records of a run that goes on, asked for by SIGUSR1, name the rank that the others wait for."""
    files = [f"{folder}/slow-rank-{rank}.json" for rank in range(3)]
    with subprocess.Popen(command("--steps", "200", "--slow", "1:0.1", "--record", f"{folder}/slow"), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as started:
        expect(any(line.startswith("step 11/") for line in started.stdout), "ten steps of a run with a slow rank")
        started.send_signal(signal.SIGUSR1)
        until = time.monotonic() + 20
        while not all(os.path.exists(file) for file in files) and time.monotonic() < until:
            time.sleep(0.05)
        read = subprocess.run([READER, *files], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
        started.terminate()
        started.communicate(timeout=60)
    # Whoever else works on the machine may slow another rank down too; stragglers_test has the rule by numbers.
    expect(re.search(r"^the others waited for rank 1 for \d+\.\d{3} s in \d+ steps, ", read, re.MULTILINE) is not None,
           "a slow rank is named", read)
    first = [line.split() for line in read.splitlines() if line.endswith("'embedding' parameters over dp")]
    expect(len(first) > 4 and first[0][0] == "1" and 0.07 < float(first[0][2]), "it is late to the step's first call", read)


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
        check_slow(scratch)
        check_deadline(scratch)
    sys.exit(1 if wrong else 0)
