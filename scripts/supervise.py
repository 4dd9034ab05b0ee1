#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""supervise.py [--give-up-after N] [--pause SECONDS] -- COMMAND...: starts a training run again each time that it fails, until
it has come to its end. {start} in COMMAND is the number of the start, for files that each start has for itself.

    supervise.py -- train_gpt --engine threads --save run --save-every 10 --resume run --hashes hashes-{start}
    supervise.py -- mpirun -n 4 train_gpt --engine mpi --save run --save-every 10 --resume run --deadline 60

A start goes on from the newest step that --save has whole. The supervisor gives up after N starts in a row that have saved
nothing new, because then the fault is no accident; with --save DIR in COMMAND it looks there."""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time


def newest_step(command):
    """The number of the newest step that is saved; -1 without --save."""
    if "--save" not in command[:-1]:
        return -1
    folder = pathlib.Path(command[command.index("--save") + 1])
    return max((int(path.name[5:]) for path in folder.glob("step-*") if path.name[5:].isdigit()), default=0)


def main():
    command = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--give-up-after", type=int, default=5, metavar="N")
    parser.add_argument("--pause", type=float, default=0.1, metavar="SECONDS", help="before the next start")
    options = parser.parse_args(sys.argv[1:sys.argv.index("--")] if command else None)
    if not command:
        parser.error("no COMMAND behind --")
    start, in_vain = 0, 0
    while True:
        before = newest_step(command)
        # A group of its own: what a launcher that was killed has left behind is ended before the next start.
        with subprocess.Popen([word.replace("{start}", str(start)) for word in command], start_new_session=True) as run:
            try:
                status = run.wait()
            except KeyboardInterrupt:
                os.killpg(run.pid, signal.SIGTERM)
                sys.exit(130)
            try:
                os.killpg(run.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if status == 0:
            print(f"supervise: done after {start + 1} starts", flush=True)
            return
        start += 1
        in_vain = in_vain + 1 if newest_step(command) == before else 0
        print(f"supervise: start {start - 1} ended with {status}, at step {newest_step(command)}", flush=True)
        if in_vain >= options.give_up_after:
            sys.exit(f"supervise: {in_vain} starts in a row have saved nothing new")
        time.sleep(options.pause)


if __name__ == "__main__":
    main()
