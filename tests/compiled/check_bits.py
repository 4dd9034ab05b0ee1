# SPDX-License-Identifier: Apache-2.0
"""check_bits.py TABLE {ENGINE TRAINER}...: each trainer prints the hashes of TABLE, which a header-only build printed.

TABLE is made anew by `trainer threads FOLDER` of tests/compiled/trainer.cpp, compiled header-only and without contraction."""
import pathlib
import re
import subprocess
import sys
import tempfile

OF_THE_HOST = r"^parts | muon "  # what the core has not over NCCL


def main():
    table = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    if len(table) < 50:
        sys.exit(f"{sys.argv[1]} has {len(table)} lines: this check compares with a table that is gone")
    wrong = 0
    for engine, trainer in zip(sys.argv[2::2], sys.argv[3::2]):
        with tempfile.TemporaryDirectory(prefix="shardkit-compiled-") as folder:
            done = subprocess.run([trainer, engine, folder], stdout=subprocess.PIPE, text=True, check=True, timeout=250)
        lines = done.stdout.splitlines()
        wanted = [line for line in table if engine != "nccl" or not re.search(OF_THE_HOST, line)]
        for expected, line in zip(wanted, lines):
            if expected != line:
                print(f"{trainer} {engine}:\n  {line}\nexpected\n  {expected}")
                wrong += 1
        if len(lines) != len(wanted):
            sys.exit(f"{trainer} {engine} printed {len(lines)} lines, expected {len(wanted)}")
    print(f"{len(table)} trainings, {wrong} with other bits")
    sys.exit(wrong != 0)


if __name__ == "__main__":
    main()
