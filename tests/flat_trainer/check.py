# SPDX-License-Identifier: Apache-2.0
"""check.py losses PROGRAMS WITHIN -- LAUNCHER...: the flat trainers' losses against those of before.cpp, which knows
nothing of the library: 40 steps, on 1, 2 and 3 ranks, under every policy, on threads and, with a launcher, over MPI.
PROGRAMS is a folder's prefix: PROGRAMSbefore, PROGRAMSadopted, PROGRAMSafter, and PROGRAMSby_hand with a launcher.

check.py patches ROOT: what docs/from_llmc.md says of the lines between the trainers."""
import concurrent.futures
import difflib
import math
import os
import pathlib
import re
import subprocess
import sys

STEPS = 40


def losses(root, *command):
    text = str(root / "LICENSE")
    command = [part.replace("TEXT", text) for part in command]
    environment = dict(os.environ, OMP_NUM_THREADS="2", OMP_WAIT_POLICY="passive", OMPI_ALLOW_RUN_AS_ROOT="1",
                       OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}")
    found = [float(value) for value in re.findall(r"^step \d+ loss (\S+)$", done.stdout, re.MULTILINE)]
    if len(found) != STEPS or not all(math.isfinite(value) for value in found):
        sys.exit(f"{command}: expected {STEPS} losses, it printed\n{done.stdout}")
    return found


def check_losses(root, programs, within, launcher):
    expected = losses(root, programs + "before", "TEXT", str(STEPS))
    if not expected[-1] < expected[0] - 1:
        sys.exit(f"before learns nothing: {expected[0]} to {expected[-1]}")
    runs = []
    for ranks in ("1", "2", "3"):
        policies = ["no_shard", "shard_optimizer", "shard_grad_op", "full_shard", f"hybrid_shard:{ranks}"]
        ways = [([], ranks)]
        if launcher:
            ways.append((launcher + ["-n", ranks], "mpi"))
            runs.append([*launcher, "-n", ranks, programs + "by_hand", "TEXT", str(STEPS)])
        for before, engine in ways:
            runs.append([*before, programs + "adopted", "TEXT", str(STEPS), engine])
            for policy in policies:
                runs.append([*before, programs + "after", "TEXT", str(STEPS), engine, policy])
    worst = 0.0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for run, found in zip(runs, pool.map(lambda run: losses(root, *run), runs)):
            difference = max(abs(a - b) for a, b in zip(expected, found))
            worst = max(worst, difference)
            if not difference <= within:
                sys.exit(f"{run}: losses differ by {difference}, expected at most {within}")
    print(f"{len(runs)} runs, losses from {expected[0]:.4f} to {expected[-1]:.4f}, at most {worst:.2g} apart")


def patch(root, before, after):
    """Lines that go and lines that come."""
    texts = [(root / "examples/flat_trainer" / f"{name}.cpp").read_text(encoding="utf-8").splitlines()
             for name in (before, after)]
    lines = [line[:1] for line in difflib.unified_diff(*texts, n=0)][2:]
    return lines.count("-"), lines.count("+")


def check_patches(root):
    page = (root / "docs/from_llmc.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` to `(\w+)` \| (\d+) \| (\d+) \|", page, re.MULTILINE)
    if len(rows) != 4:
        sys.exit(f"docs/from_llmc.md has {len(rows)} rows of patches, expected 4")
    for before, after, gone, come in rows:
        found = patch(root, before, after)
        if found != (int(gone), int(come)):
            sys.exit(f"docs/from_llmc.md: {before} to {after}: {gone} lines go and {come} come, by difflib {found}")


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    if sys.argv[1] == "patches":
        check_patches(root)
    else:
        check_losses(root, sys.argv[2], float(sys.argv[3]), sys.argv[5:])


if __name__ == "__main__":
    main()
