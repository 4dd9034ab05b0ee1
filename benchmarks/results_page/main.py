# SPDX-License-Identifier: Apache-2.0
"""benchmarks/run table [--check]: writes docs/benchmark_results.md and its pictures from benchmarks/results/*.json, or
says whether they are what it would write (exit code 1 when not), which needs no gnuplot. --root FOLDER: of another
tree."""
import argparse
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# row.py of the peers: how rows of peers are made.
sys.path += [str(ROOT / "benchmarks" / name) for name in ("common", "charts", "peers")]

from gnuplot import NoGnuplot, draw, is_of, stamped  # noqa: E402
from page import PAGE, PICTURES, generate  # noqa: E402
from result import BadResult  # noqa: E402


def on_disk(root):
    return {f"{PICTURES}/{path.name}" for path in (root / PICTURES).glob("*.svg")}


def read(path):
    return path.read_text(encoding="utf-8") if path.exists() else ""


def differences(root, page, drawings):
    for name, right in ((PAGE, lambda text: text == page),
                        *((name, lambda text, made=made: is_of(text, made)) for name, made in drawings.items())):
        if not (root / name).exists():
            yield f"{name} is missing"
        elif not right(read(root / name)):
            yield f"{name} is not what the results say"
    for name in sorted(on_disk(root) - set(drawings)):
        yield f"{name} belongs to no result"


def write(root, page, drawings):
    """What is there already is not drawn again: another gnuplot would draw it a little differently."""
    new = {name: made for name, made in drawings.items() if not is_of(read(root / name), made)}
    files = {PAGE: page, **{name: stamped(picture, new[name]) for name, picture in draw(new).items()}}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    for name in on_disk(root) - set(drawings):
        (root / name).unlink()


def main():
    parser = argparse.ArgumentParser(prog="benchmarks/run table", description="Writes docs/benchmark_results.md and its "
                                     "pictures from benchmarks/results.")
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 where they are not what would be written")
    parser.add_argument("--root", metavar="FOLDER", default=ROOT, type=pathlib.Path, help="of another tree [this one]")
    options = parser.parse_args()
    wrong = []
    try:
        made = generate(options.root)
        if options.check:
            wrong = [f"{line}: run benchmarks/run table" for line in differences(options.root, *made)]
        else:
            write(options.root, *made)
    except (BadResult, NoGnuplot) as error:
        wrong = str(error).splitlines()
    for line in wrong:
        print(f"table: error: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
