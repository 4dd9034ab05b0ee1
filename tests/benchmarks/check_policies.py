# SPDX-License-Identifier: Apache-2.0
"""check_policies.py PROGRAM PAGE -- [LAUNCHER...]: the program measures what its flags say and nothing else, its
figures agree with each other and its predictions with the links that they are made from, and it refuses what it cannot
do; PAGE, its documentation, names flags, columns and JSON members that there are. LAUNCHER starts MPI processes;
without one there is no MPI.
"""
import json
import pathlib
import re
import sys

from program_check import (LAUNCHER, check, check_one_file, check_page, check_picture, check_refused, check_refused_by_mpi, expect,
                           near, near_sum, printed_rows, report_of, run)

POLICIES = ["no_shard", "shard_optimizer", "shard_grad_op", "full_shard", "hybrid_shard", "hybrid_optimizer",
            "secondary_shard"]
VERBS = ["all_gather", "reduce_scatter", "all_reduce"]
BYTES = {"double": 8, "float": 4, "bfloat16": 2}
QUICK = ["--rounds", "3", "--warmup_iters", "1", "--compute-us", "20"]
LINKS = ["--link-latency-us", "5,20", "--link-gbs", "100,10"]
SMALL = ["--shapes", "3000,20x30,500"]


def check_spread(time):
    return set(time) == {"median", "min", "p99"} and 0 <= time["min"] <= time["median"] <= time["p99"]


def expected_calls(policy, groups, dp, cp, shard_group, microbatches):
    """Per verb, the norm's included."""
    world_norm = 1 if dp * cp > 1 else 0
    gathers, scatters = {"no_shard": (0, 0), "shard_optimizer": (1, 1), "shard_grad_op": (1, microbatches),
                         "full_shard": (2 * microbatches, microbatches),
                         }.get(policy, (2 * microbatches, microbatches))
    if shard_group == 1:
        gathers = scatters = 0
    replicas = groups if dp * cp > shard_group else 0
    if policy in ("hybrid_optimizer", "secondary_shard"):  # a reduce-scatter and a gather in place of the all-reduce
        scattered = replicas * (microbatches if policy == "secondary_shard" else 1)
        return [gathers * groups + replicas, scatters * groups + scattered, world_norm]
    return [gathers * groups, scatters * groups, replicas + world_norm]


def check_row(row, report):
    what = f"{report['engine']} {row['mesh']} {row['policy']} {report['model']['type']}"
    step, compute, communication = (row[name]["median"] for name in ("step_us", "compute_us", "communication_us"))
    expect(all(check_spread(row[name]) for name in ("step_us", "compute_us", "communication_us")), f"{what}: times")
    expect(step > 0 and near_sum(row["exposed"], 1, -compute / step), f"{what}: exposed is (step - compute) / step")
    dp, tp, cp = map(int, row["mesh"].split("x"))
    expect(row["ranks"] == dp * tp * cp, f"{what}: ranks")
    calls = expected_calls(row["policy"], len(report["model"]["groups"]), dp, cp, row["shard_group"],
                           report["microbatches"])
    if "reduce_last" in row["schedule"].split("+") and row["policy"] != "no_shard":
        across = row["policy"] in ("hybrid_optimizer", "secondary_shard") and dp * cp > row["shard_group"]
        calls[1] = len(report["model"]["groups"]) * ((row["shard_group"] > 1) + across)
    if any(name.startswith("keep") for name in row["schedule"].split("+")):
        kept = row["collectives"][0]["calls"]
        expect(len(report["model"]["groups"]) * (row["shard_group"] > 1) <= kept <= calls[0], f"{what}: gathers are left out")
        calls[0] = kept
    parts = (step / communication, -compute / communication) if row["bytes"] > 0 else ()
    expect(near_sum(row["exposed_share"], 0, *parts), f"{what}: exposed share")
    simulated = row["simulated_step_us"]
    expect((simulated is None) == (report["links"] is None), f"{what}: simulated with links")
    if simulated is not None:
        expect(simulated > 0 and near_sum(row["simulation_error"], -1, simulated / step),
               f"{what}: error of the simulation")
    if tp > 1 and dp * cp == 1:
        calls[2] += 1  # the norm's
    expect([c["verb"] for c in row["collectives"]] == VERBS and [c["calls"] for c in row["collectives"]] == calls,
           f"{what}: calls {calls}")
    for c in row["collectives"]:
        expect(c["calls"] == c["theory_calls"] == c["planned_calls"], f"{what} {c['verb']}: calls agree")
        expect(abs(c["across_bytes"] - c["theory_across_bytes"]) <= 1 and
               abs(c["across_bytes"] - c["planned_across_bytes"]) <= 2 * c["calls"], f"{what} {c['verb']}: across")
        expect(abs(c["bytes"] - c["theory_bytes"]) <= 1 and
               abs(c["bytes"] - c["planned_bytes"]) <= 2 * c["calls"], f"{what} {c['verb']}: bytes agree")
    for name in ("calls", "bytes"):
        expect(near(row[name], sum(c[name] for c in row["collectives"])), f"{what}: {name} in all")
    # Besides the buffers that are planned an optimizer has tables of a few hundred bytes for each group.
    over = row["peak_bytes"] - row["planned_peak_bytes"]
    expect(0 <= over <= 0.02 * row["planned_peak_bytes"] + 1000 * len(report["model"]["groups"]), f"{what}: peak bytes")
    expect(row["difference"] <= row["difference_bound"] <= 1 / 128, f"{what}: differs from one rank by a rounding")
    predicted = row["predicted_communication_us"]
    expect((predicted is None) == (report["links"] is None), f"{what}: predicted with links")
    if predicted is not None and communication > 0:
        right = predicted / communication
        expect(near_sum(row["prediction_error"], -1, right), f"{what}: error of the prediction")


def measured(folder, flags, launcher=(), quick=QUICK):
    """Runs and checks everything that holds for every run."""
    report, done = report_of(folder, [*quick, *flags], launcher)
    for row in report["rows"]:
        check_row(row, report)
    printed = printed_rows(done)
    expect([re.split("[<,]", line[0])[0] for line in printed] == [row["policy"] for row in report["rows"]] and
           [line[3] for line in printed] == [f"{row['calls']:.0f}" for row in report["rows"]],
           "lines and rows agree", done)
    expect(report["predicted"] is None and "PREDICTED" not in done.stdout, "nothing predicted but communication", done)
    return report, done


def check_runs(folder):
    report, done = measured(folder, ["--layers", "2", "--width", "16", "--vocabulary", "50"])
    expect([r["policy"] for r in report["rows"]] == POLICIES and {r["ranks"] for r in report["rows"]} == {2} and
           report["engine"] == "threads", "defaults", done)
    expect([g["numel"] for g in report["model"]["groups"]] == [800, 3072, 3072], "shapes of a GPT")
    expect(report["model"]["numel"] == 6944 and near(report["busy_work_us"], 180), "elements and busy work")
    links = report["links"]["verbs"]
    expect([v["verb"] for v in links] == VERBS and all(v["samples"] == 5 for v in links), "links are fitted here")
    for row in report["rows"]:
        expect(row["shard_group"] == (1 if row["policy"] == "no_shard" else 2), "shard groups")

    for flags in (["-d", "bfloat16", "--microbatches", "3"], ["-d", "double", "--optimizer", "sgd"],
                  ["--prefetch", "off", "--microbatches", "2"]):
        report, _ = measured(folder, [*SMALL, *LINKS, *flags])
        expect([g["numel"] for g in report["model"]["groups"]] == [3000, 600, 500], "given shapes")
        expect(all(v["samples"] is None for v in report["links"]["verbs"]), "given links are not fitted")
    measured(folder, [*SMALL, *LINKS], quick=["--rounds", "3", "--warmup_iters", "0", "--compute-us", "20"])
    report, _ = measured(folder, [*SMALL, *LINKS, "--mesh", "3x1x1,2x1x2,1x2x1,4x1x1", "-d", "bfloat16"])
    expect([r["mesh"] for r in report["rows"]] == [m for m in ("3x1x1", "2x1x2", "1x2x1", "4x1x1") for _ in POLICIES],
           "every mesh and policy")
    report, _ = measured(folder, [*SMALL, *LINKS, "--mesh", "6x1x1", "--hybrid-group", "3", "--policy",
                                  "hybrid_shard,full_shard"])
    expect([(r["policy"], r["shard_group"]) for r in report["rows"]] == [("hybrid_shard", 3), ("full_shard", 6)],
           "chosen policies and groups")
    report, _ = measured(folder, [*SMALL, "--engine", "self"])
    expect(report["links"] is None and all(r["bytes"] == 0 for r in report["rows"]), "one rank communicates nothing")

    # Memory and bytes grow as they must: what a user chooses by.
    report, done = measured(folder, [*LINKS, "--shapes", ",".join(["65536"] * 8), "--ranks", "4"])
    peak = {r["policy"]: r["peak_bytes"] for r in report["rows"]}
    expect(peak["no_shard"] > peak["shard_optimizer"] > peak["shard_grad_op"] > peak["full_shard"], "memory", done)


def check_schedules(folder):
    """Steps with and without schedules, in turns: rows of each, the same values, less communication or the same."""
    flags = [*LINKS, "--shapes", ",".join(["65536"] * 4), "--schedule", "none,prefetch:1,keep,keep:1G", "--microbatches", "2",
             "--policy", "shard_grad_op,full_shard", "--slow", "10,turns"]
    report, done = plain = measured(folder, flags)
    expect([(r["policy"], r["schedule"]) for r in report["rows"]] == [
        (policy, schedule) for policy in ("shard_grad_op", "full_shard") for schedule in ("none", "prefetch:1", "keep", "keep:1G")],
        "a row for each policy and schedule", done)
    expect(report["slow_percent"] == 10 and report["slow_in_turns"] and not report["overlap"] and
           "busy work of a rank in turns 10 % longer" in done.stdout, "who is slow", done)
    gathers = {r["schedule"]: r["collectives"][0]["calls"] for r in report["rows"] if r["policy"] == "full_shard"}
    expect(gathers["none"] == gathers["prefetch:1"] == 16 and gathers["keep"] < 16 and gathers["keep:1G"] == 4,
           f"what stays gathered is not gathered again: {gathers}")
    peaks = {r["schedule"]: r["peak_bytes"] for r in report["rows"] if r["policy"] == "full_shard"}
    expect(peaks["keep"] <= peaks["none"] < peaks["keep:1G"], f"within the limit: {peaks}")
    expect(all(r["difference"] == report["rows"][0]["difference"] for r in report["rows"][:4]), "a schedule changes no value")
    overlapped, done = measured(folder, [*flags, "--overlap", "on"])
    expect(overlapped["overlap"] and "threads communicate meanwhile where a schedule is followed" in done.stdout and
           "threads communicate" not in plain[1].stdout, "--overlap is said", done)
    expect([{key: r[key] for key in ("policy", "schedule", "calls", "bytes", "peak_bytes", "difference")}
            for r in overlapped["rows"]] == [
        {key: r[key] for key in ("policy", "schedule", "calls", "bytes", "peak_bytes", "difference")} for r in report["rows"]],
        "and changes no value, no call and no byte", done)
    elsewhere, done = measured(folder, [*flags, "--overlap", "on", "--work", "elsewhere"])
    expect(elsewhere["work_elsewhere"] and not report["work_elsewhere"] and "leaves the processor free" in done.stdout and
           [r["difference"] for r in elsewhere["rows"]] == [r["difference"] for r in report["rows"]], "who computes", done)
    expect(all(r["compute_us"]["median"] >= elsewhere["busy_work_us"] for r in elsewhere["rows"]), "computing takes its time", done)
    check_passes(folder)
    check_slow_rank(folder)
    if LAUNCHER:
        report, _ = measured(folder, [*SMALL, *LINKS, "--engine", "mpi", "--schedule", "none,prefetch:1", "--policy",
                                      "full_shard"], [*LAUNCHER, "-n", "2"])
        expect(report["overlap"], "a thread communicates")


def check_passes(folder):
    """Every policy with every pass and with windows begun by hand: calls and bytes are those of the closed form, values
    those of one rank; what is the same step takes the same memory."""
    schedules = ["none", "hand", "overlap:1", "gather_after_update", "reduce_last",
                 "reduce_last+keep:1G+overlap:1+gather_after_update"]
    flags = [*LINKS, "--shapes", ",".join(["65536"] * 4), "--schedule", ",".join(schedules), "--microbatches", "3",
             "--mesh", "4x1x1", "--hybrid-group", "2", "--overlap", "on"]
    report, done = measured(folder, [*flags, "--steps", "2"])
    expect([(r["policy"], r["schedule"]) for r in report["rows"]] == [(p, s) for p in POLICIES for s in schedules] and
           report["steps"] == 2 and "make 2 steps, their computation and their communication in turns" in done.stdout,
           "a row for each policy and list of passes", done)
    of = {(r["policy"], r["schedule"]): r for r in report["rows"]}
    for policy in POLICIES:
        rows = {s: of[policy, s] for s in schedules}
        expect(len({r["difference"] for r in rows.values()}) == 1, f"{policy}: the order of exact sums changes no value")
        moved = {s: [c["bytes"] for c in r["collectives"]] for s, r in rows.items()}
        expect(all(moved[s] == moved["none"] for s in ("hand", "overlap:1", "gather_after_update")),
               f"{policy}: bytes move elsewhere, not more: {moved}")
        expect(rows["hand"]["peak_bytes"] == rows["none"]["peak_bytes"], f"{policy}: two windows, as --prefetch on has")
        once = policy not in ("no_shard", "shard_optimizer")
        at_last = of[policy, "none"]["collectives"][1]["across_bytes"] if policy == "hybrid_optimizer" else 0
        expect(near((moved["reduce_last"][1] - at_last) * (3 if once else 1) + at_last, moved["none"][1]) and
               (rows["reduce_last"]["peak_bytes"] > rows["none"]["peak_bytes"]) == once,
               f"{policy}: one reduction of three, and gradients in full until then: {moved}")
    off, _ = measured(folder, [*flags, "--prefetch", "off", "--policy", "full_shard"])
    off = {r["schedule"]: r["peak_bytes"] for r in off["rows"]}
    expect(off["none"] < off["hand"] == of["full_shard", "hand"]["peak_bytes"], f"hand begins windows whatever is asked: {off}")


def check_slow_rank(folder):
    """A rank that is always slower: its computation is that of the step, whatever the step follows."""
    flags = [*SMALL, *LINKS, "--policy", "full_shard", "--schedule", "none,overlap:1", "--overlap", "on", "--work",
             "elsewhere", "--slow", "50"]
    report, done = measured(folder, flags)
    expect(report["slow_percent"] == 50 and not report["slow_in_turns"] and
           "busy work of rank 0 50 % longer" in done.stdout, "who is slow", done)
    expect(all(r[time]["min"] >= 1.5 * report["busy_work_us"] for r in report["rows"] for time in ("compute_us", "step_us")),
           "no step is shorter than the slow rank's work", done)


def write_collectives(path, ranks, links, sizes=(1024, 65536, 1 << 24), engine="threads", processors=4):
    """A file as the benchmark of the collectives writes it, of links that are exactly so."""
    rows = []
    for verb, (latency_us, gb_s) in links.items():
        factor = (2 if verb == "all_reduce" else 1) * (ranks - 1) / ranks
        messages = (2 if verb == "all_reduce" else 1) * (ranks - 1)
        for size in sizes:
            time = messages * latency_us + size * factor / gb_s / 1e3
            figure = {"time_us": {"median": time, "min": time, "p95": time}}
            rows.append({"verb": verb, "size": size, "bus_factor": factor, "out_of_place": figure, "in_place": None})
    path.write_text(json.dumps({"benchmark": "collectives", "format": 1, "group_size": ranks, "ranks": ranks,
                                "engine": engine, "machine": {"processors": processors}, "rows": rows}))


def predicted_us(row, links, numel, bytes_each):
    """Ring costs of a single group of fp32 elements that divides by its shards, and of the norm."""
    n, group = row["ranks"], row["shard_group"]

    def ring(verb, ranks, size, link):
        factor = 2 if verb == "all_reduce" else 1
        latency_us, gb_s = link[verb]
        return 0 if ranks < 2 else factor * (ranks - 1) * (latency_us + size / ranks / gb_s / 1e3)
    within, across, per_node = links
    size = numel * bytes_each
    norm = 560
    of_world = across if n > per_node else within
    of_group = across if group > per_node else within
    time = ring("all_reduce", n, norm, of_world)
    if row["policy"] == "no_shard":
        return time + ring("all_reduce", n, size, of_world)
    gathers = 1 if row["policy"] in ("shard_optimizer", "shard_grad_op") else 2
    time += gathers * ring("all_gather", group, size, of_group) + ring("reduce_scatter", group, size, of_group)
    return time + ring("all_reduce", n // group, size / group, of_world)


def check_predicted(folder, flags, links, meshes):
    report, done = report_of(folder, ["--shapes", 1 << 22, "--compute-us", "500", *flags])
    expect(report["rows"] == [] and "PREDICTED, nothing here was measured" in done.stdout, "nothing is measured", done)
    rows = report["predicted"]["rows"]
    expect([row["mesh"] for row in rows] == [mesh for mesh in meshes for _ in POLICIES], "predicted meshes", done)
    for text in report["predicted"]["assumptions"]:
        expect(f"# assumes: {text}" in done.stdout, "the table states the assumptions", done)
    expect(report["predicted"]["ranks_per_node"] == links[2], "nodes")
    for row in rows:
        what = f"predicted {row['mesh']} {row['policy']}"
        expect(near(row["communication_us"], predicted_us(row, links, 1 << 22, 4)), f"{what}: ring costs")
        expect(row["nodes"] == -(-row["ranks"] // links[2]), f"{what}: nodes")
        compute, communication = row["compute_us"], row["communication_us"]
        expect(near(compute, 1500) and near(row["step_no_overlap_us"], compute + communication) and
               near(row["step_full_overlap_us"], max(compute, communication)), f"{what}: step")
        expect(near(row["most_exposed"], communication / (compute + communication)) and
               near(1 + row["least_exposed"], 2 - compute / max(compute, communication)), f"{what}: exposed")
    full = [row for row in rows if row["policy"] == "full_shard"]
    expect(all(a["memory_bytes"] >= b["memory_bytes"] for a, b in zip(full, full[1:])), "memory falls with ranks")


def check_predictions(folder):
    given = ({verb: (5, 100) for verb in VERBS}, {verb: (20, 10) for verb in VERBS})
    defaults = ["8x1x1", "64x1x1", "256x1x1", "1024x1x1", "4096x1x1"]
    check_predicted(folder, ["--predict", "default", *LINKS], (*given, 8), defaults)
    check_predicted(folder, ["--predict", "2x1x1,32x1x1", "--ranks-per-node", "4", *LINKS], (*given, 4),
                    ["2x1x1", "32x1x1"])

    truth = {"all_gather": (2.0, 50.0), "reduce_scatter": (3.0, 25.0), "all_reduce": (4.0, 40.0)}
    two, four = folder / "two.json", folder / "four.json"
    write_collectives(two, 2, truth)
    write_collectives(four, 4, truth, (4096, 1 << 20))
    check_predicted(folder, ["--predict", "16x1x1", "--fit", f"{two},{four}"], (truth, truth, 8), ["16x1x1"])
    report, done = measured(folder, [*SMALL, "--fit", two, "--policy", "full_shard"])
    for verb in report["links"]["verbs"]:
        link = verb["within_node"]
        expect(near(link["latency_us"], truth[verb["verb"]][0]) and near(link["gb_s"], truth[verb["verb"]][1]) and
               verb["samples"] == 3 and verb["fit_error"] < 1e-6, f"the fit finds the links of {verb['verb']}", done)

    expect("shared" not in report["links"]["source"] and f"{two} of engine threads" in report["links"]["source"],
           "the links' source names file and engine", done)
    of_mpi = folder / "of_mpi.json"
    write_collectives(of_mpi, 4, truth, engine="mpi", processors=2)
    check_refused(["--fit", of_mpi], f"--fit '{of_mpi}': expected a file measured with engine threads, not with mpi")
    for more in ([], ["--engine", "threads"]):
        check_refused(["--fit", f"{two},{of_mpi}", "--predict", "8x1x1", *more], "with engine threads, not with mpi")
    report, done = report_of(folder, ["--predict", "16x1x1", "--fit", of_mpi])
    words = f"fitted to {of_mpi} of engine mpi; {of_mpi}: 4 ranks shared 2 processors, which takes longer than with"
    expect(report["links"]["source"].startswith(words) and words in done.stdout,
           "a prediction from another engine's file, and that ranks shared processors", done)

    check_refused(["--fit", folder / "none.json"], "expected a file that can be read")
    (folder / "other.json").write_text('{"benchmark": "kernels", "format": 1}')
    check_refused(["--fit", folder / "other.json"], "expected what collectives --json writes for at least 2 ranks (")
    (folder / "broken.json").write_text('{"benchmark": ')
    check_refused(["--fit", folder / "broken.json"], "expected what collectives --json writes for at least 2 ranks (")
    write_collectives(two, 1, truth)
    check_refused(["--fit", two], "expected what collectives --json writes for at least 2 ranks (one rank)")
    write_collectives(two, 2, {"all_gather": (1, 1)})
    check_refused(["--fit", two], "expected at least two sizes of reduce_scatter")


def check_plots(folder):
    for flags, labels in (([], ["shard_optimizer"]), (["--policy", "no_shard", "--engine", "self"], ["no_shard"]),
                          (["--predict", "1x1x1"], ["PREDICTED step"]),
                          (["--predict", "8x1x1"], ["PREDICTED step"]),
                          (["--mesh", "2x1x1,1x1x2,2x1x2"],
                           ["step", "communication, predicted", "full_shard", "time (ms)"]),
                          (["--predict", "default"], ["PREDICTED step", "ranks", "hybrid_shard"])):
        check_picture(folder, [*QUICK, *SMALL, *LINKS, *flags], labels)
    check_one_file(folder, [*QUICK, *SMALL, *LINKS])


def check_documentation(folder):
    report, done = measured(folder, [*SMALL, *LINKS, "--schedule", "none,prefetch:1"])
    predicted, done_2 = report_of(folder, ["--predict", "8x1x1", *LINKS])
    printed = (done.stdout + done_2.stdout).splitlines()
    heads = [line for line in printed if line.startswith("# ") and " policy " in line]
    expect(len(heads) == 4, "four tables")
    check_page([report, predicted], heads)
    check_predicted_table()


def check_predicted_table():
    """The page's table of predictions is what its command prints."""
    page = pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")
    given, table = re.search(r"```sh\nbenchmarks/run policies (--predict [^`]*)```\n+```text\n(# [^`]*)```", page).groups()
    done = run(given.replace("\\\n", "").split())
    expect(done.returncode == 0 and done.stdout.endswith("#\n" + table), "the page's predictions are printed by its command",
           done)


REFUSED = [
    (["--policy", "zero"], "--policy 'zero': expected all, or a list with commas of no_shard, shard_optimizer,"),
    (["--policy", "no_shard,no_shard"], "--policy 'no_shard,no_shard': expected each name once"),
    (["--hybrid-group", "3"], "--hybrid-group '3': expected a divisor of dp = 2"),
    (["-d", "half"], "--datatype 'half': expected double, float or bfloat16"),
    (["--optimizer", "lamb"], "--optimizer 'lamb': expected adamw or sgd"),
    (["--layers", "0"], "--layers '0': expected a whole number from 1 to 1000"),
    (["--shapes", "3x"], "--shapes '3x': expected a list with commas of element counts or shapes"),
    (["--shapes", "4294967295x4294967295"], "--shapes '4294967295x4294967295': expected at most 2^44 elements"),
    (["--shapes", "5", "--width", "8"], "--shapes and --width: expected one of the two"),
    (["--microbatches", "33"], "--microbatches '33': expected a whole number from 1 to 32"),
    (["--compute-us", "-1"], "--compute-us '-1': expected a number from 0 to 1e+08"),
    (["--compute-us", "nan"], "--compute-us 'nan': expected a number from 0"),
    (["--compute-us", "1", "--tokens", "1", "--gflops", "1"], "--compute-us and --tokens: expected one of the two"),
    (["--tokens", "1"], "--tokens and --gflops: expected both or none of the two"),
    (["--schedule", "prefetch"], "--schedule 'prefetch': expected a list with commas of none, hand and passes joined by +: prefetch:N, overlap:N, "
     "keep, keep:BYTES, gather_after_update, reduce_last"),
    (["--schedule", "hand+keep"], "--schedule 'hand+keep': expected a list with commas of none, hand and passes joined by +"),
    (["--schedule", "keep+"], "--schedule 'keep+': expected a list with commas of none, hand and passes joined by +"),
    (["--schedule", "overlap:1+prefetch:1"], "--schedule 'overlap:1+prefetch:1': expected each pass once"),
    (["--schedule", "none,overlap:0"], "--schedule 'none,overlap:0': overlap '0': expected a whole number from 1 to 4096"),
    (["--schedule", "keep:much"], "--schedule 'keep:much': keep 'much': expected bytes from 1 to 1024G"),
    (["--steps", "0"], "--steps '0': expected a whole number from 1 to 1000"),
    (["--schedule", "none,none"], "--schedule 'none,none': expected each schedule once"),
    (["--slow", "10,often"], "--slow '10,often': expected P or P,turns"),
    (["--prefetch", "deep"], "--prefetch 'deep': expected off or on"),
    (["--work", "there"], "--work 'there': expected here or elsewhere"),
    (["--overlap", "no"], "--overlap 'no': expected off or on"),
    (["--engine", "self", "--overlap", "on"], "--overlap 'on': expected an engine with several ranks"),
    (["--ranks", "0"], "--ranks '0': expected a whole number from 1 to 4096"),
    (["--ranks", "2", "--mesh", "2x1x1"], "--ranks and --mesh: expected one of the two"),
    (["--mesh", "2x2"], "--mesh '2x2': expected DPxTPxCP, three whole numbers of at least 1"),
    (["--mesh", "2x1x1,4x1x1,2x1x1"], "--mesh '2x1x1,4x1x1,2x1x1': expected each mesh once"),
    (["--predict", "8x1x1,08x1x1", *LINKS], "--predict '8x1x1,08x1x1': expected each mesh once"),
    (["--shapes", "4294967295x4096"], "of memory at once, but this machine has "),
    (["--predict", "8192x1x1"], "--predict '8192x1x1': expected at most 4096 ranks"),
    (["--predict", "8x1x1", "--ranks", "1"], "--predict: one rank has no links to fit: expected --fit, --link-gbs,"),
    (["--ranks-per-node", "4"], "--ranks-per-node '4': expected a --predict with it"),
    (["--link-gbs", "1"], "--link-latency-us and --link-gbs: expected both or none of the two"),
    (["--link-gbs", "1,2,3", "--link-latency-us", "1"], "--link-gbs '1,2,3': expected one number, or two"),
    (["--fit", "a", *LINKS], "--fit and --link-gbs: expected one of the two"),
    (["--engine", "gloo"], "--engine 'gloo': expected self, threads or mpi"),
    (["--engine", "nccl"], "--engine 'nccl': expected self, threads or mpi"),
    (["--engine", "self", "--ranks", "2"], "--engine self: has one rank, but 2 ranks were given: expected --ranks 1"),
    (["--plot", "a.pdf"], "--plot 'a.pdf': expected a file name that ends in .png or .svg"),
    (["--verb", "all"], "unknown argument '--verb': expected one of the flags that --help lists"),
]


def check_mpi(folder):
    check_refused_by_mpi()
    if LAUNCHER:
        report, _ = measured(folder, [*SMALL, "--engine", "mpi", "--mesh", "2x1x1,1x1x2", "-d", "bfloat16"],
                             [*LAUNCHER, "-n", "2"])
        expect(report["mpi"] and len(report["rows"]) == 10, "mpi")


check([check_runs, check_schedules, check_predictions, check_documentation, check_plots, check_mpi], ["--hybrid-group", "--predict"],
      REFUSED)
