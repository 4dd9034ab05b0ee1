# SPDX-License-Identifier: Apache-2.0
"""check_planted.py COLLECTIVES KERNELS POLICIES CHECKPOINTS: programs into whose work a fault is planted say what is wrong and end
with 1, and with 0 where nothing is checked; the result that they write says so too."""
import json
import pathlib
import subprocess
import sys
import tempfile

from expectation import end, expect

COLLECTIVES, KERNELS, POLICIES, CHECKPOINTS = sys.argv[1:]


def check(program, flags, code, error, recorded):
    """A run ends with this exit code and these words on standard error, and its JSON holds `recorded`."""
    name = pathlib.Path(program).name
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "result.json"
        done = subprocess.run([program, *flags, "--json", file], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120, check=False)
        found = json.loads(file.read_text(encoding="utf-8"))["wrong"] if file.exists() else None
    said = done.stderr == "" if error is None else \
        error in done.stderr and len(done.stderr.splitlines()) == 1
    expect(done.returncode == code and said and found == recorded, f"{name} {' '.join(flags)} ends with {code}",
           f"{done.returncode}, wrong {found!r}, expected {recorded!r}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


QUICK = ["--rounds", "1", "-n", "1", "-w", "0"]
SPOILED = ["--verb", "all_reduce", "--in-place", "off", "-b", "64", "-e", "4096", "-f", "64", *QUICK]
check(COLLECTIVES, SPOILED, 1, "collectives: error: wrong data: 2 values; see #wrong", 2)
check(COLLECTIVES, [*SPOILED, "-c", "0"], 0, None, 0)
check(KERNELS, QUICK, 1, "kernels: error: wrong data: 1 values; see #wrong", 1)
check(KERNELS, [*QUICK, "-c", "0"], 0, None, 0)
DIFFERS = "full_shard on 1x1x1: differs from one rank by 0.125, more than 3.05e-05"
check(POLICIES, ["--engine", "self", "--shapes", "100,50", "--policy", "full_shard", "--rounds", "1", "--compute-us",
                 "0"], 1, f"policies: error: wrong data: {DIFFERS}", [DIFFERS])
check(CHECKPOINTS, ["--elements", "5000", "--rounds", "1"], 1,
      "checkpoints: error: wrong data: 4 bytes differ after a load", 4)
end()
