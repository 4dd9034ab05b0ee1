# SPDX-License-Identifier: Apache-2.0
"""run_tests.py BUILD_FOLDER [suite or test name ...]: builds what the named tests need (all without a name), runs
them with meson and prints, as the last line, how many passed: doctest programs count by case, other tests as one.
-NAME leaves out what was named before. What is on request runs only when it is named.
"""
import collections
import json
import os
import pathlib
import subprocess
import sys


ON_REQUEST = ("mpi_rest",)


def close(counts):
    line = f"{counts['passed']} passed, {counts['failed']} failed"
    if counts["skipped"]:
        line += f", {counts['skipped']} skipped"
    print(line, flush=True)
    sys.exit(0 if counts["failed"] == 0 and counts["passed"] > 0 else 1)


def suites_of(test):
    return [suite.split(":")[-1] for suite in test["suite"]]


def all_unasked(tests):
    return [test for test in tests if not set(suites_of(test)) & set(ON_REQUEST)]


def select(tests, wanted):
    """The tests that are named, belong to a named suite, or lie under a named folder."""
    chosen = []
    unknown = []
    for word in wanted:
        name = word.removeprefix("-").rstrip("/")
        matches = [test["name"] for test in tests
                   if name in (test["name"], test["name"].split("/")[-1]) or name in suites_of(test)
                   or test["name"].startswith(name + "/")]
        if not matches:
            unknown.append(name)
        chosen = [each for each in chosen if each not in matches]
        if not word.startswith("-"):
            chosen += matches
    if unknown:
        suites = sorted({suite for test in tests for suite in suites_of(test)})
        print(f"no suite or test is called {', '.join(unknown)}", file=sys.stderr)
        print(f"suites: {' '.join(suites)}", file=sys.stderr)
        print("tests:", *sorted(test["name"] for test in tests), sep="\n  ", file=sys.stderr)
        sys.exit(1)
    return [test for test in tests if test["name"] in chosen]


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
    folder = pathlib.Path(sys.argv[1])
    tests = json.loads(subprocess.run(["meson", "introspect", folder, "--tests"], check=True,
                                      capture_output=True, text=True).stdout)
    named = sys.argv[2:]
    chosen = select(tests, named) if named else all_unasked(tests)
    log = folder / "meson-logs/testlog.json"
    log.unlink(missing_ok=True)
    for test in chosen:
        report = test["env"].get("SHARDKIT_TEST_REPORT")
        if report:
            pathlib.Path(report).parent.mkdir(exist_ok=True)
            pathlib.Path(report).unlink(missing_ok=True)

    command = ["meson", "test", "-C", folder, "--print-errorlogs",
               "--timeout-multiplier", os.environ.get("SHARDKIT_TIMEOUT_FACTOR", "1")]
    # Without names everything is built already.
    command += [test["name"] for test in chosen] if named else ["--no-rebuild", *(f"--no-suite={suite}" for suite in ON_REQUEST)]
    subprocess.run(command, check=False, stdin=subprocess.DEVNULL)

    total = collections.Counter()
    if not log.exists():
        print("failed: the build, or no test was run")
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
