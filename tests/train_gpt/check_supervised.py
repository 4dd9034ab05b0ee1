# SPDX-License-Identifier: Apache-2.0
"""check_supervised.py PROGRAM SUPERVISOR [--seconds S] [--every S] [--steps N] [--seed S] [-- LAUNCHER...]: train_gpt under
scripts/supervise.py, whose processes are killed at random moments. It comes to its end with the losses and the
hashes of every step of the run that nobody kills. Without a launcher the ranks are threads of the process that is killed; with
one, one process of the job."""
import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

MODEL = ["--batch", "4", "--sequence", "8", "--layers", "1", "--width", "16", "--heads", "2"]


def children_of(process):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def ranks_of(supervisor, launched):
    """The processes that train."""
    runs = children_of(supervisor)
    return [rank for run in runs for rank in children_of(run)] if launched else runs


def steps_of(file):
    """The lines of each whole step in a file of --hashes."""
    steps = {}
    for line in file.read_text(encoding="utf-8").splitlines(keepends=True)[1:]:
        if line.endswith("\n"):
            steps.setdefault(int(line.split("\t")[0]), []).append(line)
    return steps


def main():
    launcher = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("supervisor")
    parser.add_argument("--seconds", type=float, default=5, help="kills go on for so long")
    parser.add_argument("--every", type=float, default=1, help="mean time between kills")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(sys.argv[1:sys.argv.index("--")] if launcher else None)
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="shardkit-supervised-") as name:
        folder = pathlib.Path(name)
        (folder / "text").write_bytes(bytes(random.Random(0).choices(b"abcdefgh \n", k=20000)))
        program = [*launcher, *(["-n", "2"] if launcher else []), str(pathlib.Path(options.program).resolve()), "--engine",
                   "mpi" if launcher else "threads", "--mesh", "2x1x1", *MODEL, "--text", "text", "--steps", str(options.steps)]
        subprocess.run([*program, "--hashes", "whole", "--json", "whole.json"], cwd=folder, check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        whole = steps_of(folder / "whole")
        losses = json.loads((folder / "whole.json").read_text(encoding="utf-8"))["losses"]
        kills = 0
        with open(folder / "said", "w", encoding="utf-8") as said:
            supervised = subprocess.Popen(
                [sys.executable, "-B", str(pathlib.Path(options.supervisor).resolve()), "--give-up-after", "50", "--", *program,
                 "--save", "run", "--save-every", "1", "--keep", "3", "--resume", "run", "--hashes", "hashes-{start}", "--json",
                 "run.json"], cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
            end = time.monotonic() + options.seconds
            while supervised.poll() is None and time.monotonic() < end:
                time.sleep(chance.uniform(0, 2 * options.every))
                if ranks := ranks_of(supervised.pid, bool(launcher)):
                    try:
                        os.kill(chance.choice(ranks), signal.SIGKILL)
                        kills += 1
                    except ProcessLookupError:
                        pass  # it was at its end
            supervised.wait(timeout=600)
        words = (folder / "said").read_text(encoding="utf-8")
        if supervised.returncode != 0:
            sys.exit(f"WRONG: the supervisor ended with {supervised.returncode}:\n{words[-3000:]}")
        report = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        if report["losses"] != losses[report["first_step"]:]:
            sys.exit("WRONG: the last start has other losses than the run that nobody killed")
        seen = {}
        for file in folder.glob("hashes-*"):
            for step, lines in steps_of(file).items():
                # A start begins with the values that it has read: no gradients.
                if not set(lines) <= set(whole[step]):
                    sys.exit(f"WRONG: step {step} of {file.name} has other hashes than the run that nobody killed")
                if len(lines) == len(whole[step]):
                    seen[step] = True
        if set(seen) != set(whole):
            sys.exit(f"WRONG: steps {sorted(set(whole) - set(seen))} were made by no start")
        if kills == 0:
            sys.exit("WRONG: nothing was killed: the run was too short")
        print(f"ok: {kills} kills, {words.count('supervise: start ') + 1} starts, the hashes of all {len(whole)} steps")


if __name__ == "__main__":
    main()
