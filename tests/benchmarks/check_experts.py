# SPDX-License-Identifier: Apache-2.0
"""check_experts.py PROGRAM PAGE: the program sends what its flags say, its figures agree with each other, and it refuses what
it cannot do; PAGE, its documentation, names flags, columns and JSON members."""
from program_check import check, check_page, check_time, expect, near, report_of

ROWS = ["dispatch", "combine", "all_to_all", "plain copy"]


def check_report(report, tokens, width, top):
    expect(report["bytes"] == 4 * tokens * width * top, f"{report['bytes']} bytes: a row for each choice")
    expect([row["what"] for row in report["rows"]] == ROWS, "all rows")
    copy = report["rows"][3]["time_us"]["median"]
    for row in report["rows"]:
        expect(check_time(row["time_us"]) and near(row["share_of_copy"], copy / row["time_us"]["median"]), row["what"])


def check_runs(folder):
    report, done = report_of(folder, ["--tokens", "64", "--width", "32", "--rounds", "2"])
    check_report(report, 64, 32, 2)
    expect((report["ranks"], report["experts"], report["top"]) == (2, 8, 2), "defaults")
    check_page([report], [line for line in done.stdout.splitlines() if line.startswith("# ")][-2:-1])
    report, _ = report_of(folder, ["--ranks", "4", "--experts", "4", "--top", "3", "--tokens", "5", "--width", "7", "--rounds", "1"])
    check_report(report, 5, 7, 3)
    # Fewer choices than ranks: some get no rows.
    report, _ = report_of(folder, ["--ranks", "4", "--top", "1", "--tokens", "1", "--width", "8", "--rounds", "1"])
    check_report(report, 1, 8, 1)


REFUSED = [
    (["--ranks", "0"], "--ranks '0': expected a whole number from 1 to 64"),
    (["--ranks", "3"], "--experts '8': expected a multiple of --ranks 3"),
    (["--top", "9"], "--top '9': expected at most --experts 8"),
    (["--tokens", "10000000", "--width", "1000000"], "of memory at once, but this machine has "),
]


check([check_runs], ["--ranks", "--tokens", "--width", "--experts", "--top"], REFUSED)
