# SPDX-License-Identifier: Apache-2.0
"""check_bits.py TABLE {ENGINE TRAINER}...: each trainer prints the hashes of TABLE, which a header-only build printed.

TABLE is made anew by `trainer threads FOLDER` of tests/compiled/trainer.cpp, compiled header-only and without contraction."""
import pathlib
import subprocess
import sys
import tempfile

OF_AN_ENGINE = "reports "  # bytes and calls, of which NCCL has others than threads


def main():
    table = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    if len(table) < 50:
        sys.exit(f"{sys.argv[1]} has {len(table)} lines: this check compares with a table that is gone")
    wrong = 0
    for engine, trainer in zip(sys.argv[2::2], sys.argv[3::2]):
        with tempfile.TemporaryDirectory(prefix="shardkit-compiled-") as folder:
            done = subprocess.run([trainer, engine, folder], stdout=subprocess.PIPE, text=True, check=True, timeout=250)
        lines = done.stdout.splitlines()
        for expected, line in zip(table, lines):
            if expected != line and (engine == "threads" or not line.startswith(OF_AN_ENGINE)):
                print(f"{trainer} {engine}:\n  {line}\nexpected\n  {expected}")
                wrong += 1
        if len(lines) != len(table):
            sys.exit(f"{trainer} {engine} printed {len(lines)} lines, expected {len(table)}")
    print(f"{len(table)} trainings, {wrong} with other bits")
    sys.exit(wrong != 0)


if __name__ == "__main__":
    main()
