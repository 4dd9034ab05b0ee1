# SPDX-License-Identifier: Apache-2.0
"""check_checkpoints.py PROGRAM [--whole] -- LAUNCHER...: checkpoints of processes. What one rank has saved is loaded to
the bit by every mesh and policy in four precisions, and saved as the same bytes; whichever process is killed after
whichever of its file calls leaves the old step or the new one, whole, and nothing that the next save does not remove.

The long form, --whole: worlds of 1, 2, 3, 5 and 8 processes with all meshes and policies, and every call.
"""
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]
WHOLE = "--whole" in sys.argv[2:sys.argv.index("--")]
LAUNCHER = sys.argv[sys.argv.index("--") + 1:]
# Meshes with policies of so many processes, in four precisions.
COMBINATIONS = {1: 4 * 4, 2: 4 * 13, 3: 4 * 12, 5: 4 * 12, 8: 4 * 46}


def job(processes, *arguments):
    return subprocess.run([*LAUNCHER, "-n", str(processes), PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=1800, check=False)


def fail(what, done):
    sys.exit(f"WRONG: {what}: ended with {done.returncode}\n{done.stdout}{done.stderr}")


def check_matrix(folder):
    number = 0
    for processes in COMBINATIONS if WHOLE else (3,):
        within = folder / f"matrix{processes}"
        within.mkdir()
        done = job(processes, "matrix", within, "all" if WHOLE else "few")
        if done.returncode != 0:
            fail(f"{processes} processes", done)
        if WHOLE and int(done.stdout) != COMBINATIONS[processes]:
            fail(f"{processes} processes: expected {COMBINATIONS[processes]} combinations", done)
        number += int(done.stdout)
    return number


def newest(run):
    done = subprocess.run([PROGRAM, "newest", run], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=300, check=False)
    if done.returncode != 0:
        fail("newest", done)
    return int(done.stdout)


def check_kills(folder):
    run = folder / "run"
    if job(2, "save", run, 1).returncode != 0:
        sys.exit("WRONG: a save that nobody kills failed")
    ends = {1: 0, 2: 0}
    for victim in range(2):
        call = 0
        while True:
            done = job(2, "save", run, 2, victim, call)
            found = newest(run)
            if found not in ends:
                fail(f"rank {victim} was killed after call {call}, and step {found} is the newest", done)
            if done.returncode == 0:
                if found != 2:
                    fail(f"nobody was killed, and step {found} is the newest", done)
                left = sorted(path.name for path in run.iterdir())
                if left != ["step-00000001", "step-00000002"]:
                    sys.exit(f"WRONG: after a save lies there: {left}")
            else:
                ends[found] += 1
            for path in sorted((run / "step-00000002").rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            if found == 2:
                (run / "step-00000002").rmdir()
            if done.returncode == 0:
                break
            call += 1 if WHOLE else 6
    if ends[1] < (12 if WHOLE else 3):
        sys.exit(f"WRONG: of the saves that were killed {ends[1]} left the old step")
    return sum(ends.values())


def main():
    with tempfile.TemporaryDirectory(prefix="shardkit-checkpoints-") as name:
        folder = pathlib.Path(name)
        combinations = check_matrix(folder)
        kills = check_kills(folder)
    print(f"ok: {combinations} meshes with policies and precisions saved the bytes of one rank, and loaded them; {kills} "
          "saves of two processes were killed, each left the old step or the new one")


if __name__ == "__main__":
    main()
