# SPDX-License-Identifier: Apache-2.0
"""check_results_page.py ROOT COLLECTIVES KERNELS POLICIES CHECKPOINTS: benchmarks/run table makes a page and pictures of every
kind of result, judges the project's targets, and refuses what is none, names no reason or is not up to date. The last
four are the programs; their results are small, and are changed to what a check needs."""
import copy
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from expectation import end, expect
from picture_layout import layout_problems
from results_tree import Tree, changed

ROOT = pathlib.Path(sys.argv[1])
PROGRAMS = dict(zip(("collectives", "kernels", "policies", "checkpoints"), sys.argv[2:]))
MAIN = ROOT / "benchmarks/results_page/main.py"
sys.path[:0] = [str(ROOT / "benchmarks/peers"), str(ROOT / "benchmarks/common")]
import row  # noqa: E402
from figures import json_text  # noqa: E402
from report import Report  # noqa: E402

FLAGS = {"collectives": ["-b", "256", "-e", "1M", "-f", "4096", "-n", "1", "--verb", "all_reduce,all_gather,barrier"],
         "kernels": ["-b", "64K", "-e", "64K", "-n", "1"],
         "policies": ["--layers", "1", "--width", "64", "--vocabulary", "256", "--compute-us", "0"],
         "checkpoints": ["--elements", "5000"]}
MACHINE = {"processor": "a | b", "processors": 2, "last_cache_bytes": 1 << 20, "memory_bytes": 1 << 34, "system": "s",
           "load_before": 0.1}
# What a step of full_shard moves: bytes, and by theory and plan.
MOVED = "| 393776 | 393776 | 393776 |"
NO_GPU = "no GPU was there to measure on"
ON_GPU = "`benchmarks/run kernels --device gpu`, from 256 MiB on"


def measured(folder, kind, *flags):
    """A result of the program itself, as if of a quiet machine with two processors and enough rounds."""
    file = folder / "result.json"
    subprocess.run([PROGRAMS[kind], *FLAGS[kind], "--rounds", "1", "--json", file, *flags], stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, timeout=120, check=True)
    found = json.loads(file.read_text(encoding="utf-8"))
    for made in found["rows"] if kind == "collectives" else ():
        for placement in ("out_of_place", "in_place"):
            if made[placement] and made["size"]:
                made[placement]["share_of_copy"] = 0.9
    return changed(found, machine=MACHINE, rounds=15)


def compared(target=row.at_least(4), size=1 << 20, name="openmpi", **more):
    """A result of peers with a row of 4.0, 3.0 and 5.0, and what it is made with."""
    made = row.make_row("collectives", "all_reduce | 1 MiB", row.side("shardkit threads", [1e-3, 2e-3]),
                        row.side(name, [5e-3]), "times_faster", [5.0, 4.0, 3.0], target, ranks=2, size=size,
                        verb="all_reduce", type="float", **more)
    return of_peers(made)


def of_peers(*rows):
    """A result of peers with such rows."""
    report = Report({"date": "2026-01-31T00:00:00Z", "machine": MACHINE, "versions": {"compiler": "c"},
                     "parts": ["collectives"], "rounds": 15, "quick": False}, io.StringIO())
    for made in rows:
        report.add(made)
    report.record_side("peer", {"flags": "-O2"}, 2)
    report.record_side("peer", {"flags": "-O3"}, 4)
    report.leave_out("training", "FSDP2", "no network")
    return json.loads(report.to_json())


def share(result, verb, placement, value):
    """A copy whose share of the copy at 1 MiB is another."""
    found = copy.deepcopy(result)
    for made in found["rows"]:
        if made["verb"] == verb and made["size"] == 1 << 20:
            made[placement]["share_of_copy"] = value
    return found


def check_legible(pictures, what):
    for path in sorted(pictures.glob("*.svg")):
        problems = layout_problems(path.read_text(encoding="utf-8"))
        expect(not problems, f"{what}: {path.name} can be read", str(problems))


def check_written(tree, what, **found):
    """Of these results."""
    tree.put(**found)
    done = tree.table()
    expect(done.returncode == 0 and done.stdout + done.stderr == "", f"{what}: a page", done.stderr)
    expect(tree.linked() == tree.drawn(), f"{what}: pictures that the page shows are those that there are",
           str(tree.linked() ^ tree.drawn()))
    check_legible(tree.pictures, what)


def check_refused(tree, what, *words, **found):
    tree.put(**found)
    done = tree.table()
    lines = done.stderr.splitlines()
    expect(done.returncode == 1 and len(lines) == 1 and all(word in lines[0] for word in words),
           f"{what} is refused with {', '.join(words)}", done.stderr)


def check_repository():
    """What is committed: the page, pictures that can be read, and results of a line for each row."""
    done = subprocess.run([sys.executable, "-B", MAIN, "--check"], capture_output=True, text=True, check=False)
    expect(done.returncode == 0, "the repository's page is what its results say", done.stderr)
    check_legible(ROOT / "docs/pictures/results", "committed")
    for path in sorted((ROOT / "benchmarks/results").glob("*.json")):
        text = path.read_text(encoding="utf-8")
        expect(path.name == "reasons.json" or text == json_text(json.loads(text)), f"{path.name} is as programs write it")


def check_empty(tree):
    check_written(tree, "no results")
    expect("There are no results yet." in tree.page() and tree.target("peak_bytes")[1] == "not measured"
           and tree.target("gpu_adamw") == ["-", "not measured", ON_GPU, NO_GPU]
           and tree.target("peak_bytes")[3] == "-", "nothing measured", tree.page())


def check_kinds(tree, found):
    built = found["kernels"]["build"]
    nvcc = row.make_row("includes", "a header, nvcc", row.side("rank/rank.hpp"), row.side("<vector>"), "times_the_cost",
                        [2, 2, 2], row.at_most(3), compiler="nvcc")
    peers = compared()
    peers["rows"].append(nvcc)
    check_written(tree, "every kind", **found, peers=peers)
    page = tree.page()
    for words in ("### collectives.json: threads, 2 ranks", "| barrier | - | - |", "### kernels.json: host, 1 rank",
                  "### checkpoints.json: 2 ranks, full_shard, a state of ", "| begin_save | ", "| load, cold | ",
                  "### policies.json: GPT of 1 layers", "### predicted.json: GPT", "Predicted, not measured, and drawn above:",
                  "### collectives, peers.json: times faster", "| all_reduce \\| 1 MiB | 1500 us |", "a \\| b", "no network",
                  "| 4.000 (3.000-5.000) >= 4 met |", "hybrid_shard<2>",
                  "| verb | type | placement | 256 B | 1 MiB |", "| all_reduce | float sum | in place |", ", 90.0 %",
                  "Links: given by flags: within a node 5 us, 300 GB/s; across nodes 15 us, 25 GB/s.",
                  ">moved (B) | theory (B) | planned (B)".removeprefix(">"), MOVED, "In 3 rounds, not 15: nvcc.",
                  f"shardkit {built['shardkit']}, commit {built['commit']}"):
        expect(words in page, f"the page says {words}", page)
    predicted = next(line for line in page.splitlines() if line.startswith("| [predicted.json]"))
    expect("predicted, nothing was measured" in predicted and " | - | " in predicted and not any(
        word in predicted for word in ("rounds", "warmup", "pinned")), "a prediction has no rounds", predicted)
    old = copy.deepcopy(found["kernels"])
    del old["build"]["shardkit"], old["build"]["commit"]
    rows = [{name: value for name, value in each.items() if name != "rounds"} for each in peers["rows"]]
    check_written(tree, "results that do not say which library they are of", k=old, p=changed(peers, rows=rows))
    expect("commit" not in tree.page() and "In 3 rounds, not 15: nvcc." in tree.page(), "and nothing is said of it")
    check_written(tree, "every kind again", **found, peers=peers)
    expect("others used" not in page and "a quick run" not in page, "a quiet machine and enough rounds")
    for name, words in (("collectives_all_reduce", ["dashed: the copy", "openmpi: all_reduce", "1 MiB",
                                                    "time of a call (us)"]),
                        ("collectives_all_gather", ["all_gather", "all_gather, in place", "256 B"]),
                        ("collectives_share_of_copy", ["all_gather", "time of the copy / time of the verb, in place"]),
                        ("kernels_share_of_copy", ["adamw bfloat16"]),
                        ("checkpoints_share_of_limit", ["save, page cache", "load, warm"]),
                        ("policies_step", ["computation", "exposed communication", "full_shard"]),
                        ("policies_memory", ["planned"]), ("policies_predicted", ["full_shard", "time (ms), perfect overlap"]),
                        ("peers_collectives", ["all_reduce | 1 MiB", "4"])):
        for word in words:
            expect(word in tree.texts(f"{name}.svg"), f"{name} says {word}")
    expect("openmpi" not in str(tree.texts("collectives_all_gather.svg")), "a verb that the peer was not timed with")
    for what, members in (("another machine", {"machine": {**MACHINE, "processor": "another"}}),
                          ("a quick run", {"quick": True})):
        check_written(tree, f"peers of {what}", **found, peers=changed(peers, **members))
        expect("openmpi" not in str(tree.texts("collectives_all_reduce.svg")), "are in no picture beside ours")


def check_repeated(tree, collectives):
    """Of results that compare the same the newest is shown, of peers that with more rows; all of them are evidence."""
    later = "2027-01-31T00:00:00Z"
    check_written(tree, "the same twice", a=changed(collectives, date=later), b=collectives)
    expect("### a.json" in tree.page() and "### b.json" not in tree.page() and "[b.json]" in tree.page(), "is shown once", tree.page())
    more = compared()
    more["rows"].append(more["rows"][0] | {"what": "another size"})
    check_written(tree, "a part of a comparison", p=changed(compared(row.at_least(4)), date=later), q=more)
    expect("### collectives, q.json" in tree.page() and "### collectives, p.json" not in tree.page(), "is not shown", tree.page())
    headers = of_peers(*(row.make_row("includes", name, row.side(name) | {"instructions": 5}, row.side("<vector>"), "times_the_instructions",
                                      [value], row.at_most(3), compiler="c++") for name, value in (("a.hpp", 1.5), ("b.hpp", 2.5))))
    check_written(tree, "headers that are counted alone", p=headers)
    expect("Of 2 other headers instructions alone were counted: 1.500 to 2.500 times" in tree.page() and "a.hpp" not in tree.page(),
           "stand on one line", tree.page())


def check_shares_of_copy(tree, collectives):
    """Each target speaks of its verbs, types, sizes and numbers of ranks, and of no others."""
    base = next(made for made in collectives["rows"] if made["verb"] == "all_reduce" and made["out_of_place"])
    crowd = {**MACHINE, "processors": 1}
    for name, machine, members, others in (
            ("threads_16bit_of_copy", MACHINE, {"type": "half", "size": 64 << 10},
             ({"size": 32 << 10}, {"size": 8 << 20}, {"type": "float"}, {"verb": "all_gather"}, {"redop": "max"})),
            ("threads_broadcast_of_copy", MACHINE, {"verb": "broadcast", "redop": None, "size": 64 << 20},
             ({"size": 64 << 10}, {"type": "half"}, {"verb": "all_to_all"})),
            ("crowded_threads_of_copy", crowd, {"size": 64 << 20},
             ({"size": 16 << 20}, {"type": "half"}, {"verb": "broadcast", "redop": None}))):
        made = {**copy.deepcopy(base), **members}
        made["out_of_place"]["share_of_copy"] = 0.9
        check_written(tree, name, a=changed(collectives, machine=machine, rows=[made]))
        expect(tree.target(name)[:2] == ["0.900", "met"], f"{name}: is met", str(tree.target(name)))
        for other in others:
            check_written(tree, f"{name}: {other}", a=changed(collectives, machine=machine, rows=[{**made, **other}]))
            expect(tree.target(name)[1] == "not measured", f"{name}: {other} is no evidence", str(tree.target(name)))
    made = {**copy.deepcopy(base), "size": 64 << 20}
    made["in_place"] = {**made["out_of_place"], "share_of_copy": 0.1}
    made["out_of_place"]["share_of_copy"] = 0.9
    check_written(tree, "in place", a=changed(collectives, machine=crowd, rows=[made]))
    expect(tree.target("crowded_threads_of_copy")[1] == "met", "in place is no evidence of out of place")


def check_targets(tree, found):
    """The worst row of a file, the best file; what counts."""
    name, collectives = "threads_all_reduce_1MiB_of_copy", found["collectives"]
    check_written(tree, "a target that is met", a=collectives)
    expect(tree.target(name)[:2] == ["0.900", "met"], "is met", tree.page())
    missed = share(collectives, "all_reduce", "in_place", 0.8)
    check_refused(tree, "a missed target without a reason", "a.json", name, "0.800", "expected >= 0.85",
                  "reasons.json", a=missed)
    twice = share(missed, "all_gather", "in_place", 0.7)
    tree.put(a=twice)
    lines = tree.table().stderr.splitlines()
    expect(len(lines) == 2 and all(line.startswith("table: error: a.json: target '") for line in lines),
           "all missed targets are named at once", str(lines))
    check_refused(tree, "a reason for another target", "a.json", "threads_all_gather_1MiB_of_copy", "0.700",
                  a=twice, reasons={name: "the cache"})
    other_type = copy.deepcopy(collectives)
    other_type["rows"] += [{**made, "type": "half"} for made in missed["rows"]]
    check_written(tree, "another type", a=other_type)
    expect(tree.target(name)[:2] == ["0.900", "met"], "is not what the target speaks of", str(tree.target(name)))
    check_written(tree, "a missed target with a reason", a=missed, reasons={name: "the | cache", "gpu_adamw": "no GPU"})
    expect(tree.target(name) == ["0.800", "**missed**", "[a.json](../benchmarks/results/a.json): all_reduce 1 MiB, in place, 2 ranks",
                                 "the \\| cache"], "shows it", tree.page())
    expect(tree.target("gpu_adamw")[1:] == ["not measured", ON_GPU, "no GPU"], "why something was not measured")
    check_written(tree, "of two files the better one", a=missed, b=share(collectives, "all_reduce", "out_of_place", 0.95))
    expect(tree.target(name)[:2] == ["0.900", "met (missed by 1 of 2 results)"], "counts", str(tree.target(name)))
    check_shares_of_copy(tree, collectives)
    busy = changed(collectives, machine={**MACHINE, "load_before": 1.5})
    check_written(tree, "a busy machine", a=busy)
    expect("**(busy machine)**" in tree.target(name)[2] and "**others used the machine" in tree.page(), "is said")
    for what, members in (("few rounds", {"rounds": 14}), ("two groups", {"groups": 2}), ("MPI", {"engine": "mpi"}),
                          ("more processors", {"machine": {**MACHINE, "processors": 4}})):
        check_written(tree, f"a result with {what}", a=changed(missed, **members))
        expect(tree.target(name)[1] == "not measured", "is no evidence", str(tree.target(name)))
        expect(("**a quick run" in tree.page()) == (what == "few rounds"), "and says why when it is quick")
        along = f"along {missed['axis']} of {missed['mesh']}, 2 groups at once"
        expect((along in tree.page()) == (what == "two groups"), "and names an axis that has several groups")
    check_schedules(tree, found["policies"])
    check_other_groups(tree, found["policies"])
    policies = copy.deepcopy(found["policies"])
    policies["rows"][1]["peak_bytes"] = policies["rows"][1]["planned_peak_bytes"] * 0.97
    check_refused(tree, "memory that is 3 % off", "p.json", "peak_bytes", "0.030", "expected <= 0.02", p=policies)
    check_checkpoint_targets(tree, found["checkpoints"])
    gpu = changed(found["kernels"], engine="gpu",
                  rows=[each for each in found["kernels"]["rows"] if each["kernel"] not in ("pack", "unpack")])
    for made in gpu["rows"]:
        made |= {"share_of_copy": 0.95, "size": 256 << 20}
    gpu["rows"].append({**gpu["rows"][0], "kernel": "pack", "share_of_copy": 0.1, "size": 1 << 20, "tensors": 300,
                        "launches": 1})
    check_written(tree, "kernels of a GPU", k=gpu)
    expect(tree.target("gpu_adamw")[:2] == ["0.950", "met"] and tree.target("gpu_pack")[1] == "not measured"
           and tree.target("gpu_launches")[:2] == ["1.000", "met"], "large ones and launches are evidence", tree.page())
    gpu["rows"][-1]["launches"] = 3
    check_refused(tree, "more launches", "k.json", "gpu_launches", "3.000", "expected <= 2", k=gpu)
    check_written(tree, "a target that a row carries", p=compared(row.at_least(4), name="openmpi"))
    expect(tree.target("all_reduce_openmpi")[:2] == ["4.000", "met"], "is judged", tree.page())
    small = {"ranks": 2, "size": 256, "verb": "all_reduce", "type": "float"}
    check_written(tree, "small all-reduces of two engines", p=of_peers(*(
        row.make_row("collectives", "all_reduce", row.side(ours), row.side("openmpi"), "times_faster", [value], row.at_least(1),
                     **small) for ours, value in (("shardkit threads", 2), ("shardkit on openmpi", 1.25)))))
    for target, value in (("small_all_reduce_openmpi", "2.000"), ("mpi_small_all_reduce_openmpi", "1.250")):
        expect(tree.target(target)[:2] == [value, "met"], f"{target} has its own row", str(tree.target(target)))
    check_written(tree, "AdamW and headers", p=of_peers(
        row.make_row("adamw", "AdamW", row.side("ours"), row.side("hand-written AVX2"), "times_faster", [0.98],
                     row.at_least(0.97)),
        row.make_row("adamw", "AdamW", row.side("ours"), row.side("PyTorch fused"), "times_faster", [1.5],
                     row.at_least(1)),
        *(row.make_row("includes", "a header", row.side("rank/rank.hpp"), row.side("<vector>"), "times_the_cost",
                       [value], row.at_most(3), compiler=compiler) for compiler, value in (("c++", 2), ("nvcc", 1.5)))))
    for target, value in (("adamw_by_hand", "0.980"), ("adamw_pytorch", "1.500"), ("includes_light", "2.000"),
                          ("includes_light_nvcc", "1.500")):
        expect(tree.target(target)[:2] == [value, "met"], f"{target} has its own row", str(tree.target(target)))
    check_written(tree, "a quick comparison", p=changed(compared(), quick=True))
    expect(tree.target("all_reduce_openmpi")[1] == "not measured", "is no evidence")


def check_schedules(tree, policies):
    """A step that follows a schedule stands beside the one without, and is evidence for two targets."""
    plain = policies["rows"][0] | {"step_us": {"median": 1000, "min": 1, "p99": 1}, "compute_us": {"median": 800, "min": 1, "p99": 1},
                                   "communication_us": {"median": 100, "min": 1, "p99": 1}, "exposed_share": 2,
                                   "simulated_step_us": 1050, "simulation_error": 0.05}
    early = plain | {"schedule": "overlap:1", "step_us": {"median": 950, "min": 1, "p99": 1}, "exposed_share": 1,
                    "simulated_step_us": 810, "simulation_error": -0.1}
    both = changed(policies, rows=[plain, early], slow_percent=10, slow_in_turns=True, overlap=True)
    check_written(tree, "steps with schedules", p=both)
    expect("With schedules, in turns:" in tree.page() and "| overlap:1 | " in tree.page() and
           "| 950.0 | 0.95 | 1.00 | 0.50 | 810.0 | -10 |" in tree.page(), "the page has a row for each", tree.page())
    expect(tree.target("simulated_step")[:2] == ["0.100", "met"] and tree.target("exposed_communication")[1] == "not measured", "are evidence", tree.page())
    check_refused(tree, "a simulation that is 20 % off", "p.json", "simulated_step", "0.200", "expected <= 0.15",
                  p=changed(both, rows=[plain, early | {"simulation_error": 0.2}]))
    spare = changed(both, engine="mpi", overlap=True, machine={**MACHINE, "processors": 4})
    check_refused(tree, "all is exposed with processors to spare", "p.json", "exposed_communication", "1.000",
                  "expected <= 0.05", p=spare)
    check_refused(tree, "all is exposed while an accelerator computes", "p.json", "exposed_communication", "1.000",
                  "expected <= 0.05", p=changed(spare, machine=MACHINE, work_elsewhere=True))
    check_written(tree, "without a processor to spare", p=changed(spare, machine=MACHINE))
    expect(tree.target("exposed_communication")[1] == "not measured", "nothing is expected of it", tree.page())


def check_other_groups(tree, policies):
    """Bytes that go to other shard groups stand beside theory and plan, also of a quick run, whose times are no result."""
    plain = policies["rows"][0]
    moved = plain | {"collectives": [each | {"across_bytes": 7, "theory_across_bytes": 8, "planned_across_bytes": 9}
                                     for each in plain["collectives"]]}
    check_written(tree, "policies of groups", p=changed(policies, rows=[moved]))
    expect("| 7 | 8 | 9 |" in tree.page() and "| step (us) |" in tree.page(), "the page has the bytes and the times", tree.page())
    check_written(tree, "a quick run of them", p=changed(policies, rows=[moved], rounds=1))
    expect("| 7 | 8 | 9 |" in tree.page() and "| step (us) |" not in tree.page() and "Its times are no result" in tree.page(),
           "the page has the bytes alone", tree.page())


def check_checkpoint_targets(tree, small):
    check_written(tree, "a small checkpoint", c=small)
    expect(tree.target("checkpoint_save")[1] == "not measured", "is no evidence")
    large = changed(small, state_bytes=1_500_000_000, digest_share=0.02)
    for made, share in zip(large["rows"], (0.95, 0.92, None, None, 1.2, 0.97)):
        made["share_of_limit"] = share
        made["time_us"]["median"] = 900
    check_written(tree, "a large checkpoint", c=large)
    for target, value in (("checkpoint_save", "0.920"), ("checkpoint_load", "0.970"), ("checkpoint_stall", "0.900"),
                          ("checkpoint_digest", "0.020")):
        expect(tree.target(target)[:2] == [value, "met"], f"{target} is judged by the worst row", str(tree.target(target)))
    large["rows"][2]["time_us"]["median"] = 2000
    check_refused(tree, "a longer stall", "c.json", "checkpoint_stall", "2.000", "expected <= 1", c=large)


def check_refusals(tree, found):
    collectives = found["collectives"]
    kinds = "expected a result of collectives, kernels, policies, peers, checkpoints, format 1"
    for what, content, words in (
            ("another kind", {"benchmark": "other", "format": 1}, ["'other'", kinds]),
            ("another format", changed(collectives, format=2), ["format 2", kinds]),
            ("a list", [1], ["no benchmark", kinds]),
            ("no JSON", "{", ["expected JSON"]),
            ("a value that is no number", '{"benchmark": NaN}', ["NaN is no number"]),
            ("wrong data", changed(collectives, wrong=3), ["wrong 3", "expected a result without wrong data"]),
            ("wrong policies", changed(found["policies"], wrong=["calls"]), ["calls", "without wrong data"]),
            ("unchecked data", changed(collectives, checks=0), ["checks 0", "expected a result whose data was"]),
            ("no rows", {name: value for name, value in collectives.items() if name != "rows"},
             ["rows None", "expected what benchmarks/run collectives --json writes"]),
            ("rows of another kind", changed(collectives, rows=found["kernels"]["rows"]),
             ["expected what benchmarks/run collectives --json writes"]),
            ("no links", {name: value for name, value in found["policies"].items() if name != "links"},
             ["expected what benchmarks/run policies --json writes", "links"]),
            ("a target that the project does not have", compared(row.at_least(5)),
             ["openmpi", "has the target >= 5", "expected >= 4, as all_reduce_openmpi says"])):
        check_refused(tree, what, "bad.json", *words, bad=content)
    peers = compared(None)
    del peers["rows"][0]["verb"]
    check_refused(tree, "a peer's row without its verb", "bad.json", "expected a peer's time, verb, type", "'verb'",
                  a=collectives, bad=peers)
    for what, content, words in (
            ("a reason that names no target", {"speed": "x"}, ["'speed' is no target", "expected one of", "peak_"]),
            ("an empty reason", {"peak_bytes": " "}, ["'peak_bytes' has no reason", "expected a text"]),
            ("reasons in a list", ["peak_bytes"], ["expected an object"]),
            ("reasons that are no JSON", "peak_bytes", ["expected JSON"])):
        check_refused(tree, what, "reasons.json", *words, reasons=content)


def check_checks(tree, found):
    """--check notices whatever is not as it would be written."""

    def noticed(what, *words):
        done = tree.table("--check")
        expect(done.returncode == 1 and all(word in done.stderr for word in (*words, "run benchmarks/run table")),
               f"--check notices {what}", done.stderr)
        tree.table()
        expect(tree.table("--check").returncode == 0, "and is content with what was written then")

    tree.put(a=found["collectives"])
    noticed("a new result", "benchmark_results.md is not what")
    page = tree.root / "docs/benchmark_results.md"
    page.write_text(tree.page().replace("0.900", "0.990"), encoding="utf-8")
    noticed("a changed page", "benchmark_results.md is not what the results say")
    picture = tree.pictures / "collectives_share_of_copy.svg"
    picture.write_text(picture.read_text(encoding="utf-8") + " ", encoding="utf-8")
    noticed("a changed picture", "collectives_share_of_copy.svg is not what the results say")
    picture.unlink()
    noticed("a missing picture", "collectives_share_of_copy.svg is missing")
    (tree.pictures / "old.svg").write_text("", encoding="utf-8")
    noticed("a picture without a result", "old.svg belongs to no result")
    expect("old.svg" not in tree.drawn(), "which is removed")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        found = {kind: measured(folder, kind) for kind in FLAGS}
        found["predicted"] = measured(folder, "policies", "--predict", "default", "--link-latency-us", "5,15",
                                      "--link-gbs", "300,25")
        tree = Tree(folder / "tree", MAIN)
        check_repository()
        check_refusals(tree, found)
        if shutil.which("gnuplot") is None:
            print("skipped: pages with pictures, without gnuplot")
        else:
            check_empty(tree)
            check_kinds(tree, found)
            check_repeated(tree, found["collectives"])
            check_targets(tree, found)
            check_checks(tree, found)
    end()


main()
