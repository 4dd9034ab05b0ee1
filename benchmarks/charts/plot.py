# SPDX-License-Identifier: Apache-2.0
"""plot.py RESULT PICTURE: draws what --json of a benchmark wrote; PICTURE ends in .svg or .png."""
import json
import pathlib
import sys

from main import NoGnuplot, chart_of, draw


def main():
    if len(sys.argv) != 3 or pathlib.Path(sys.argv[2]).suffix not in (".svg", ".png"):
        sys.exit("benchmarks/run plot: error: expected RESULT PICTURE, a JSON file and a name that ends in .svg or .png")
    result, picture = map(pathlib.Path, sys.argv[1:])
    try:
        chart = chart_of(json.loads(result.read_text(encoding="utf-8")), [])
        picture.write_bytes(draw({"": chart}, picture.suffix[1:])[""])
    except OSError as error:
        sys.exit(f"benchmarks/run plot: error: '{error.filename}': {error.strerror}")
    except (KeyError, TypeError, ValueError):
        sys.exit(f"benchmarks/run plot: error: '{result}': expected what --json of collectives or policies wrote")
    except NoGnuplot as error:
        sys.exit(f"benchmarks/run plot: error: {error}")


if __name__ == "__main__":
    main()
