# SPDX-License-Identifier: Apache-2.0
"""check_same_output.py PROGRAM PROGRAM: both print the same, times left out, and end well."""
import re
import subprocess
import sys

TIME = re.compile(r"\d+\.?\d* (us|ms|s)\b")


def lines_of(command):
    """What it prints, without times."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=250)
    return [TIME.sub("TIME", line) for line in done.stdout.splitlines()]


def main():
    one, other = (lines_of([program]) for program in sys.argv[1:])
    if not one or one != other:
        different = [pair for pair in zip(one, other) if pair[0] != pair[1]]
        sys.exit(f"{sys.argv[1]} prints {len(one)} lines and {sys.argv[2]} {len(other)}; the first that differ: {different[:3]}")
    print(f"{len(one)} lines, the same")


if __name__ == "__main__":
    main()
