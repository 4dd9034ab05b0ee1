# SPDX-License-Identifier: Apache-2.0
"""benchmarks/run table [--check]: writes docs/benchmark_results.md and its pictures from benchmarks/results/*.json, or
says whether they are what it would write (exit code 1 when not). --root FOLDER: of another tree."""
import argparse
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# row.py: how rows of peers are made, and how figures are written.
sys.path.append(str(ROOT / "benchmarks/peers"))

from bad_result import BadResult  # noqa: E402
from page import PICTURES, generate  # noqa: E402


def on_disk(root):
    return {f"{PICTURES}/{path.name}" for path in (root / PICTURES).glob("*.svg")}


def differences(root, files):
    for name, text in files.items():
        path = root / name
        if not path.exists():
            yield f"{name} is missing"
        elif path.read_text(encoding="utf-8") != text:
            yield f"{name} is not what the results say"
    for name in sorted(on_disk(root) - set(files)):
        yield f"{name} belongs to no result"


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    for name in on_disk(root) - set(files):
        (root / name).unlink()


def main():
    parser = argparse.ArgumentParser(prog="benchmarks/run table", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    parser.add_argument("--root", default=ROOT, type=pathlib.Path)
    options = parser.parse_args()
    try:
        files = generate(options.root)
    except BadResult as error:
        for line in str(error).splitlines():
            print(f"table: error: {line}", file=sys.stderr)
        return 1
    if not options.check:
        write(options.root, files)
        return 0
    wrong = list(differences(options.root, files))
    for line in wrong:
        print(f"table: error: {line}: run benchmarks/run table", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
