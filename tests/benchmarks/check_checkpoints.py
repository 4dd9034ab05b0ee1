# SPDX-License-Identifier: Apache-2.0
"""check_checkpoints.py PROGRAM PAGE: the program saves and loads what its flags say, its figures agree with each other, it
leaves nothing behind and refuses what it cannot do; PAGE, its documentation, names flags, columns and JSON members."""
from program_check import check, check_page, check_time, expect, near, report_of

ROWS = ["save", "save, page cache", "begin_save", "commit", "load, warm", "load, cold"]
WITHOUT_LIMIT = ("begin_save", "commit")
BLOCKS, COLUMNS = 12, 64


def numel(elements):
    return BLOCKS * (max(1, elements // BLOCKS // COLUMNS) + 1) * COLUMNS


def check_report(report, elements, rounds):
    state = 12 * numel(elements)
    expect(report["elements"] == elements and report["rounds"] == rounds and report["state_bytes"] == state, "the state asked for")
    # Headers, the steps' numbers and the manifest come besides, a few pages.
    expect(state < report["bytes_written"] < state + 65536, f"{report['bytes_written']} written: each byte of {state} once")
    # Headers and manifest are read by each rank.
    expect(state < report["bytes_read"] < state * (1 if report["policy"] == "full_shard" else report["ranks"])
           + report["ranks"] * 65536, f"{report['bytes_read']} read: each rank what it keeps")
    expect([row["what"] for row in report["rows"]] == ROWS, "all rows")
    for row in report["rows"]:
        expect(check_time(row["time_us"]), f"{row['what']}: time")
        if row["what"] in WITHOUT_LIMIT:
            expect(row["limit_us"] is row["limit_is"] is row["share_of_limit"] is None, f"{row['what']}: no limit")
        else:
            expect(check_time(row["limit_us"]) and row["limit_is"] and
                   near(row["share_of_limit"], row["limit_us"]["median"] / row["time_us"]["median"]), f"{row['what']}: limit")
    more_ranks = report["ranks"] > 1
    expect((0 < report["collectives_save"] < 20) == (0 < report["collectives_load"] < 20) == more_ranks,
           f"collectives for any number of tensors: {report['collectives_save']}, {report['collectives_load']}")


def check_runs(folder):
    report, done = report_of(folder, ["--elements", "100000", "--rounds", "2", "--folder", folder])
    check_report(report, 100000, 2)
    expect(report["ranks"] == 2 and report["policy"] == "full_shard", "defaults")
    expect(not list(folder.iterdir()), "nothing is left behind")
    check_page([report], [line for line in done.stdout.splitlines() if line.startswith("# ")][-2:-1])
    for flags in (["--ranks", "3", "--policy", "no_shard"], ["--ranks", "1", "--policy", "shard_optimizer"]):
        report, _ = report_of(folder, [*flags, "--elements", "5000", "--rounds", "1", "--folder", folder])
        check_report(report, 5000, 1)
        expect([str(report["ranks"]), report["policy"]] == flags[1::2], "as many ranks, and the policy, that were asked for")


REFUSED = [
    (["--policy", "zero"], "--policy 'zero': expected no_shard, shard_optimizer, shard_grad_op or full_shard"),
    (["--ranks", "0"], "--ranks '0': expected a whole number from 1 to 64"),
    (["--elements", "10"], "--elements '10': expected a whole number from 1000 to 100000000000"),
    (["--elements", "100000000000"], "this run needs at least 2.55 TiB of memory at once, but this machine has "),
    (["--engine", "mpi"], "unknown argument '--engine': expected one of the flags that --help lists"),
]


check([check_runs], ["--ranks", "--folder"], REFUSED)
