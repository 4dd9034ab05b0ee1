# SPDX-License-Identifier: Apache-2.0
"""check_examples.py ROOT PROGRAM... -- COMPILER [flags]: the numbered examples print header-only what these programs of them
print in the compiled form, times left out. Header-only they are compiled as one, which takes a compiler little more than
the largest of them; PROGRAM is named as the example, behind `compiled_`."""
import pathlib
import subprocess
import sys
import tempfile

from check_same_output import lines_of

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "docs"))
from check import as_one  # noqa: E402


def main():
    split = sys.argv.index("--")
    root, programs = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:split]
    names = [pathlib.Path(program).name.removeprefix("compiled_") for program in programs]
    with tempfile.TemporaryDirectory(prefix="shardkit-examples-") as folder:
        source, together = pathlib.Path(folder, "examples.cpp"), pathlib.Path(folder, "examples")
        source.write_text(as_one([(name, (root / f"examples/{name}.cpp").read_text(encoding="utf-8"), None)
                                  for name in names]), encoding="utf-8")
        subprocess.run([*sys.argv[split + 1:], "-I", root / "include", "-I", root / "examples", source,
                        "-pthread", "-o", together], check=True)
        for number, program in enumerate(programs):
            compiled, header_only = lines_of([program]), lines_of([together, str(number)])
            different = [pair for pair in zip(compiled, header_only) if pair[0] != pair[1]]
            if not compiled or compiled != header_only:
                sys.exit(f"{names[number]} prints {len(compiled)} lines in the compiled form and {len(header_only)} "
                         f"header-only; the first that differ: {different[:3]}")
            print(f"{names[number]}: {len(compiled)} lines, the same")


if __name__ == "__main__":
    main()
