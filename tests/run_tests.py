# SPDX-License-Identifier: Apache-2.0
"""run_tests.py BUILD_FOLDER [suite or test name ...]: runs the named tests with meson, builds nothing, and prints, as the
last line, how many passed: doctest programs count by case, other tests as one. Without a name it runs the first
tier, at the sizes for slow builds. `first` names that tier, `all` every test but what runs only when it is named.
-NAME leaves out what was named before. `run_tests.py --targets BUILD_FOLDER [...]` prints what these tests need built.
"""
import collections
import json
import os
import pathlib
import subprocess
import sys


# Not in `all`: MPI's further numbers of processes, and programs whose cases other programs have too.
ON_REQUEST = ("mpi_rest", "first")
OF_MPI = ("docs/mpi_engine", "mpi/train_gpt")
FIRST = pathlib.Path(__file__).resolve().parent / "first.txt"


def close(counts):
    line = f"{counts['passed']} passed, {counts['failed']} failed"
    if counts["skipped"]:
        line += f", {counts['skipped']} skipped"
    print(line, flush=True)
    sys.exit(0 if counts["failed"] == 0 and counts["passed"] > 0 else 1)


def suites_of(test):
    return [suite.split(":")[-1] for suite in test["suite"]]


def first_words(text):
    """What the lines 'promise: name ...' of first.txt name, by promise."""
    words = collections.defaultdict(list)
    for line in text.splitlines():
        promise, _, names = line.partition(": ")
        if not line.startswith("#"):
            words[promise] += names.split()
    return words


def named(tests, name):
    """The names of the tests that are called so, belong to the suite or lie under the folder of that name. The compiler
    in parentheses behind a name can be left out; so can the folder before it, of all but what runs on request: `gpt` is
    not first/gpt."""
    def calls(test):
        short = [] if set(suites_of(test)) & set(ON_REQUEST) else [test["name"].split("/")[-1]]
        return [test["name"], test["name"].split(" (")[0], *suites_of(test), *short]
    return [test["name"] for test in tests if name in calls(test) or test["name"].startswith(name + "/")]


def first_tier(tests):
    """The programs of its sources, and what else first.txt names; those of MPI where there is one.
    @raise SystemExit where there is no test of a name"""
    words = {word for names in first_words(FIRST.read_text(encoding="utf-8")).values() for word in names}
    chosen = named(tests, "first")
    for word in sorted(word for word in words if not word.endswith(".cpp")):
        found = named(tests, word)
        if not found and word not in OF_MPI:
            sys.exit(f"tests/first.txt names {word}, and no suite or test is called so")
        chosen += found
    return chosen


def select(tests, wanted):
    """The tests that are named, belong to a named suite or tier, or lie under a named folder."""
    chosen = []
    unknown = []
    for word in wanted:
        name = word.removeprefix("-").rstrip("/")
        if name == "first":
            matches = first_tier(tests)
        elif name == "all":
            matches = [test["name"] for test in tests if not set(suites_of(test)) & set(ON_REQUEST)]
        else:
            matches = named(tests, name)
        if not matches:
            unknown.append(name)
        chosen = [each for each in chosen if each not in matches]
        if not word.startswith("-"):
            chosen += matches
    if unknown:
        suites = sorted({suite for test in tests for suite in suites_of(test)})
        print(f"no suite or test is called {', '.join(unknown)}", file=sys.stderr)
        print(f"suites: all {' '.join(suites)}", file=sys.stderr)
        print("tests:", *sorted(test["name"] for test in tests), sep="\n  ", file=sys.stderr)
        sys.exit(1)
    return [test for test in tests if test["name"] in chosen]


def introspect(folder, what):
    return json.loads(subprocess.run(["meson", "introspect", folder, what], check=True, capture_output=True,
                                     text=True).stdout)


def print_targets(folder, tests):
    """What ninja has to build for the tests, one a line."""
    files = {target["id"]: target["filename"] for target in introspect(folder, "--targets")}
    needed = {file for test in tests for target in test["depends"] for file in files[target]}
    print(*sorted(os.path.relpath(file, folder.resolve()) for file in needed), sep="\n")


def cases(report):
    """Counts by result of one program's report, and the case that was running when it ended, if any."""
    counts = collections.Counter()
    running = None
    if report and report.exists():
        for line in report.read_text(encoding="utf-8", errors="replace").splitlines():
            result, _, name = line.partition(" ")
            if result == "started":
                running = name
            else:
                running = None
                counts[result] += 1
                if result == "failed":
                    print(f"failed: {name}")
    return counts, running


def count(test, result):
    counts = collections.Counter()
    if result == "SKIP":
        counts["skipped"] += 1
        return counts
    report = test["env"].get("SHARDKIT_TEST_REPORT")
    if report is None:
        if result != "OK":
            print(f"failed: {test['name']} ended with {result}")
        counts["passed" if result == "OK" else "failed"] += 1
        return counts
    counts, running = cases(pathlib.Path(report))
    if result == "OK" and not counts["passed"] and not counts["skipped"]:
        print(f"failed: {test['name']} ran no test case")
        counts["failed"] += 1
    if result != "OK" and not counts["failed"]:
        print(f"failed: {test['name']} ended with {result}" + (f" in '{running}'" if running else ""))
        counts["failed"] += 1
    return counts


def main():
    words = sys.argv[1:]
    only_targets = words[0] == "--targets"
    folder, *names = words[only_targets:]
    folder = pathlib.Path(folder)
    chosen = select(introspect(folder, "--tests"), names or ["first"])
    if only_targets:
        print_targets(folder, chosen)
        return
    if not names:
        os.environ["SHARDKIT_TEST_SIZE"] = "small"
    log = folder / "meson-logs/testlog.json"
    log.unlink(missing_ok=True)
    for test in chosen:
        report = test["env"].get("SHARDKIT_TEST_REPORT")
        if report:
            pathlib.Path(report).parent.mkdir(exist_ok=True)
            pathlib.Path(report).unlink(missing_ok=True)

    # Whoever asks has built what --targets says. By itself meson builds everything for tests that need nothing built.
    subprocess.run(["meson", "test", "-C", folder, "--no-rebuild", "--print-errorlogs", "--timeout-multiplier",
                    os.environ.get("SHARDKIT_TIMEOUT_FACTOR", "1"), *(test["name"] for test in chosen)],
                   check=False, stdin=subprocess.DEVNULL)

    total = collections.Counter()
    if not log.exists():
        print("failed: no test was run")
        close(collections.Counter(failed=1))
    results = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        results[entry["name"].split(" / ")[-1]] = entry["result"]
    print()
    for test in chosen:
        # A test that meson did not reach counts as failed: an interrupted run is no success.
        total += count(test, results.get(test["name"], "NOT RUN"))
    close(total)


if __name__ == "__main__":
    main()
