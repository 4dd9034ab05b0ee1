# SPDX-License-Identifier: Apache-2.0
"""check_collectives.py PROGRAM PAGE -- [LAUNCHER...]: the program measures what its flags say and nothing else, its
figures agree with each other, and it refuses what it cannot do; PAGE, its documentation, names flags, columns and JSON
members that there are. LAUNCHER starts MPI processes; without one there is no MPI.
"""
import json

from program_check import (LAUNCHER, SWEEP_REFUSED, check, check_one_file, check_page, check_picture, check_refused,
                           check_refused_by_mpi, check_time, expect, near, printed_rows, report_of, run)

VERBS = ["all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all", "all_to_all_uneven", "send_receive",
         "barrier"]
TYPES = {"double": 8, "float": 4, "half": 2, "bfloat16": 2, "int64": 8, "int32": 4, "uint8": 1}
REDUCES = ("all_reduce", "reduce_scatter")
PIECES = ("all_gather", "reduce_scatter", "all_to_all", "all_to_all_uneven")  # whose count is one rank's part of the size
OUT_OF_PLACE = [verb for verb in VERBS if verb != "broadcast"]
IN_PLACE = ["all_gather", "reduce_scatter", "all_reduce", "broadcast"]
QUICK = ["--rounds", "3", "--iters", "2", "--warmup_iters", "1"]


def bus_factor(verb, n):
    return {"all_gather": (n - 1) / n, "reduce_scatter": (n - 1) / n, "all_reduce": 2 * (n - 1) / n, "broadcast": 1,
            "all_to_all": (n - 1) / n, "all_to_all_uneven": (n - 1) / n, "send_receive": 1}[verb]


def copied(verb, n, size, placement):
    """What each rank has to copy at least: half of the bytes that have to be read and written."""
    if placement == "in_place" and n == 1:
        return 0
    return {"all_gather": size * (n - 1) / n if placement == "in_place" else size,
            "reduce_scatter": (size + size / n) / 2, "all_reduce": size, "broadcast": size * (n - 1) / n,
            "all_to_all": size, "all_to_all_uneven": size, "send_receive": size}[verb]


def check_figure(row, placement, n, what):
    """The figures of a row agree with each other."""
    figure = row[placement]
    expect(set(figure) == {"time_us", "calls_per_round", "wrong", "algbw_gb_s", "busbw_gb_s", "copy", "share_of_copy"},
           f"{what}: members of a figure")
    expect(check_time(figure["time_us"]), f"{what}: times")
    bytes_copied = 0 if row["verb"] == "barrier" else int(copied(row["verb"], n, row["size"], placement))
    if bytes_copied == 0:
        expect(figure["copy"] is None and figure["algbw_gb_s"] is None, f"{what}: nothing to copy, no bandwidth")
        return
    expect(figure["wrong"] == 0, f"{what}: no wrong values")
    algbw = row["size"] / figure["time_us"]["median"] / 1e3
    expect(near(figure["algbw_gb_s"], algbw), f"{what}: algbw is size over time")
    expect(near(figure["busbw_gb_s"], algbw * bus_factor(row["verb"], n)), f"{what}: busbw")
    copy = figure["copy"]
    expect(copy["bytes_per_rank"] == bytes_copied, f"{what}: bytes of the copy")
    expect(check_time(copy["time_us"]) and copy["stores"] in ("memcpy", "non-temporal"), f"{what}: the copy")
    share = copy["time_us"]["median"] / figure["time_us"]["median"]
    expect(near(figure["share_of_copy"], share), f"{what}: share of the copy")
    expect(near(copy["busbw_gb_s"] * share, figure["busbw_gb_s"]), f"{what}: bus bandwidth of the copy")


def check_row(row, report, out_of_place, in_place):
    verb, n = row["verb"], report["group_size"]
    what = f"{report['engine']} {report['mesh']} {report['axis']} {verb} {row['type']} {row['size']}"
    if verb == "barrier":
        expect(row["size"] == 0 and row["count"] == 0 and row["type"] is None, f"{what}: no size")
    else:
        pieces = n if verb in PIECES else 1
        expect(row["size"] == row["count"] * pieces * TYPES[row["type"]], f"{what}: size, count and type")
    expect((row["redop"] is not None) == (verb in REDUCES), f"{what}: redop")
    expect((row["root"] is not None) == (verb == "broadcast"), f"{what}: root")
    for placement, asked, verbs in (("out_of_place", out_of_place, OUT_OF_PLACE), ("in_place", in_place, IN_PLACE)):
        if asked and verb in verbs:
            check_figure(row, placement, n, f"{what} {placement}")
        else:
            expect(row[placement] is None, f"{what}: no {placement}")


def measured(folder, flags, launcher=(), out_of_place=True, in_place=True):
    """Runs with --json and checks everything that holds for every run."""
    report, done = report_of(folder, [*QUICK, *flags], launcher)
    text = " ".join(map(str, flags))
    for member in ("date", "machine", "build", "engine", "mpi", "pinned", "warmup", "rounds", "checks", "axis"):
        expect(member in report, f"{text}: {member} is recorded")
    expect(report["groups"] * report["group_size"] == report["ranks"], f"{text}: groups")
    for row in report["rows"]:
        check_row(row, report, out_of_place, in_place)
    expect([line[:2] for line in printed_rows(done)] == [[str(row["size"]), str(row["count"])] for row in
                                                         report["rows"]], f"{text}: lines and rows agree", done)
    return report, done


def check_documentation(folder):
    report, done = measured(folder, ["--verb", "all_reduce", "-b", "64", "-e", "64"])
    lines = done.stdout.splitlines()
    check_page([report], [line for line in lines[:lines.index("# Out of bounds values : 0 OK")] if line.startswith("# ")][-3:])


def verbs_of(report):
    return list(dict.fromkeys(row["verb"] for row in report["rows"]))


def check_runs(folder):
    report, done = measured(folder, ["-b", "64", "-e", "4K", "-f", "8"])
    expect(verbs_of(report) == VERBS and report["ranks"] == 2 and report["engine"] == "threads", "defaults", done)
    expect([r["size"] for r in report["rows"] if r["verb"] == "all_reduce"] == [64, 512, 4096], "sizes", done)

    report, done = measured(folder, ["--ranks", "3", "-b", "1", "-e", "100", "-f", "10", "--verb",
                                     "all_gather,all_reduce"])
    expect([r["size"] for r in report["rows"]] == [12, 96, 4, 8, 100], "sizes are whole pieces of 3 ranks", done)

    report, _ = measured(folder, ["--verb", "all_reduce", "-d", "all", "-o", "all", "-b", "64", "-e", "64"])
    expect([(r["type"], r["redop"]) for r in report["rows"]] ==
           [(t, o) for t in TYPES for o in ("sum", "max", "min", "tree_sum")], "all types and operations")
    report, _ = measured(folder, ["--verb", "all_reduce", "-o", "all", "--ranks", "3", "-b", "64", "-e", "64"])
    expect([r["redop"] for r in report["rows"]] == ["sum", "max", "min"], "operations of 3 ranks, which have no tree")

    report, _ = measured(folder, ["--in-place", "on", "-b", "64", "-e", "64"], out_of_place=False)
    expect(verbs_of(report) == IN_PLACE, "verbs in place")
    report, done = measured(folder, ["--in-place", "off", "-b", "64", "-e", "64"], in_place=False)
    expect(verbs_of(report) == OUT_OF_PLACE and "# without: broadcast" in done.stdout, "verbs out of place", done)

    report, _ = measured(folder, ["--engine", "self", "-b", "64", "-e", "64"])
    expect(report["ranks"] == 1 and verbs_of(report) == VERBS, "self")

    done = run([*QUICK, "--verb", "all_reduce", "-b", "64", "-e", "64", "-c", "0"])
    expect(done.returncode == 0 and done.stdout.split().count("N/A") == 2 and "# Out of bounds values : 0 OK\n" in done.stdout,
           "nothing checked, and the line that says so is there", done)
    done = run([*QUICK, "--verb", "barrier", "--pin", "on"])
    expect(done.returncode == 0 and "# pinning: rank r" in done.stdout, "pinned", done)


def read_as_others_do(text, in_place):
    """What a program for nccl-tests' output takes from it: the lines between the last that has 'out-of-place' and the last
    that has 'Out of bounds values'; columns by their distance from the right, as those before them may be empty."""
    lines = text.splitlines()
    begin = max(i for i, line in enumerate(lines) if "out-of-place" in line)
    end = max(i for i, line in enumerate(lines) if "Out of bounds values" in line)
    names = next(line[1:].split() for line in lines[begin:end] if "time" in line and "busbw" in line)
    nth = -1 if in_place else 0
    columns = {name: [i - len(names) for i, each in enumerate(names) if each == name][nth]
               for name in ("time", "algbw", "busbw", "#wrong")}
    rows = {}
    for line in lines[begin + 1:end]:
        words = line.split()
        if words and words[0].isdigit():
            rows[int(words[names.index("size")])] = {name: words[column] for name, column in columns.items()}
    return rows


def number_in(value, width):
    """As nccl-tests writes a number."""
    return next(text for text in (f"{value:{width}.{decimals}f}" for decimals in (2, 1, 0)) if len(text) <= width)


def near_printed(text, value, width):
    """But for what the JSON's four digits have lost."""
    lost = 6e-4 * abs(value)
    decimals = {len(number_in(each, width).strip().partition(".")[2]) for each in (value - lost, value + lost)}
    printed = len(text.partition(".")[2])
    return printed in decimals and abs(float(text) - value) <= lost + 0.5 * 10.0**-printed


def check_others_read(folder):
    """The table is nccl-tests' to the column, also without a check and with the flags that launchers of it pass."""
    for flags, wrong in ((["-c", "0", "-g", "2", "-G", "0"], "N/A"), (["-c", "1", "--ngpus", "3"], "0"),
                         (["-c", "1", "-f", "2", "-n", "20", "-w", "5", "--cudagraph", "0"], "0")):
        report, done = report_of(folder, ["--rounds", "3", "--verb", "all_reduce", "-b", "64", "-e", "4K", *flags])
        for placement, in_place in (("out_of_place", False), ("in_place", True)):
            found = read_as_others_do(done.stdout, in_place)
            expect(list(found) == [row["size"] for row in report["rows"]], f"{flags}: sizes", done)
            for row in report["rows"]:
                given, figure = found[row["size"]], row[placement]
                expect(given["#wrong"] == wrong and near_printed(given["time"], figure["time_us"]["median"], 7) and
                       near_printed(given["algbw"], figure["algbw_gb_s"], 6) and
                       near_printed(given["busbw"], figure["busbw_gb_s"], 6), f"{flags} {placement} {row['size']}", done)
        mean = [figure["busbw_gb_s"] for row in report["rows"] for figure in (row["out_of_place"], row["in_place"])]
        last = done.stdout.splitlines()[-4:]
        expect([last[0], *last[2:]] == ["# Out of bounds values : 0 OK", "#", "# Collective test concluded: all_reduce"],
               "the end", done)
        words = last[1].split(":")
        expect(words[0] == "# Avg bus bandwidth    " and near(float(words[1]), sum(mean) / len(mean)), "the mean", done)
    done = run([*QUICK, "--verb", "all_gather,broadcast,barrier", "-e", "256"])
    for verb in ("all_gather", "broadcast", "barrier"):
        expect(f"# Collective test starting: {verb}\n" in done.stdout and f"# Collective test concluded: {verb}\n" in done.stdout,
               f"{verb} has a table of its own", done)
    expect(done.stdout.count("# Out of bounds values : 0 OK\n") == 3, "with an end each", done)
    done = run([*QUICK, "--verb", "all_reduce", "--of-copy", "on", "-e", "256"])
    expect([len(line) for line in printed_rows(done)] == [15] and "of copy (%)" in done.stdout, "two more when asked for", done)


def check_steps(folder):
    """Sizes by a step, and small letters."""
    report, _ = measured(folder, ["--verb", "all_reduce", "-b", "1k", "-e", "4k", "-i", "1k"])
    expect([row["size"] for row in report["rows"]] == [1024, 2048, 3072, 4096], "each size is larger by a step")
    report, _ = measured(folder, ["--verb", "all_reduce", "-b", "100", "--maxbytes", "0001K", "--stepbytes", "500"])
    expect([row["size"] for row in report["rows"]] == [100, 600], "up to the largest")


def check_meshes(folder):
    """All sub-meshes of an axis run at once: data of another sub-mesh would be wrong data."""
    for axis, groups, size in (("dp", 4, 2), ("tp", 2, 4), ("dp,tp", 1, 8), ("tp,dp", 1, 8), ("cp", 8, 1)):
        report, _ = measured(folder, ["--mesh", "2x4x1", "--axis", axis, "-b", "320", "-e", "320"])
        expect((report["groups"], report["group_size"], report["ranks"]) == (groups, size, 8), f"groups over {axis}")
    report, _ = measured(folder, ["--mesh", "1x2x2", "--axis", "cp", "--verb", "broadcast", "-r", "1", "-b", "64",
                                  "-e", "64"])
    expect(report["rows"][0]["root"] == 1, "root")


def check_plots(folder):
    check_picture(folder, [*QUICK, "-b", "64", "-e", "4K", "--verb", "all_gather,all_reduce"],
                  ("all_gather", "all_reduce, in place", "dashed: the copy", "bus bandwidth (GB/s)", "time of a call (us)"))
    for flags in (["-d", "all", "--verb", "all_reduce,all_gather", "-e", "512"], ["--verb", "all_reduce", "-e", "64"],
                  ["--verb", "all_reduce", "--engine", "self", "-e", "64", "--in-place", "off"]):
        check_picture(folder, [*QUICK, "-b", "64", *flags], ["all_reduce"])
    check_one_file(folder, [*QUICK, "--verb", "all_reduce", "-e", "256"])


def peer_row(name="openmpi", **members):
    return {"part": "collectives", "verb": "all_reduce", "type": "float", "ranks": 2, "size": 4096,
            "peer": {"name": name, "time_us": {"median": 5.0}}, **members}


def check_peers(folder):
    """Times of peers are lines of the picture, where they are of the same collective."""
    file = folder / "peers.json"

    def write(*rows, **head):
        file.write_text(json.dumps({"benchmark": "peers", "format": 1, "rows": rows, **head}), encoding="utf-8")

    flags = ["--verb", "all_reduce", "-b", "64", "-e", "4K", "-f", "64", "--plot", folder / "a.svg", "--peers", file]
    other_part = {"part": "adamw", "peer": {"name": "PyTorch"}}
    barrier = peer_row("std::barrier", size=64)
    write(other_part, barrier, peer_row(), peer_row("gloo", size=64), peer_row("mpich", ranks=4),
          peer_row("nccl", verb="all_gather"), peer_row("ucc", type="half"), peer_row("slow", size=128))
    check_picture(folder, [*QUICK, *flags[:-4], "--peers", file], ("openmpi: all_reduce", "gloo: all_reduce"))
    picture = folder / "picture.svg"
    if picture.exists():
        text = picture.read_text(encoding="utf-8")
        expect(not any(name in text for name in ("mpich", "nccl", "ucc", "slow", "std::barrier")), "and no others")

    written = "expected what benchmarks/run peers collectives --json writes"
    for what, content in (("another benchmark", {"benchmark": "collectives"}), ("another format", {"format": 2})):
        write(peer_row(), **content)
        check_refused(flags, f"--peers '{file}': {written} (another benchmark or format)")
        expect(not (folder / "a.svg").exists(), f"{what}: nothing is left")
    for rows, text in (([peer_row(verb="scan")], "verb 'scan'"), ([peer_row(type="int8")], "type 'int8'"),
                       ([{"part": "collectives"}], "peer"), ([peer_row("a\nb")], "not one line"),
                       ([peer_row(peer={"name": "x", "time_us": {"median": 0}})], "not above 0")):
        write(*rows)
        check_refused(flags, text)
    file.write_text("no JSON", encoding="utf-8")
    check_refused(flags, written)
    nothing = "expected a verb, size and type that is measured, over 2 ranks"
    for rows in ([], [barrier], [peer_row(ranks=4)], [peer_row(size=128)], [peer_row(type="half")]):
        write(*rows)
        check_refused(flags, nothing)
    write(peer_row())
    check_refused([*flags, "-o", "max"], nothing)
    check_refused([*flags, "--mesh", "2x2x1"], f"--peers '{file}': expected one group")
    check_refused(flags[:-4] + flags[-2:], f"--peers '{file}': expected a --plot FILE with it")


REFUSED = [
    (["--verb", "scan"], "--verb 'scan': expected all, or a list with commas of all_gather,"),
    (["--verb", "barrier,barrier"], "--verb 'barrier,barrier': expected each name once"),
    (["-d", "int8"], "--datatype 'int8': expected all, or a list with commas of double, float, half"),
    (["-o", "avg"], "--op 'avg': expected all, or a list with commas of sum, max, min and tree_sum"),
    (["-o", "sum,tree_sum", "--ranks", "3"], "--op 'sum,tree_sum': expected a power of two of ranks for tree_sum, not 3"),
    (["-b", "1000G", "-e", "1000G"], "this run needs at least 5.86 TiB of memory at once, but this machine has "),
    (["--verb", "broadcast", "-e", "1000g", "--engine", "self"], "expected a smaller --maxbytes, or fewer ranks"),
    (["-r", "2"], "--root '2': expected a whole number from 0 to 1"),
    (["--ranks", "2", "--mesh", "2x1x1"], "--ranks and --mesh: expected one of the two"),
    (["--ngpus", "2", "--ranks", "2"], "--ranks and --ngpus: expected one of the two"),
    (["--ngpus", "2", "--mesh", "2x1x1"], "--ngpus and --mesh: expected one of the two"),
    (["-G", "1"], "--cudagraph '1': expected 0: calls are given one by one, and in no graph"),
    (["--engine", "self", "-g", "2"], "--engine self: has one rank, but 2 ranks were given"),
    (["--mesh", "2x2"], "--mesh '2x2': expected DPxTPxCP, three whole numbers of at least 1"),
    (["--mesh", "64x64x2"], "--mesh '64x64x2': expected at most 4096 ranks"),
    (["--axis", "dp"], "--axis 'dp': expected a --mesh DPxTPxCP with it"),
    (["--mesh", "2x1x1", "--axis", "pp"], "--axis 'pp': expected all, or a list with commas of dp, tp and cp"),
    (["--in-place", "maybe"], "--in-place 'maybe': expected off, on or both"),
    (["--in-place", "on", "--verb", "all_to_all"], "--in-place 'on': expected off or both: all_to_all has no form in"),
    (["--in-place", "off", "--verb", "broadcast"], "--in-place 'off': expected on or both: broadcast has no form out"),
    (["--engine", "gloo"], "--engine 'gloo': expected self, threads, mpi or nccl"),
    (["--engine", "self", "--ranks", "2"], "--engine self: has one rank, but 2 ranks were given: expected --ranks 1"),
    (["--staging", "1M"], "--staging '1M': expected an --engine nccl with it"),
    (["--plot", "a.pdf"], "--plot 'a.pdf': expected a file name that ends in .png or .svg"),
    (["--plot", "a.png", "--verb", "barrier"], "--plot 'a.png': expected a --verb, ranks and --in-place"),
    (["--plot", "a.svg", "--peers", "no/such/a.json"], "--peers 'no/such/a.json': expected a file that can be read"),
    (["--plot", "a.svg", "--peers", ""], "--peers '': expected a file name"),
    (["--bytes", "5"], "unknown argument '--bytes': expected one of the flags that --help lists"),
]


def check_mpi(folder):
    check_refused_by_mpi()
    if LAUNCHER:
        report, _ = measured(folder, ["--engine", "mpi", "-b", "64", "-e", "64K", "-f", "1024"], [*LAUNCHER, "-n", "2"])
        expect(report["ranks"] == 2 and report["mpi"] and verbs_of(report) == VERBS, "mpi")


def place(rank, ranks, **others):
    return {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), **others}


def check_nccl(_folder):
    """Built without CUDA the program says so, and one process of a launcher speaks for all of its machine."""
    without = "--engine nccl: this program was built without CUDA; expected benchmarks/run to start it"
    check_refused(["--engine", "nccl"], without)
    check_refused(["--engine=nccl", "--ranks", "2"], without, variables=place(0, 2))
    check_refused(["--engine", "nccl", "--staging", "1G"], without)
    check_refused(["--engine", "nccl", "--staging", "0"], "--staging '0': expected bytes from 1 to 1024G")
    check_refused(["--engine", "nccl", "--ranks", "3"],
                  "--engine nccl: this job has 2 processes, but 3 ranks were given: expected WORLD_SIZE=3 of a launcher",
                  variables=place(0, 2))
    check_refused(["--engine", "nccl", "--ranks", "2"],
                  "--engine nccl: this job has 1 process, but 2 ranks were given: expected WORLD_SIZE=2 of a launcher")
    done = run(["--engine", "nccl"], variables=place(1, 2, LOCAL_WORLD_SIZE="2"))
    expect(done.returncode == 2 and done.stdout + done.stderr == "", "the second process of a machine is silent", done)
    check_refused(["--engine", "nccl"], without, variables=place(1, 2))  # which may be alone on its machine
    for variables, text in (
            (place(0, "x"), "WORLD_SIZE 'x': expected a whole number from 1 to 1000000"),
            (place(2, 2), "RANK '2': expected a whole number from 0 to 1"),
            ({"WORLD_SIZE": "2", "RANK": "0"}, "LOCAL_RANK '': expected a whole number from 0 to 1"),
            (place(1, 2, LOCAL_WORLD_SIZE="1"), "LOCAL_WORLD_SIZE '1': expected a whole number from 2 to 2")):
        check_refused(["--engine", "nccl"], text, variables=variables)
    done = run([*QUICK, "--verb", "barrier"], variables=place(1, 2))
    expect(done.returncode == 0 and "2 ranks" in done.stdout, "a launcher's variables mean nothing to other engines", done)


check([check_runs, check_meshes, check_documentation, check_others_read, check_steps, check_plots, check_peers, check_mpi, check_nccl], ["-b,--minbytes", "--in-place"],
      [*REFUSED, *SWEEP_REFUSED])
