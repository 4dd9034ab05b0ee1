# SPDX-License-Identifier: Apache-2.0
"""check_kills.py PROGRAM [--kills N] [--seed S] [-- LAUNCHER...]: train_gpt --save-every 1 is killed again and again, at any
moment. No committed step is lost, and what is resumed goes on with the bits of the unbroken run.

Without a launcher on threads; with one, say `mpirun --oversubscribe`, on processes, of which one or all are killed.
The long forms: --kills 1000, and --kills 200 with a launcher.
"""
import argparse
import filecmp
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

# Small steps, which last about as long as a save, so that kills find every moment of both.
MODEL = ["--batch", "4", "--sequence", "8", "--layers", "1", "--width", "16", "--heads", "2"]
STEPS_OF_A_RUN = 40
KEEP = 3


class Runs:
    """Runs of one command line in one folder."""

    def __init__(self, folder, program, launcher):
        self.folder = folder
        self.saves = folder / "run"
        # The program's own text is this tree, which may change during a long form.
        text = random.Random(0).choices(b"abcdefgh \n", k=20000)
        (folder / "text").write_bytes(bytes(text))
        self.command = [*launcher, *(["-n", "2"] if launcher else []), program, "--engine", "mpi" if launcher else "threads",
                        "--mesh", "2x1x1", *MODEL, "--text", "text", "--json", "run.json"]
        self.launched = bool(launcher)
        self.launchers_killed = 0

    def start(self, *flags, steps=STEPS_OF_A_RUN):
        return subprocess.Popen([*self.command, "--steps", str(steps), *flags], cwd=self.folder, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)

    def finish(self, *flags, steps=STEPS_OF_A_RUN):
        """A run that nobody kills, and its report."""
        started = self.start(*flags, steps=steps)
        said = started.communicate(timeout=900)[1].decode(errors="replace")
        if started.returncode != 0:
            sys.exit(f"WRONG: a run that nobody killed ended with {started.returncode}:\n{said}")
        return json.loads((self.folder / "run.json").read_text(encoding="utf-8"))

    def committed(self):
        """The newest step that has its name."""
        steps = [int(path.name[5:]) for path in self.saves.glob("step-*") if path.name[5:].isdigit()]
        return max(steps, default=0)

    def processes(self, started):
        """Of one run: the ranks where a launcher has started them."""
        if not self.launched:
            return [started.pid]
        try:
            children = pathlib.Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text(encoding="utf-8").split()
        except OSError:
            children = []
        return [int(child) for child in children]

    def kill(self, started, chance):
        """One rank, or all of them with what has started them."""
        ranks = self.processes(started)
        if self.launched and ranks and chance.random() < 0.5:
            victim = chance.choice(ranks)
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it was at its end
        else:
            for process in {*ranks, started.pid}:
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        try:
            started.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            if any(lives(process) for process in self.processes(started)):
                sys.exit("WRONG: a rank lives on minutes after another one was killed")
            # Open MPI 4.1 may miss the end of a rank that dies while it starts the others, and waits for ever.
            started.kill()
            started.communicate()
            self.launchers_killed += 1
        for process in ranks:  # those whose launcher is gone
            while pathlib.Path(f"/proc/{process}").exists() and "train_gpt" in name_of(process):
                time.sleep(0.01)


def name_of(process):
    try:
        return pathlib.Path(f"/proc/{process}/comm").read_text(encoding="utf-8")
    except OSError:
        return ""


def lives(process):
    """Whether it runs; what has ended and nobody has asked for does not."""
    try:
        stat = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def same_files(a, b):
    """Whether two steps hold the same files with the same bytes, but for the mark of a save, which a kill between a step's
    renaming and its end leaves behind."""
    names = [sorted(str(path.relative_to(folder)) for path in folder.rglob("*")
                    if path.is_file() and path.name != "uncommitted.shardkit") for folder in (a, b)]
    return names[0] == names[1] and not filecmp.cmpfiles(a, b, names[0], shallow=False)[1]


def check(runs, kills, chance):
    whole = runs.finish("--save", "whole")
    last = f"step-{STEPS_OF_A_RUN:08}"
    flags = ["--save", "run", "--save-every", "1", "--keep", str(KEEP), "--resume", "run"]
    begun = time.monotonic()
    runs.finish(*flags)
    longest = time.monotonic() - begun
    ends = 0
    for kill in range(kills):
        if runs.committed() == STEPS_OF_A_RUN:  # then from the beginning
            if not same_files(runs.saves / last, runs.folder / "whole" / last):
                sys.exit(f"WRONG: after {kill} kills the last step has other bytes than the unbroken run's")
            ends += 1
            for path in sorted(runs.saves.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
        started = runs.start(*flags)
        time.sleep(chance.uniform(0, longest / 2))
        before = runs.committed()
        runs.kill(started, chance)
        after = runs.committed()
        if after < before:
            sys.exit(f"WRONG: kill {kill}: step {before} was there, and step {after} is the newest after it")
        if kill % 5 == 0 and after > 0:  # all that a step holds is read, and no step is made
            report = runs.finish("--resume", "run", steps=after)
            if report["first_step"] != after or report["losses"]:
                sys.exit(f"WRONG: kill {kill}: step {after} is there, and step {report['first_step']} is resumed")
    report = runs.finish(*flags)
    if report["losses"] != whole["losses"][report["first_step"]:]:
        sys.exit("WRONG: the resumed run has other losses than the unbroken one")
    if not same_files(runs.saves / last, runs.folder / "whole" / last):
        sys.exit("WRONG: the resumed run has another last step than the unbroken one")
    return ends


def main():
    launcher = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(sys.argv[1:sys.argv.index("--")] if launcher else None)
    with tempfile.TemporaryDirectory(prefix="shardkit-kills-") as name:
        runs = Runs(pathlib.Path(name), str(pathlib.Path(options.program).resolve()), launcher)
        ends = check(runs, options.kills, random.Random(options.seed))
    if runs.launchers_killed:
        print(f"{runs.launchers_killed} launchers lost sight of their ranks, and were killed")
    print(f"ok: {options.kills} kills, no committed step was lost; {ends + 1} runs came to their end with the bits of the "
          "unbroken one")


if __name__ == "__main__":
    main()
