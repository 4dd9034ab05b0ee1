# SPDX-License-Identifier: Apache-2.0
"""check_counts.py PROGRAM: what tests/run counts for doctest programs that pass, fail, throw, die or run nothing, which
tests names choose, and that a test which needs nothing built builds nothing."""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import run_tests  # noqa: E402

# Filter, and the expected counts: passed, failed, skipped.
CASES = [
    ("passes,has subcases", (2, 0, 1)),
    ("passes,fails", (1, 1, 1)),
    ("passes,throws", (1, 1, 1)),
    ("passes,dies", (1, 1, 0)),
    ("no such case", (0, 0, 1)),
]
TESTS = [{"name": name, "suite": [f"shardkit:{name.split('/')[0]}"]}
         for name in ("unit/a", "unit/a/b", "unit/a/c", "docs/a", "docs/page", "mpi_rest/a2", "first/host", "first/page")]
FIRST_TIER = """# A line: of text.
a promise: unit/a/source_test.cpp docs/page
another: unit/a/b
"""
# Names, and the tests that they choose.
CHOICES = [
    (["unit"], ["unit/a", "unit/a/b", "unit/a/c"]),
    (["unit/a"], ["unit/a", "unit/a/b", "unit/a/c"]),
    (["page", "a/"], ["unit/a", "docs/a", "docs/page"]),
    (["unit/a", "-unit/a/b", "page"], ["unit/a", "unit/a/c", "docs/page"]),
    (["unit/a", "-unit"], []),
    (["all"], ["unit/a", "unit/a/b", "unit/a/c", "docs/a", "docs/page"]),
    (["first"], ["unit/a/b", "docs/page", "first/host", "first/page"]),
    (["first/host", "mpi_rest"], ["mpi_rest/a2", "first/host"]),
    (["all", "-first", "-docs"], ["unit/a", "unit/a/c"]),
]
# A project of one test that needs nothing, and of a target that it does not need.
PROJECT = """project('planted')
python = find_program('python3')
custom_target(output: 'built', command: [python, '-c', 'open("built", "w").close()'], build_by_default: true)
test('script', python, args: ['-c', 'pass'], suite: 'script')
"""


def built_for_a_script(folder):
    """Returns what was built, and the last line of the run."""
    root = pathlib.Path(folder, "project")
    root.mkdir()
    (root / "meson.build").write_text(PROJECT, encoding="utf-8")
    subprocess.run(["meson", "setup", root / "build", root], check=True, capture_output=True)
    done = subprocess.run([sys.executable, "-B", run_tests.__file__, root / "build", "script"], check=False,
                          capture_output=True, text=True)
    return (root / "build/built").exists(), done.stdout.splitlines()[-1:]


def main():
    wrong = 0

    def expect(what, test, result, expected):
        nonlocal wrong
        counts = run_tests.count(test, result)
        found = (counts["passed"], counts["failed"], counts["skipped"])
        if found != expected:
            wrong += 1
            print(f"{what}: counted {found}, expected {expected}")

    with tempfile.TemporaryDirectory() as folder:
        for number, (names, expected) in enumerate(CASES):
            report = os.path.join(folder, f"{number}.txt")
            done = subprocess.run([sys.argv[1], "--order-by=file", f"--test-case={names}"], check=False,
                                  capture_output=True, env=dict(os.environ, SHARDKIT_TEST_REPORT=report))
            expect(names, {"name": names, "env": {"SHARDKIT_TEST_REPORT": report}},
                   "OK" if done.returncode == 0 else "FAIL", expected)
        absent = {"name": "absent", "env": {"SHARDKIT_TEST_REPORT": os.path.join(folder, "absent.txt")}}
        expect("a program that ran nothing", absent, "OK", (0, 1, 0))
        expect("a program that timed out", absent, "TIMEOUT", (0, 1, 0))
        expect("a test that meson did not reach", absent, "NOT RUN", (0, 1, 0))
        run_tests.FIRST = pathlib.Path(folder, "first.txt")
        run_tests.FIRST.write_text(FIRST_TIER, encoding="utf-8")
        choices = [[test["name"] for test in run_tests.select(TESTS, names)] for names, _ in CHOICES]
        run_tests.FIRST.write_text("a promise: docs/absent\n", encoding="utf-8")
        try:
            run_tests.select(TESTS, ["first"])
            wrong += 1
            print("a test of the first tier that there is not was not missed")
        except SystemExit as refusal:
            if "names docs/absent, and" not in str(refusal):
                wrong += 1
                print(f"a test of the first tier that there is not: {refusal}")
        if (found := built_for_a_script(folder)) != (False, ["1 passed, 0 failed"]):
            wrong += 1
            print(f"a test that needs nothing built: built and said {found}")
    for (names, expected), found in zip(CHOICES, choices):
        if found != expected:
            wrong += 1
            print(f"{names}: chose {found}, expected {expected}")
    plain = {"name": "plain", "env": {}}
    expect("a plain test that passes", plain, "OK", (1, 0, 0))
    expect("a plain test that fails", plain, "FAIL", (0, 1, 0))
    expect("a plain test that is skipped", plain, "SKIP", (0, 0, 1))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
