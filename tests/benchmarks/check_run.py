# SPDX-License-Identifier: Apache-2.0
"""check_run.py ROOT: how many ranks benchmarks/run starts for its flags."""
import pathlib
import subprocess
import sys

from expectation import end, expect

SCRIPT = pathlib.Path(sys.argv[1]) / "benchmarks/ranks_asked_for.sh"
for flags, expected in (
        ([], "2"), (["--ranks", "3"], "3"), (["--ranks=4"], "4"), (["--ranks", "08"], "8"), (["--ranks", "4096"], "4096"),
        (["-g", "8"], "8"), (["--ngpus=1"], "1"),
        (["--mesh", "2x3x4"], "24"), (["--mesh=2x1x1,8x1x1"], "2"), (["--pin", "on", "--mesh", "2x010x1"], "20"),
        (["--from", "4", "--to=2"], "6"), (["--to", "3"], "5"), (["--from", "1"], "2"), (["--from", "0", "--to", "2"], ""),
        # The program itself says what is wrong with these.
        (["--ranks", "99999999999999999999"], ""), (["--ranks", "4097"], ""), (["--ranks", "0"], ""), (["--ranks", "-1"], ""),
        (["--ranks", "2a"], ""), (["--ranks", ""], ""), (["--ranks"], ""), (["--mesh", "2x"], ""), (["--mesh", "x2"], ""),
        (["--mesh", "64x64x2"], ""), (["--mesh", "2xx2"], ""), (["--mesh", "9999x9999x9999x9999x9999x9999"], "")):
    done = subprocess.run(["bash", "-euc", '. "$0"; ranks_asked_for 2 --engine mpi "$@"', SCRIPT, *flags],
                          capture_output=True, text=True, timeout=60, check=False)
    expect((done.returncode, done.stdout.strip(), done.stderr) == (0, expected, ""), f"{flags}: {expected!r}", done)
end()
