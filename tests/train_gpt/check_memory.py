# SPDX-License-Identifier: Apache-2.0
"""check_memory.py PROGRAM: what the process of a model of more than 500 MB keeps in memory is what was planned."""
import json
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]
# Parameters of 506 MB; with gradients and a momentum three times as much.
MODEL = ["--dtype", "fp64", "--width", "1024", "--layers", "5", "--heads", "8", "--sequence", "8", "--steps", "1",
         "--optimizer", "sgd"]


def check(folder, flags, ranks):
    path = pathlib.Path(folder) / "run.json"
    subprocess.run([PROGRAM, *MODEL, "--batch", str(ranks), "--mesh", f"{ranks}x1x1", "--json", path, *flags], check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=200)
    report = json.loads(path.read_text(encoding="utf-8"))
    assert 8 * report["parameters"] >= 500e6, report["parameters"]
    taken = report["resident_bytes_peak"] - report["resident_bytes_before"]
    planned = ranks * report["planned_bytes_per_rank"]
    print(f"{ranks} ranks {' '.join(flags)}: {taken} bytes taken, {planned} planned: {taken / planned:.4f}")
    return abs(taken / planned - 1) <= 0.1


def main():
    with tempfile.TemporaryDirectory(prefix="shardkit-memory-") as folder:
        right = [check(folder, ["--policy", "no_shard"], 1), check(folder, ["--policy", "full_shard"], 2)]
    sys.exit(0 if all(right) else 1)


if __name__ == "__main__":
    main()
