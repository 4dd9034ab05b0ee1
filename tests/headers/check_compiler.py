# SPDX-License-Identifier: Apache-2.0
"""Read as C++17, or without exceptions, an entry header is one error and not pages.

check_compiler.py INCLUDE -- COMPILER..."""
import subprocess
import sys

SENTENCES = {
    "-std=c++17": "shardkit needs C++20: compile with -std=c++20",
    "-fno-exceptions": "shardkit needs exceptions: compile without -fno-exceptions",
}
MOST_LINES = 12


def main():
    include = sys.argv[1]
    compiler = sys.argv[sys.argv.index("--") + 1:]
    wrong = 0
    for header in ("shardkit/shardkit.hpp", "shardkit/mpi.hpp", "shardkit/nccl.hpp"):
        for flag, sentence in SENTENCES.items():
            done = subprocess.run([*compiler, "-std=c++20", flag, f"-I{include}", "-x", "c++", "-fsyntax-only", "-"],
                                  input=f"#include <{header}>\n", capture_output=True, text=True, check=False)
            lines = done.stderr.splitlines()
            errors = [line for line in lines if "error: " in line]
            if done.returncode == 0 or len(lines) > MOST_LINES or len(errors) != 1 or sentence not in errors[0]:
                wrong += 1
                print(f"{header}: expected '{sentence}' in at most {MOST_LINES} lines, got {len(lines)}:\n"
                      f"{done.stderr[:2000]}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
