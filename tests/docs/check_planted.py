# SPDX-License-Identifier: Apache-2.0
"""check_planted.py CHECK -- COMPILER [flags]: pages with one fault each, which check.py has to find."""
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = "```cpp program\n#include <cstdio>\nint main() {{ {} }}\n```\n"
GOOD = PROGRAM.format('std::puts("hello");') + "```text output\nhello\n```\n"

# Text of the page, and what must be said of it; an empty text where nothing must.
PLANTS = [
    (GOOD + "See `tests/tool.py` and [the page](page.md).\n```sh\ntests/run all # with a comment\n```\n", ""),
    (PROGRAM.format("undeclared();"), "page.md:2: does not compile"),
    (PROGRAM.format("int unused;"), "page.md:2: does not compile"),
    (PROGRAM.format("undeclared();").replace("cpp", "cpp gpu"), "page.md:2: does not compile"),
    (PROGRAM.format("return 3;").replace("cpp", "cpp gpu"), ""),
    (PROGRAM.format("return 3;"), "page.md:2: exited with 3"),
    (GOOD.replace("int main", "#include <shardkit/shardkit.hpp>\nint main"), "page.md:2: includes shardkit/shardkit.hpp, expected"),
    (GOOD.replace("\nhello\n", "\ngoodbye\n"), "page.md:2: prints\nhello"),
    ("```text output of examples/hello.cpp\nhello\n```\n", ""),
    ("```text output of examples/hello.cpp\ngoodbye\n```\n", "page.md:2: prints\nhello"),
    # Programs of one page are compiled as one.
    (GOOD + "```text output of examples/hello.cpp\ngoodbye\n```\n", "page.md:9: prints\nhello"),
    (GOOD + GOOD, ""),
    (GOOD + PROGRAM.format("undeclared();"), "page.md:2, page.md:9: do not compile"),
    (GOOD + PROGRAM.format("return 3;"), "page.md:9: exited with 3"),
    (GOOD + GOOD.replace("\nhello\n", "\ngoodbye\n"), "page.md:9: prints\nhello"),
    ("Text.\n", "no program"),
    (GOOD + "```cpp\nint i;\n```\n", "a block marked 'cpp'"),
    (GOOD + "```text output of examples/hello.cpp header\nhello\n```\n", "a block marked 'text output of"),
    (GOOD + "```sh\n", "never closed"),
    (GOOD + "```sh\ntests/absent\n```\n", "page.md:9: tests/absent is no program of this tree"),
    (GOOD + "```sh\ntests/tool.py\n```\n", "page.md:9: tests/tool.py is no program of this tree"),
    (GOOD + "```sh\nno-such-command --help\n```\n", "page.md:9: there is no command no-such-command"),
    (GOOD + "```sh\nexamples/run --steps 3\n```\n", ""),
    (GOOD + "```sh\nexamples/run --stepz 3\n```\n", "page.md:9: train_gpt has no flag --stepz"),
    (GOOD + "[there](absent.md)\n", "page.md:8: the link absent.md leads nowhere"),
    (GOOD + "## What `it` does, now\n[there](#what-it-does-now)\n", ""),
    (GOOD + "## What `it` does\n[there](page.md#what-it-did)\n", "page.md:9: page.md has no heading #what-it-did"),
    (GOOD + "```cpp declarations\nstruct Pair {\n    int a, b;  // two\n};\n```\n", ""),
    (GOOD + "```cpp declarations\nstruct Pair {\n    int a;\n};\n```\n", "struct Pair is shown with ['a'], and has ['a', 'b']"),
    (GOOD + "```cpp declarations\nstruct Absent {\n    int a;\n};\n```\n", "struct Absent is shown with ['a'], and has None"),
    (GOOD + "In `policy/absent.hpp`.\n", "page.md:8: there is no file policy/absent.hpp"),
]


def make_tree(root):
    for program in ("tests/run", "examples/run"):
        (root / program).parent.mkdir()
        (root / program).touch(mode=0o755)
    (root / "tests/tool.py").touch(mode=0o644)
    (root / "examples/train_gpt").mkdir()
    (root / "examples/train_gpt/flags.cpp").write_text('add("--steps");\n', encoding="utf-8")
    (root / "examples/hello.cpp").write_text(PROGRAM.format('std::puts("hello");').split("\n", 1)[1].removesuffix("```\n"),
                                             encoding="utf-8")
    (root / "include").mkdir()
    (root / "include/pair.hpp").write_text("struct Pair {\n    int a = 1;\n    std::map<int, int> b{};\n};\n", encoding="utf-8")


def main():
    check, compiler = sys.argv[1], sys.argv[3:]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        make_tree(root)
        for text, expected in PLANTS:
            (root / "page.md").write_text(text, encoding="utf-8")
            done = subprocess.run([sys.executable, "-B", check, root, "page.md", "--", *compiler],
                                  capture_output=True, text=True, check=False)
            if (done.returncode == 0) != (expected == "") or expected not in done.stdout:
                wrong += 1
                print(f"expected '{expected}' of\n{text}and got\n{done.stdout}{done.stderr}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
