# SPDX-License-Identifier: Apache-2.0
"""check_kernels.py PROGRAM PAGE: the program measures what its flags say and nothing else, its figures agree with each
other, and it refuses what it cannot do; PAGE, its documentation, names flags, columns and JSON members that there are.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]
PAGE = pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")
BYTES = {"adamw": (28, 28), "sgd": (20, 20), "norm": (4, 2), "cast": (6, 6), "accumulate": (12, 10)}
TYPES = ("float", "bfloat16")
QUICK = ["--rounds", "3", "--iters", "2", "--warmup_iters", "1"]
wrong = []


def expect(condition, what, done=None):
    print(("ok: " if condition else "WRONG: ") + what)
    if not condition:
        wrong.append(what)
        if done is not None:
            print(done.stdout[-3000:] + done.stderr[-3000:])


def run(flags):
    return subprocess.run([PROGRAM, *map(str, flags)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=120, check=False)


def near(a, b):
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b))


def check_time(time):
    return set(time) == {"median", "min", "p95"} and 0 < time["min"] <= time["median"] <= time["p95"]


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
    expect(near(row["share_of_copy"], copy["time_us"]["median"] / row["time_us"]["median"]), f"{what}: share")


def measured(folder, flags):
    path = folder / "result.json"
    done = run([*QUICK, *flags, "--json", path])
    text = " ".join(map(str, flags))
    expect(done.returncode == 0 and done.stderr == "", f"{text}: ends well", done)
    report = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    expect(report["benchmark"] == "kernels" and report["format"] == 1 and report["wrong"] == 0, f"{text}: head")
    for row in report["rows"]:
        check_row(row, report["ranks"])
    printed = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    expect([line.split()[:2] for line in printed] == [[row["kernel"], row["type"]] for row in report["rows"]],
           f"{text}: lines and rows agree", done)
    return report, done


def members_of(value):
    """Names of all members within."""
    if isinstance(value, list):
        return {name for element in value for name in members_of(element)}
    if isinstance(value, dict):
        return set(value) | {name for element in value.values() for name in members_of(element)}
    return set()


def check_runs(folder):
    report, done = measured(folder, ["-b", "1K", "-e", "64K", "-f", "64"])
    expect([(r["kernel"], r["type"]) for r in report["rows"]] == [(k, t) for k in BYTES for t in TYPES for _ in (0, 1)],
           "all kernels and types", done)
    for line in [line for line in done.stdout.splitlines() if line.startswith("# ")][-2:]:
        expect(line in PAGE.splitlines(), "the page shows the columns", done)
    for name in members_of(report) - members_of(report["machine"]) - members_of(report["build"]):
        expect(f"`{name}`" in PAGE, f"the page names the JSON's member {name}")

    report, _ = measured(folder, ["--ranks", "3", "--kernel", "norm,adamw", "-d", "bfloat16", "-b", "1M", "-e", "1M"])
    expect([r["kernel"] for r in report["rows"]] == ["norm", "adamw"] and report["ranks"] == 3, "three ranks")
    report, _ = measured(folder, ["--kernel", "adamw", "-d", "float", "-b", "1", "-e", "60", "-f", "2"])
    expect([r["count"] for r in report["rows"]] == [1], "sizes that are equal are measured once")
    done = run([*QUICK, "--kernel", "norm", "-b", "1K", "-e", "1K", "-c", "0"])
    expect(done.returncode == 0 and done.stdout.split().count("N/A") == 2, "nothing checked, nothing said", done)

    text = run(["--help"]).stdout.replace(",", " ")
    for line in PAGE.splitlines():
        if line.startswith("benchmarks/run kernels"):
            for word in line.split("#")[0].split()[2:]:
                expect(not word.startswith("-") or f" {word} " in text, f"the page's flag {word}")


REFUSED = [
    (["--kernel", "pack"], "--kernel 'pack': expected all, or a list with commas of adamw, sgd, norm, cast and"),
    (["-d", "half"], "--datatype 'half': expected all, or a list with commas of float and bfloat16"),
    (["-b", "x"], "--minbytes 'x': expected bytes from 1 to 1024G"),
    (["-b", "1M", "-e", "1K"], "--maxbytes '1K': expected at least --minbytes, 1048576 bytes"),
    (["-f", "1"], "--stepfactor '1': expected a whole number from 2"),
    (["--ranks", "0"], "--ranks '0': expected a whole number from 1 to 4096"),
    (["--rounds", "0"], "--rounds '0': expected a whole number from 1"),
    (["--pin", "yes"], "--pin 'yes': expected off or on"),
    (["--json", "no/such/folder/a.json"], "--json 'no/such/folder/a.json': expected a file that can be written"),
    (["--mesh", "2x1x1"], "unknown argument '--mesh': expected one of the flags that --help lists"),
]


def main():
    with tempfile.TemporaryDirectory() as name:
        check_runs(pathlib.Path(name))
    for flags, text in REFUSED:
        done = run(flags)
        lines = done.stderr.splitlines()
        expect(done.returncode == 2 and len(lines) == 1 and lines[0].startswith("kernels: error: " + text) and
               done.stdout == "", f"{' '.join(flags)} is refused with '{text}'", done)
    print(f"{len(wrong)} wrong")
    sys.exit(1 if wrong else 0)


main()
