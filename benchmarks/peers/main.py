# SPDX-License-Identifier: Apache-2.0
"""benchmarks/run peers: see docs/benchmarks_peers.md. Exit codes: 2 for flags that make no sense, 1 when something that was
asked for was left out or failed, 0 otherwise, whether targets are met or not."""
import pathlib
import platform
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks/common"))

import machine  # noqa: E402
import options as flags  # noqa: E402
from refusal import BadFlag  # noqa: E402
from report import Report, ResultFile  # noqa: E402


def head_of(options):
    """What stands over the rows."""
    return {"date": machine.utc_date(), "machine": machine.read_machine(),
            "versions": {"shardkit": machine.library_version(ROOT), "commit": machine.library_commit(),
                         "compiler": machine.first_line(["c++", "--version"]),
                         "python": platform.python_version(), "valgrind": machine.first_line(["valgrind", "--version"])},
            "parts": options.parts, "rounds": options.rounds, "quick": options.quick}


def print_head(head):
    found = head["machine"]
    print(f"# shardkit and its peers, {head['date']}" + (", a quick run: figures are only a first look" if head["quick"]
                                                         else ""))
    print(f"# machine: {found['processor']}, {found['processors']} processors usable, {found['system']}, load "
          f"{found['load_before']:.2f}" + (" (BUSY: others run too)" if found["load_before"] > 0.5 else ""))
    print(f"# versions: {'; '.join(f'{name} {text}' for name, text in head['versions'].items())}")
    print(f"# method: both sides of a row in turns, {head['rounds']} rounds; the figure of each round, and of these "
          "median, least and largest", flush=True)


def measure(options, report):
    for part in options.parts:
        with report.attempt(part, "what was left"):
            flags.PARTS[part].run(options, report)


def main(arguments):
    try:
        options = flags.parse(arguments, ROOT, shutil.which)
        file = ResultFile(options.json)
    except BadFlag as error:
        print(f"peers: error: {error}", file=sys.stderr)
        return 2
    try:
        head = head_of(options)
        print_head(head)
        report = Report(head)
        measure(options, report)
        report.close()
        file.write(report.to_json())
    finally:
        file.drop()
    if report.failed or report.left_out:
        first = (report.failed + report.left_out)[0]
        print(f"peers: error: {len(report.failed)} failed and {len(report.left_out)} left out; the first: "
              f"{first['part']}, {first['what']}: {first['why']}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
