# SPDX-License-Identifier: Apache-2.0
"""check_reshard.py PROGRAM PAGE: the program moves what its flags say, its figures agree with each other, it leaves nothing
behind and refuses what it cannot do; PAGE, its documentation, names flags, columns and JSON members."""
from program_check import LAUNCHER, check, check_page, check_time, expect, near, report_of

ROWS = ["reshard", "plan and reshard", "plain copy", "save and load"]
BLOCKS, COLUMNS = 12, 64


def check_report(report, elements):
    numel = BLOCKS * (max(1, elements // BLOCKS // COLUMNS) + 1) * COLUMNS
    # The destination's ranks share the state.
    expect(report["bytes"] == 12 * numel, f"{report['bytes']} received: each byte of the state once")
    expect(report["exchanges"] > 0, "exchanges")
    expect([row["what"] for row in report["rows"]] == ROWS, "all rows")
    copy = report["rows"][2]["time_us"]["median"]
    for row in report["rows"]:
        expect(check_time(row["time_us"]) and near(row["share_of_copy"], copy / row["time_us"]["median"]), row["what"])


def check_runs(folder):
    report, done = report_of(folder, ["--elements", "100000", "--rounds", "2", "--folder", folder])
    check_report(report, 100000)
    expect((report["engine"], report["from"], report["to"]) == ("threads", 2, 1), "defaults")
    expect(not list(folder.iterdir()), "nothing is left behind")
    check_page([report], [line for line in done.stdout.splitlines() if line.startswith("# ")][-2:-1])
    report, _ = report_of(folder, ["--from", "1", "--to", "3", "--staging", "4096", "--elements", "5000", "--rounds", "1",
                                   "--folder", folder])
    check_report(report, 5000)
    expect((report["from"], report["to"], report["staging_bytes"]) == (1, 3, 4096), "what was asked for")


def check_processes(folder):
    if not LAUNCHER:
        return
    report, _ = report_of(folder, ["--engine", "mpi", "--elements", "5000", "--rounds", "1", "--folder", folder],
                          launcher=[*LAUNCHER, "-n", "3"])
    check_report(report, 5000)
    expect((report["engine"], report["from"], report["to"]) == ("mpi", 2, 1) and report["mpi"], "processes")
    expect(not list(folder.iterdir()), "nothing is left behind by processes")


REFUSED = [
    (["--engine", "self"], "--engine 'self': expected threads or mpi"),
    (["--from", "0"], "--from '0': expected a whole number from 1 to 64"),
    (["--staging", "10"], "--staging '10': expected a whole number from 4096"),
    (["--elements", "100000000000"], "of memory at once, but this machine has "),
]


check([check_runs, check_processes], ["--engine", "--from", "--to", "--folder"], REFUSED)
