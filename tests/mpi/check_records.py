# SPDX-License-Identifier: Apache-2.0
"""check_records.py PROGRAM READER -- LAUNCHER...: what the ranks' flight records and their errors say of hangs that are
planted: a rank that is late, in an endless loop, killed, gone, in another order, or with another size."""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import time

PROGRAM, READER = sys.argv[1:3]
LAUNCHER = sys.argv[sys.argv.index("--") + 1:]
MPICH = "mpich" in LAUNCHER[0]
# Open MPI's launcher lets the others say whom they miss, however long that takes them; MPICH's kills them at once.
RECOVERING = LAUNCHER if MPICH else [*LAUNCHER, "--enable-recovery"]
NOT_ENTERED = "rank 1 has not entered all_reduce sum of 1 fp64 at "
LATE = "not every rank has made this call within 1000 ms"
# name, ranks, expected in every rank's error that waits, expected of the reader, ranks that leave no record.
CASES = [
    ("too_late", 3, [LATE, "rank 1 has not entered it", "for who_is_missing"], [NOT_ENTERED, "ranks 0, 2 wait in "], []),
    ("loop", 2, [LATE, "rank 1 has not entered it"], [NOT_ENTERED, "rank 0 waits in ", "it computes, or is in a loop"], []),
    ("loop", 5, [LATE, "rank 1 has not entered it"], [NOT_ENTERED, "ranks 0, 2-4 wait in ", "it computes, or is in a loop"], []),
    ("order", 3, [LATE],
     ["no rank can go on: each waits for another one", "rank 1 waits in barrier at ", "(call 0 over tp)", "ranks 0, 2 wait in barrier at ", "(call 0 over dp)"], []),
    ("size", 3, ["the ranks disagree in call"],
     ["rank 1 left the order of calls over world", "rank 1 called all_reduce sum of 5 fp64 at "], []),
    ("throw", 3, [], ["rank 1 has not entered ", "rank 1 has ended: planted"], []),
    ("return", 3, ["rank 1 returned before rank"], [NOT_ENTERED, "rank 1 has ended: its function has returned"], []),
    ("kill", 3, [], [] if MPICH else [NOT_ENTERED, "rank 1 has left no record"], [1]),
]


def run(name, ranks, prefix):
    command = [*(RECOVERING if name == "kill" else LAUNCHER), "-n", str(ranks), PROGRAM, name, f"record={prefix}"]
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", timeout=60, check=False).stdout


def main():
    wrong = 0
    for name, ranks, in_errors, in_files, without in CASES:
        with tempfile.TemporaryDirectory() as folder:
            prefix = f"{folder}/run"
            begin = time.monotonic()
            output = run(name, ranks, prefix)
            took = time.monotonic() - begin
            files = sorted(glob.glob(f"{prefix}-rank-*.json"))
            for file in files:
                with open(file, encoding="utf-8") as opened:
                    json.load(opened)
            there = {int(re.search(r"rank-(\d+)", file)[1]) for file in files}
            said = subprocess.run([READER, *files], stdout=subprocess.PIPE, text=True, check=False).stdout if files else ""
            missing = [text for text in in_errors if text not in output] + [text for text in in_files if text not in said]
            if in_files:
                missing += [f"a record of rank {rank}" for rank in range(ranks) if rank not in there and rank not in without]
            missing += [f"no half file {file}" for file in os.listdir(folder) if ".tmp-" in file]
            print(f"{'WRONG' if missing else 'ok'}: {name} on {ranks} after {took:.1f} s")
            if missing:
                wrong += 1
                print(f"  missing {missing}; the job:\n{output[:3000]}\n  the files {sorted(there)}:\n{said}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
