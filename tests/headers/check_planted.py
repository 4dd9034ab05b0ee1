# SPDX-License-Identifier: Apache-2.0
"""check_planted.py CHECK -- COMPILER...: check_alone.py names the headers that lack an include or a guard, and only them, also
where one that has the include was precompiled for others, or stands before it in one unit.
"""
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

HEADERS = {
    "whole.hpp": "#pragma once\n#include <vector>\ntemplate <class T> auto copy_of(T one) { return std::vector<T>{one}; }\n",
    "lacks_include.hpp": "#pragma once\ntemplate <class T> auto copy_of(T one) { return std::vector<T>{one}; }\n",
    "lacks_guard.hpp": "struct Stands {};\n",
    "base.hpp": "#pragma once\n#include <vector>\n",
    "sometimes.hpp": "#pragma once\n#ifdef NEVER\n#include <base.hpp>\n#endif\n"
                     "template <class T> auto copy_of(T one) { return std::vector<T>{one}; }\n",
    "behind_a_user.hpp": "#pragma once\n#include <user1.hpp>\ninline std::map<int, int> table;\n",
    **{f"user{number}.hpp": "#pragma once\n#include <base.hpp>\ninline std::vector<int> numbers;\n" for number in range(9)},
}
BAD = ["lacks_include.hpp", "lacks_guard.hpp", "sometimes.hpp", "behind_a_user.hpp"]
GOOD = [name for name in HEADERS if name not in BAD]


def check(check_alone, folder, names):
    done = subprocess.run([sys.executable, "-B", check_alone, folder, folder / "unit.cpp", *names], text=True, check=False,
                          capture_output=True)
    return done.returncode, done.stdout.strip() if done.returncode == 0 else done.stderr.strip()


def main():
    check_alone, compiler = sys.argv[1], sys.argv[3:]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for header, text in HEADERS.items():
            (folder / header).write_text(text, encoding="utf-8")
        command = shlex.join([*compiler, f"-I{folder}", "-MD", "-MF", "unit.d", "-o", "unit.o", "-c", "unit.cpp"])
        (folder / "compile_commands.json").write_text(
            json.dumps([{"directory": str(folder), "file": "unit.cpp", "command": command}]), encoding="utf-8")
        for names, expected in [
            (GOOD, (0, f"{len(GOOD)} headers, each alone, in 10 units; 1 precompiled for those that include them")),
            (list(HEADERS), (1, f"not alone: {' '.join(BAD)}")),
        ]:
            if (got := check(check_alone, folder, names)) != expected:
                sys.exit(f"{names}: {got}, expected {expected}")


if __name__ == "__main__":
    main()
