# SPDX-License-Identifier: Apache-2.0
"""check_kernels.py PROGRAM PAGE: the program measures what its flags say and nothing else, its figures agree with each
other, and it refuses what it cannot do; PAGE, its documentation, names flags, columns and JSON members that there are.
"""
import json

from program_check import SWEEP_REFUSED, check, check_page, check_time, expect, near, printed_rows, report_of, run

BYTES = {"adamw": (28, 28), "sgd": (20, 20), "norm": (4, 2), "cast": (6, 6), "accumulate": (12, 10), "pack": (8, 4),
         "unpack": (8, 4), "step": (32, 34)}
TYPES = ("float", "bfloat16")
QUICK = ["--rounds", "3", "--iters", "2", "--warmup_iters", "1"]


def check_row(row, ranks):
    what = f"{row['kernel']} {row['type']} {row['size']} on {ranks}"
    each = BYTES[row["kernel"]][TYPES.index(row["type"])]
    expect(row["bytes_per_element"] == each and row["size"] == each * row["count"], f"{what}: bytes")
    expect(row["wrong"] == 0, f"{what}: no wrong values")
    copy = row["copy"]
    expect(check_time(row["time_us"]) and check_time(copy["time_us"]), f"{what}: times")
    expect(copy["bytes_per_rank"] == (row["size"] + 1) // 2, f"{what}: bytes of the copy")
    for figure in (row, copy):
        bandwidth = row["size"] * ranks / figure["time_us"]["median"] / 1e3
        expect(near(figure["bandwidth_gb_s"], bandwidth), f"{what}: bandwidth of all ranks")
    packs = row["kernel"] in ("pack", "unpack")
    expect(row["launches"] is None and (0 < row["tensors"] <= 300 if packs else row["tensors"] is None),
           f"{what}: tensors where they are packed, no launch on the host")
    parts = {"runs": 1 if row["kernel"] in ("adamw", "sgd", "norm") else None,
             "groups": 1 if row["kernel"] == "step" else None, "graph": False}
    expect({name: row[name] for name in parts} == parts, f"{what}: runs and groups where there are, no graph on the host")
    expect(near(row["share_of_copy"], copy["time_us"]["median"] / row["time_us"]["median"]), f"{what}: share")


def measured(folder, flags):
    report, done = report_of(folder, [*QUICK, *flags])
    for row in report["rows"]:
        check_row(row, report["ranks"])
    expect([line[:2] for line in printed_rows(done)] == [[row["kernel"], row["type"]] for row in report["rows"]],
           "lines and rows agree", done)
    return report, done


def check_runs(folder):
    report, done = measured(folder, ["-b", "1K", "-e", "64K", "-f", "64"])
    expect([(r["kernel"], r["type"]) for r in report["rows"]] == [(k, t) for k in BYTES for t in TYPES for _ in (0, 1)],
           "all kernels and types", done)
    check_page([report], [line for line in done.stdout.splitlines() if line.startswith("# ")][-2:])

    for commit in ("", "0123456789ab+modified"):
        file = folder / "commit.json"
        run([*QUICK, "--kernel", "norm", "-e", "1K", "-b", "1K", "--json", file], variables={"SHARDKIT_COMMIT": commit})
        build = json.loads(file.read_text(encoding="utf-8"))["build"]
        expect(set(build) == {"compiler", "flags", "shardkit", "commit"} and build["commit"] == (commit or "unknown")
               and build["shardkit"], f"library and commit '{commit}' are recorded")

    report, _ = measured(folder, ["--ranks", "3", "--kernel", "norm,adamw", "-d", "bfloat16", "-b", "1M", "-e", "1M"])
    expect([r["kernel"] for r in report["rows"]] == ["norm", "adamw"] and report["ranks"] == 3, "three ranks")
    report, _ = measured(folder, ["--kernel", "adamw", "-d", "float", "-b", "1", "-e", "60", "-f", "2"])
    expect([r["count"] for r in report["rows"]] == [1], "sizes that are equal are measured once")
    report, _ = measured(folder, ["--kernel", "adamw", "-d", "float", "-b", "280", "-e", "1000", "-i", "280"])
    expect([r["count"] for r in report["rows"]] == [10, 20, 30], "sizes by a step")
    report, _ = measured(folder, ["--kernel", "unpack", "-d", "float", "-b", "1M", "-e", "1M", "--tensors", "7"])
    expect([r["tensors"] for r in report["rows"]] == [7], "as many tensors as asked for")
    done = run([*QUICK, "--kernel", "norm", "-b", "1K", "-e", "1K", "-c", "0"])
    expect(done.returncode == 0 and done.stdout.split().count("N/A") == 2, "nothing checked, nothing said", done)


REFUSED = [
    (["--kernel", "copy"], "--kernel 'copy': expected all, or a list with commas of adamw, sgd, norm, cast, accumulate,"),
    (["--device", "tpu"], "--device 'tpu': expected host or gpu"),
    (["--device", "gpu"], "--device gpu: this program was built without CUDA; expected benchmarks/run to start it"),
    (["--device", "gpu", "--ranks", "2"], "--ranks '2': expected 1 with --device gpu, which measures one GPU"),
    (["--tensors", "0"], "--tensors '0': expected a whole number from 1 to 1000000"),
    (["-d", "half"], "--datatype 'half': expected all, or a list with commas of float and bfloat16"),
    (["-b", "1000G", "-e", "1000G"], "this run needs at least 1.46 TiB of memory at once, but this machine has "),
    (["--mesh", "2x1x1"], "unknown argument '--mesh': expected one of the flags that --help lists"),
]


check([check_runs], ["--kernel", "-b,--minbytes"], [*REFUSED, *SWEEP_REFUSED])
