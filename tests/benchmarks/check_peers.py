# SPDX-License-Identifier: Apache-2.0
"""check_peers.py ROOT BUILD: benchmarks/run peers refuses what makes no sense, its results have their members, and an
error planted into a peer is found; BUILD is the build folder with the programs. Needs neither PyTorch nor MPI."""
import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest.mock

ROOT = pathlib.Path(sys.argv[1])
BUILD = pathlib.Path(sys.argv[2])
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT / "benchmarks/peers"), str(ROOT / "benchmarks/common")]
import adamw  # noqa: E402
import checkpoints  # noqa: E402
import collectives  # noqa: E402
import includes  # noqa: E402
import muon  # noqa: E402
import machine  # noqa: E402
import overhead  # noqa: E402
import products  # noqa: E402
import reshard  # noqa: E402
import row  # noqa: E402
import training  # noqa: E402
from expectation import end, expect  # noqa: E402
from refusal import Unavailable, WrongData  # noqa: E402
from report import Report  # noqa: E402
from worker import Worker, merged, take_turns  # noqa: E402

PAGE = (ROOT / "docs/benchmarks_peers.md").read_text(encoding="utf-8")
def expect_raises(kind, words, what, call):
    try:
        call()
    except kind as error:
        expect(all(word in str(error) for word in words), f"{what}: says so", str(error))
    else:
        expect(False, f"{what}: is found")


COMMIT = "0123456789ab+modified"


def peers(*flags):
    return subprocess.run([sys.executable, "-B", ROOT / "benchmarks/peers/main.py", *map(str, flags)],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, "SHARDKIT_COMMIT": COMMIT})


def fake(facts=None, timeout=20, processes=1, name="fake", **answers):
    command = [sys.executable, "-B", HERE / "fake_worker.py", json.dumps(facts or {}), json.dumps(answers)]
    return Worker(name, [command] * processes, timeout=timeout)


REFUSED = [
    (["collect"], "part 'collect': expected collectives, adamw, muon, products, training, checkpoints, reshard, overhead, includes"),
    (["--rounds", "0"], "--rounds '0': expected a whole number from 1"),
    (["--rounds", "1.5"], "--rounds '1.5': expected a whole number"),
    (["--ranks", "1"], "--ranks '1': expected a whole number from 2 to 64"),
    (["--ranks", "2,x"], "--ranks 'x': expected a whole number"),
    (["--ranks", "2,2"], "--ranks: expected each number once"),
    (["--size", "8"], "--size '8': expected a whole number from 256 to 1073741824"),
    (["--size", "256,256"], "--size: expected each number once"),
    (["training", "--ranks", "3"], "--ranks '3': expected a divisor of the 16 sequences"),
    (["--peer", "nccl"], "--peer 'nccl': expected a list with commas of openmpi, mpich, gloo"),
    (["--peer", "gloo,gloo"], "--peer 'gloo,gloo': expected each name once"),
    (["--policy", "zero"], "--policy 'zero': expected a list with commas of no_shard"),
    (["--policy", "hybrid_shard", "--ranks", "2"], "--policy 'hybrid_shard': expected --ranks of at least 4"),
    (["--schedule", "none,keep"], "--schedule 'none,keep': expected a list with commas of none, auto and prefetch:N, each once"),
    (["--schedule", "auto,auto"], "--schedule 'auto,auto': expected a list with commas of none, auto and prefetch:N, each once"),
    (["--compile", "maybe"], "--compile 'maybe': expected off, on or both"),
    (["--compiler", "icc"], "--compiler 'icc': expected a list with commas of c++, clang++, nvcc"),
    (["--programs", "no/such"], "--programs 'no/such': expected a build folder"),
    (["--json", "no/such/folder/a.json"], "--json 'no/such/folder/a.json': expected a file that can be written"),
    (["--json", ""], "--json '': expected a file name"),
    (["--turns", "5"], "unrecognized arguments: --turns"),
]


def check_refusals():
    for flags, text in REFUSED:
        done = peers(*flags)
        lines = done.stderr.splitlines()
        expect(done.returncode == 2 and len(lines) == 1 and lines[0].startswith("peers: error: " + text)
               and done.stdout == "", f"{' '.join(flags)} is refused with '{text}'", done.stdout + done.stderr)
    text = peers("--help").stdout
    for line in PAGE.splitlines():
        if line.startswith("benchmarks/run peers"):
            for word in line.split("#")[0].split()[2:]:
                expect(not word.startswith("-") or word in text, f"the page's flag {word}")


def check_figures():
    expect(row.summarise([3.0, 1.0, 2.0, 10.0]) == {"median": 2.5, "min": 1.0, "p95": 10.0, "max": 10.0},
           "median, least and largest")
    expect(row.is_met(row.at_least(4), 4.0) and not row.is_met(row.at_least(4), 3.999)
           and row.is_met(row.at_most(3), 3.0) and not row.is_met(row.at_most(3), 3.1)
           and row.is_met(None, 1.0) is None, "targets")
    expect(collectives.target("all_reduce", 64 << 20, 2, "openmpi", 2) == row.at_least(4)
           and collectives.target("reduce_scatter", 8 << 20, 2, "openmpi", 2) == row.at_least(8)
           and collectives.target("all_gather", 8 << 20, 4, "openmpi", 2) == row.at_least(1.5)
           and collectives.target("all_gather", 4096, 4, "openmpi", 2) is None
           and collectives.target("all_reduce", 256, 2, "openmpi", 2) == row.at_least(1)
           and collectives.target("all_reduce", 256, 2, "openmpi", 2, "shardkit on openmpi") == row.at_least(1)
           and collectives.target("all_reduce", 256, 4, "openmpi", 2, "shardkit on openmpi") is None
           and collectives.target("all_reduce", 4096, 2, "openmpi", 2, "shardkit on openmpi") is None
           and collectives.target("all_reduce", 256, 2, "openmpi", 2, "shardkit on openmpi, trusting") is None
           and collectives.target("barrier", 0, 4, "std::barrier", 2) == row.at_least(1 / 1.5)
           and collectives.target("barrier", 0, 2, "std::barrier", 2) is None, "targets of collectives")
    expect([checkpoints.aim_of(*of) for of in (("save", "PyTorch DCP, no sync"), ("load", "PyTorch DCP"), ("save", "torch.save"),
                                               ("begin_save", "PyTorch DCP, async_save"))]
           == [row.at_least(3), row.at_least(3), None, None], "targets of checkpoints")
    expect(training.policies_for(2, training.POLICIES) == list(training.POLICIES[:-1])
           and training.policies_for(4, training.POLICIES)[-1] == "hybrid_shard:2", "policies of 2 and 4 ranks")
    turns = []
    take_turns(2, lambda: turns.append("a") or 1.0, lambda: turns.append("b") or 1.0)
    expect(turns == ["a", "b", "a", "b"], "sides take turns")
    for value in (0, -1.0, None, "1", float("nan"), float("inf"), True):
        expect_raises(WrongData, ["where seconds above 0"], f"a time of {value!r}",
                      lambda value=value: take_turns(1, lambda: value))


def check_workers():
    with fake({"ranks": 2}, go={"seconds": 1.5}) as worker:
        expect(worker.facts == {"ranks": 2} and worker.ask("go", 3) == {"seconds": 1.5}, "a worker answers")
        expect_raises(WrongData, ["fake", "no answer to stop"], "a worker that ends", lambda: worker.ask("stop"))
    with fake(go="silence", timeout=0.5) as worker:
        expect_raises(WrongData, ["no answer for 0.5 seconds"], "a worker that hangs", lambda: worker.ask("go"))
    expect_raises(Unavailable, ["cannot be started"], "a program that is not there",
                  lambda: Worker("none", [["/no/such/program"]]))
    with fake({"ranks": 2}, processes=3, go={"seconds": 0.5}) as worker:
        expect(worker.ask("go") == {"seconds": 0.5}, "a side of several processes")
    turns = [{"begin": 5.0, "end": 6.0, "wrong": 1}, {"begin": 6.5, "end": 9.0}, {"begin": 4.5, "end": 5.5, "wrong": 3}]
    expect(merged(turns) == {"seconds": 4.5, "wrong": 3}, "processes that took turns")
    with fake({"ranks": 2}) as worker:
        expect_raises(WrongData, ["has 2 ranks, asked for 4"], "fewer ranks than asked",
                      lambda: worker.with_ranks(4))


def check_products():
    """Where train_gpt is built: its products alone are those of its step."""
    program, library = BUILD / "examples/train_gpt/train_gpt", BUILD / "benchmarks/peers/libpeer_products.so"
    if not program.exists() or not library.exists():
        print("no train_gpt here")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        setup = types.SimpleNamespace(setup=types.SimpleNamespace(root=ROOT))
        shape = {"sequence": 8, "layers": 2, "width": 16, "heads": 2, "batch": 4}
        config = training.Files(folder, setup, shape).config
        for ranks in (1, 2):
            made = training.noted_products(program, library, config, "full_shard", ranks, folder)
            expect(0 < made["seconds"] < 60, f"products of {ranks} ranks", str(made))
            expect(sum(kind[6] for kind in made["kinds"]) == made["products"] and made["multiply_adds"]
                   == sum(kind[0] * kind[1] * kind[2] * kind[6] for kind in made["kinds"]), "each of them by its kind", str(made))
        for what, command, words in (
                ("another number of products", f"{program} \"$@\" && sed -i 's/_adds.: /&1/' $SHARDKIT_PRODUCTS",
                 ["multiply-adds", "1 ranks of train_gpt"]),
                ("no library", f'unset LD_PRELOAD; exec {program} "$@"', ["without its matrix products"])):
            wrapper = folder / "wrapper"
            wrapper.write_text(f"#!/bin/bash\n{command}\n", encoding="utf-8")
            wrapper.chmod(0o755)
            expect_raises(WrongData, words, what, lambda: training.noted_products(wrapper, library, config, "full_shard", 1,
                                                                                  folder))


def sum_over(m, n, k, left, right):
    """Over a product of the numbers that both sides make, by plain loops."""
    def a(row_, column):
        return (column * m + row_ if left else row_ * k + column) * 7 % 5 - 2

    def b(row_, column):
        return (column * k + row_ if right else row_ * n + column) * 11 % 7 - 3

    return float(sum(((i * n + j) % 13 + 1) * sum(a(i, x) * b(x, j) for x in range(k)) for i in range(m) for j in range(n)))


def check_blas_products():
    """Where there is a BLAS: the worker makes the products that it is told to, and says which kernel makes them."""
    program = BUILD / "benchmarks/peers/peer_blas_products"
    if not program.exists():
        print("no BLAS here")
        return
    with Worker("BLAS", [[program]]) as worker:
        expect(re.fullmatch(r"OpenBLAS \d\S*, kernel \w+", worker.facts["blas"]) is not None and worker.facts["threads"] == 1,
               "library and kernel are named", str(worker.facts))
        kinds = [(5, 7, 3, left, right, adds, 2) for left in (0, 1) for right in (0, 1) for adds in (0, 1)] + [(9, 2, 11, 0, 1, 1, 1)]
        for kind in kinds:
            worker.ask("product", *kind)
        expect(worker.ask("go")["seconds"] > 0, "products take time")
        expect(worker.ask("check")["sums"] == [sum_over(*kind[:5]) for kind in kinds], "and are right")
        expect_raises(WrongData, ["command 'walk': expected product, check, go or quit"], "an unknown command",
                      lambda: worker.ask("walk"))


def check_planted_products():
    """PyTorch's products get no row when they differ from ours, and none is compared when all are small."""
    large = [1024, 128, 128, 0, 1, 0, 3]
    expect(products.products_of({"products": 9, "kinds": [[64, 64, 32, 0, 0, 0, 6], large]}) == [large], "small ones are left out")
    expect_raises(WrongData, ["none of 6 matrix products"], "small ones alone",
                  lambda: products.products_of({"products": 6, "kinds": [[64, 64, 32, 0, 0, 0, 6]]}))
    for sums in ([7.0], [7.5], [7.0, 7.0], None):
        with fake(product={}, check={"sums": [7.0]}, go={"seconds": 2.0}, name="ours") as ours, \
                fake(product={}, check={"sums": sums}, go={"seconds": 1.5}, name="peer") as peer:
            report = Report({}, io.StringIO())
            options = types.SimpleNamespace(rounds=2)
            if sums == [7.0]:
                products.compare(ours, peer, "0.8M", [large], options, report)
                made = report.rows[0]
                expect(made["value"]["median"] == 0.75 and made["met"] is False and made["multiply_adds"] == 3 << 24, "a row", str(made))
            else:
                expect_raises(WrongData, ["sums over 1 matrix products are [7.0] by ours"], f"sums {sums}",
                              lambda: products.compare(ours, peer, "0.8M", [large], options, report))
                expect(report.rows == [], "and no row")


def check_schedules_in_turns():
    """Where train_gpt is built: a row for each schedule, beside the products that were measured in the same rounds."""
    program, library = BUILD / "examples/train_gpt/train_gpt", BUILD / "benchmarks/peers/libpeer_products.so"
    if not program.exists() or not library.exists():
        return
    report = Report({}, io.StringIO())
    with tempfile.TemporaryDirectory() as name:
        options = types.SimpleNamespace(
            rounds=1, quick=True, compile=[], schedules=["none", "prefetch:1"], processors=2,
            setup=types.SimpleNamespace(root=ROOT, products=lambda: library, folder=pathlib.Path(name)))
        shape = {"sequence": 8, "layers": 2, "width": 16, "heads": 2, "batch": 4}
        training.measure(None, program, "0.8M", "full_shard", 2, training.Files(pathlib.Path(name), options, shape), options,
                         report)
    expect(not report.failed and [(made["schedule"], made["what"].partition("2 ranks")[2]) for made in report.rows] == [
        ("none", ", --schedule none"), ("prefetch:1", ", --schedule prefetch:1")], "a row for each schedule", str(report.failed))
    none, ahead = (made["ours"]["time_us"] for made in report.rows)
    expect(none != ahead and report.rows[0]["peer"] == report.rows[1]["peer"], "of its own run, beside the same peer")


def check_planted():
    """A peer that computes something else must not get a row."""
    with fake(prepare={"wrong": 3}) as worker:
        expect_raises(WrongData, ["all_reduce of 256 bytes: 3 wrong values"], "a planted wrong sum",
                      lambda: collectives.Side("fake", worker, "raw").prepare("all_reduce", 256))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for difference, right in ((1e-7, True), (2e-6, False), ("none", False)):
            with fake(prepare={}, go={"seconds": 1.0}, dump={}) as ours, \
                    fake(prepare={}, go={"seconds": 1.0}, compare={"difference": difference}) as peer:
                if right:
                    expect(adamw.check(ours, peer, 100, folder)["largest"] == difference, "parameters that agree")
                else:
                    expect_raises(WrongData, ["differs from shardkit", str(difference)],
                                  f"parameters that differ by {difference}",
                                  lambda: adamw.check(ours, peer, 100, folder))
        for difference, right in ((1e-5, True), (2e-4, False), ("none", False)):
            with fake(prepare={}, go={"seconds": 1.0}, dump={}) as ours, \
                    fake(prepare={}, go={"seconds": 1.0}, compare={"difference": difference}) as peer:
                if right:
                    expect(muon.check(ours, peer, "fp32", (1, 8), folder)["largest"] == difference, "matrices that agree")
                else:
                    expect_raises(WrongData, ["differs from shardkit", str(difference)], f"matrices that differ by {difference}",
                                  lambda: muon.check(ours, peer, "fp32", (1, 8), folder))
    found = {"losses": [5.5, 5.0], "grad_norms": [2.0, 1.0]}
    with fake(check={"losses": [5.501, 5.0], "grad_norms": [2.0, 1.0005]}) as peer:
        expect(abs(training.check(found, peer, "x")["largest"] - 5e-4) < 1e-9, "losses and norms that agree")
    for losses, norms in (([5.5, 5.01], [2.0, 1.0]), ([5.5, 5.0], [4.0, 2.0]), ([5.5], [2.0, 1.0]),
                          ([5.5, None], [2.0, 1.0])):
        with fake(check={"losses": losses, "grad_norms": norms}) as peer:
            expect_raises(WrongData, ["of fake and train_gpt differ"], f"losses {losses} and norms {norms}",
                          lambda: training.check(found, peer, "x"))
    runs = {"none": found, "auto": dict(found), "prefetch:1": {**found, "grad_norms": [2.0, 1.0 + 2**-52]}}
    expect(training.same_run({"none": found, "auto": dict(found)}, "x") is found, "one run under several schedules")
    expect_raises(WrongData, ["x: grad_norms of train_gpt with --schedule prefetch:1", "with --schedule none"],
                  "a schedule that changes a bit", lambda: training.same_run(runs, "x"))
    check_products()
    check_blas_products()
    check_planted_products()
    check_schedules_in_turns()
    case = {"case": "no_shard_window", "bytes": 256, "verbs": 2, "wrong": 0, "wrapped": [2e-7], "bare": [1e-7]}
    made = list(overhead.rows_of({"ranks": 2, "rows": [case]}, "fake", 2, 1))
    expect(abs(made[0]["value"]["median"] - 50) < 1e-9 and made[0]["met"], "50 ns a verb")
    for change, text in (({"wrong": 1}, "1 wrong values"), ({"bare": []}, "1 rounds, asked for 1")):
        expect_raises(WrongData, [text.split(",", maxsplit=1)[-1]], f"overhead with {change}", lambda change=change: list(
            overhead.rows_of({"ranks": 2, "rows": [{**case, **change}]}, "fake", 2, 1)))
    made = list(overhead.rows_of({"ranks": 2, "rows": [{**case, "case": overhead.RECORDED}]}, "fake", 2, 1))[0]
    expect(made["figure"] == "ns_per_call" and made["target"] == row.at_most(30) and not made["met"],
           "50 ns for a record of a call")
    for followed in overhead.FOLLOWED:
        made = list(overhead.rows_of({"ranks": 2, "rows": [{**case, "case": followed}]}, "fake", 2, 1))[0]
        expect(made["figure"] == "ns_per_operation" and made["target"] == row.at_most(1000)
               and "2 operations" in made["ours"]["name"], f"aim of a {followed}")
    expect_raises(WrongData, ["has 1 ranks, asked for 2"], "overhead on fewer ranks",
                  lambda: list(overhead.rows_of({"ranks": 1, "rows": []}, "fake", 2, 1)))


def check_planted_run():
    """The same through a whole part: the exit code's reason is recorded, and no row is printed."""
    out = io.StringIO()
    report = Report({}, out)
    options = types.SimpleNamespace(rounds=1, quick=True, peers=[], setup=types.SimpleNamespace(
        program=lambda name: HERE / "fake_worker.py"))
    planted = json.dumps({"ranks": 2, "rows": [{"case": "no_shard_window", "bytes": 256, "verbs": 2, "wrong": 7,
                                                "wrapped": [1.0], "bare": [1.0]}]})
    overhead.measure("fake", [sys.executable, "-c", f"print({planted!r})"], 2, options, report)
    expect(report.rows == [] and "7 wrong values" in report.failed[0]["why"] and "FAILED" in out.getvalue(),
           "a planted wrong value of a program fails its part", out.getvalue())


class FakeCompiler:
    """Preprocesses to the file itself, and compiles everything of the library in 3 seconds, the rest in 1."""

    def __init__(self, command, _include, _more):
        self.command, self.version, self.counts_instructions = command, "1", False

    def lines(self, source):
        name = re.findall(r"[<]([^>]+)[>]", source.file.read_text(encoding="utf-8"))[0]
        return len((ROOT / "include" / name).read_text(encoding="utf-8").splitlines()) if "/" in name else 1

    def seconds(self, source, _output):
        return 3.0 if "/" in source.name else 1.0

    def compiles(self, _source, _output):
        return False


def check_light_headers():
    """Of each folder the header with the most lines; under nvcc in few rounds."""
    longest = [max((ROOT / "include/shardkit" / folder).glob("*.hpp"),
                   key=lambda path: len(path.read_text(encoding="utf-8").splitlines())).name
               for folder in includes.FOLDERS]
    report = Report({}, io.StringIO())
    options = types.SimpleNamespace(rounds=15, quick=True, compilers=["nvcc"], setup=types.SimpleNamespace(root=ROOT))
    with unittest.mock.patch.object(includes, "Compiler", FakeCompiler), \
            unittest.mock.patch.object(includes.shutil, "which", lambda name: f"/bin/{name}"), \
            unittest.mock.patch.object(includes.row, "make_row", wraps=row.make_row) as made:
        includes.run(options, report)
    light = [made for made in report.rows if made["target"] == includes.LIGHT]
    expect([pathlib.Path(made["ours"]["name"]).name for made in light] == longest
           and all(made["compiler"] == "nvcc" and made["met"] and made["peer"]["name"] == "<vector>" for made in light),
           "the heaviest of the light headers under nvcc", str(light))
    expect({len(call.args[5]) for call in made.call_args_list} == {3}, "in three rounds")
    with tempfile.TemporaryDirectory() as name:
        source = includes.Source("none", pathlib.Path(name), ["no/such/header.hpp"], 0)
        expect_raises(WrongData, ["none cannot be preprocessed"], "a header that is not there",
                      lambda: includes.Compiler("c++", ROOT / "include").lines(source))


MEMBERS = {"benchmark", "format", "date", "machine", "versions", "parts", "rounds", "quick", "figures", "sides", "rows",
           "left_out", "failed"}


def check_json(found, parts, rounds):
    expect(set(found) == MEMBERS and found["benchmark"] == "peers" and found["format"] == 1, "members of a result")
    expect(found["parts"] == parts and found["rounds"] == rounds and found["quick"], "what was asked for")
    for member in MEMBERS | {"what", "ours", "peer", "value", "target", "met", "check", "why"}:
        expect(f"`{member}`" in PAGE, f"the page names the JSON's member {member}")
    expect(found["versions"]["shardkit"] == machine.library_version(ROOT) != "unknown" and found["versions"]["commit"] == COMMIT, "the library's version")
    for made in found["rows"]:
        value = made["value"]
        good = made["part"] in parts and made["figure"] in found["figures"] and \
            value["min"] <= value["median"] <= value["max"] and \
            made["met"] == row.is_met(made["target"], value["median"]) and made["ours"]["name"] and made["peer"]["name"]
        if not good:
            expect(False, f"{made['what']}: a row's figures", json.dumps(made))
    expect(bool(found["rows"]), "there are rows")


def check_runs(folder):
    """Real runs of what needs nothing but this build."""
    file = folder / "result.json"
    done = peers("includes", "overhead", "--quick", "--rounds", 1, "--peer", "gloo", "--compiler", "c++", "--programs",
                 BUILD, "--json", file)
    text = file.read_text(encoding="utf-8")
    found = json.loads(text)
    lines = [line.strip(" ,") for line in text.splitlines()]
    expect(all(json.dumps(made, ensure_ascii=False) in lines for made in found["rows"]), "a line for each row", text)
    check_json(found, ["overhead", "includes"], 1)
    left_out = [entry["what"] for entry in found["left_out"]]
    expect(found["failed"] == [] and done.returncode == (1 if left_out else 0) and left_out in ([], ["instructions"]),
           "overhead and includes are measured", done.stdout + done.stderr)
    for made in found["rows"]:
        if made["figure"] == "times_the_cost":
            expect(made["ours"]["lines"] > 0 and made["peer"]["lines"] > 0, f"{made['what']}: lines are counted")
        lines = [line for line in done.stdout.splitlines() if line.startswith(f"  {made['what']} ")]
        expect(bool(lines), f"{made['what']} is printed")

    done = peers("adamw", "--quick", "--programs", BUILD, "--json", file)
    found = json.loads(file.read_text(encoding="utf-8"))
    left_out = {entry["what"]: entry["why"] for entry in found["left_out"]}
    expect(done.returncode == 1 and "left out: adamw" in done.stdout
           and "--programs installs nothing" in left_out.pop("torch.optim.AdamW"),
           "without PyTorch its rows are left out, with the reason", done.stdout + done.stderr)
    if left_out:
        expect(list(left_out) == ["hand-written AVX2"] and found["rows"] == [], "nor is there AVX2", done.stdout)
    else:
        expect([(made["peer"]["name"], made["elements"], made["target"]) for made in found["rows"]]
               == [("hand-written AVX2", elements, row.at_least(0.97)) for elements in adamw.QUICK_SIZES]
               and all(made["check"]["largest"] <= 1e-6 for made in found["rows"]),
               "the loop by hand is checked and timed", done.stdout + done.stderr)

    done = peers("collectives", "--quick", "--rounds", 1, "--ranks", 2, "--peer", "gloo", "--programs", BUILD,
                 "--json", file)
    found = json.loads(file.read_text(encoding="utf-8"))
    expect(done.returncode == 1 and {made["peer"]["name"] for made in found["rows"]} == {"std::barrier"}
           and found["sides"]["shardkit threads, 2 ranks"]["ranks"] == 2, "collectives without any peer", done.stdout)
    expect({(made["verb"], made["type"], made["ranks"]) for made in found["rows"]}
           == {("barrier", "float", 2), ("all_reduce", "float", 2)}, "rows say verb, type and ranks", done.stdout)


def check_worker_programs():
    """The real workers refuse what they do not know."""
    folder = BUILD / "benchmarks/peers"
    with Worker("threads", [[folder / "peer_threads_collectives", 3]]) as threads:
        expect(threads.facts["ranks"] == 3, "three ranks")
        for verb in collectives.VERBS:
            expect(threads.ask("prepare", "library", verb, 4800)["wrong"] == 0, f"{verb} is right")
            expect(threads.ask("go", "library", 2)["seconds"] > 0, f"{verb} takes time")
        expect_raises(WrongData, ["verb 'scan': expected"], "an unknown verb",
                      lambda: threads.ask("prepare", "library", "scan", 4800))
    with Worker("adamw", [[folder / "peer_adamw", "library"]]) as step, tempfile.TemporaryDirectory() as name:
        step.ask("prepare", 1000)
        expect(step.ask("go", 3)["seconds"] > 0, "AdamW takes time")
        step.ask("dump", pathlib.Path(name) / "values")
        expect((pathlib.Path(name) / "values").stat().st_size == 4000, "as many parameters as asked for")
        expect(step.ask("compare", pathlib.Path(name) / "values") == {"difference": 0.0}, "no difference from itself")
        expect_raises(WrongData, ["command 'walk': expected"], "an unknown command", lambda: step.ask("walk"))
    expect_raises(WrongData, ["argument 'torch': expected library or by_hand"], "an unknown side",
                  lambda: Worker("adamw", [[folder / "peer_adamw", "torch"]]))
    if (folder / "peer_muon").exists():
        check_muon(folder / "peer_muon")
    with Worker("by hand", [[folder / "peer_adamw", "by_hand"]]) as step:
        unavailable = step.facts.get("unavailable")
    if unavailable:
        expect("without AVX2" in unavailable, "a processor without AVX2", unavailable)
    else:
        check_by_hand(folder / "peer_adamw")


def check_muon(program):
    """The same matrices on one rank and on two, to the bit, and the bytes that a rank receives."""
    values = []
    with tempfile.TemporaryDirectory() as name:
        for ranks in (1, 2):
            with Worker("muon", [[program, ranks]], {"OPENBLAS_NUM_THREADS": "1"}) as worker:
                expect(worker.facts["ranks"] == ranks, "as many ranks as asked for")
                worker.ask("prepare", 2, 16)
                found = worker.ask("go", 2)
                elements = 2 * 12 * 16 * 16
                expect(found["seconds"] > 0, "a step takes time")
                expect(found["received"] == 0 if ranks == 1 else 0 < found["received"] <= 4 * elements,
                       "each element goes to its owner and comes back at most", str(found))
                worker.ask("dump", pathlib.Path(name) / "values")
                values.append((pathlib.Path(name) / "values").read_bytes())
                expect(len(values[-1]) == 4 * elements, "as many elements as asked for")
                expect_raises(WrongData, ["command 'walk': expected"], "an unknown command", lambda: worker.ask("walk"))
    expect(values[0] == values[1], "equal bits on one rank and on two")


def check_by_hand(program):
    """The loop by hand agrees with the library's for whole vectors and rests, and its comparison finds what differs."""
    with Worker("library", [[program, "library"]]) as ours, Worker("by hand", [[program, "by_hand"]]) as peer, \
            tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for elements in (1, 7, 8, 1003):
            expect(adamw.check(ours, peer, elements, folder)["largest"] <= 1e-6, f"{elements} elements by hand")
        peer.ask("go", 1)
        ours.ask("dump", folder / "values")
        expect(peer.ask("compare", folder / "values")["difference"] > 1e-4, "a step more is found")
        (folder / "values").write_bytes(b"\xff" * 4 * 1003)
        expect(peer.ask("compare", folder / "values")["difference"] == 1e300, "values that are no numbers are found")
        (folder / "values").write_bytes(bytes(4 * 1004))
        expect_raises(WrongData, ["values': expected a file of 4012 bytes"], "a file of another size",
                      lambda: peer.ask("compare", folder / "values"))


def check_checkpoints_program(folder):
    """What the program saves is there, and loads; whatever differs afterwards is found."""
    words = [BUILD / "benchmarks/peers/peer_checkpoints", 2, 2000]
    with Worker("shardkit", [words]) as ours:
        expect(ours.facts["ranks"] == 2 and ours.facts["bytes"] > 12 * 1000, "ranks and bytes of the state")
        checkpoints.check_ours(ours, folder)
        step = folder / "kept" / checkpoints.STEP
        expect(sorted(path.name for path in step.rglob("*.safetensors"))
               == ["exp_avg.safetensors", "exp_avg_sq.safetensors", "model.safetensors", "scalars.safetensors"]
               and not (folder / "kept_model" / checkpoints.STEP / "state/exp_avg.safetensors").exists(),
               "the state, and the model alone")
        for to in ("disk", "cached"):
            expect(0 < ours.ask("load", to, "state", step)["seconds"] < 60, f"loaded, {to}")
            expect(0 < checkpoints.timed_save(ours, ("save", to, "state"), folder) < 60, f"saved, {to}")
        expect(0 < checkpoints.begun(ours, ("begin_save", "disk", "state"), folder / "timed", "commit") < 60,
               "begun, and committed")
        expect(not (folder / "timed").exists(), "nothing of what was timed is left")
        expect_raises(WrongData, ["expected disk or cached"], "an unknown place", lambda: ours.ask("load", "tape", "state", step))
    with Worker("shardkit", [words]) as ours:
        expect_raises(WrongData, ["expected save, begin_save and then commit"], "a commit of nothing", lambda: ours.ask("commit"))


def check_planted_checkpoints(folder):
    """A peer that gives back other values gets no row, nor the library when it saves other bytes."""
    with fake(save={}, check={"wrong": 3}) as peer:
        expect_raises(WrongData, ["dcp: 3 values differ"], "a planted value that a peer loads",
                      lambda: checkpoints.check_peer(peer, "dcp", "dcp", folder))
    with fake(save={}, check={}) as peer:
        expect_raises(WrongData, ["None values differ"], "a peer that checks nothing",
                      lambda: checkpoints.check_peer(peer, "dcp", "dcp", folder))
    for name, text in (("kept", "a"), ("again", "b")):
        (folder / name / checkpoints.STEP).mkdir(parents=True)
        (folder / name / checkpoints.STEP / "model.safetensors").write_text(text, encoding="utf-8")
    with fake(save={}, again={}) as ours:
        expect_raises(WrongData, ["saved as other bytes"], "a planted byte", lambda: checkpoints.check_ours(ours, folder))
    (folder / "again" / checkpoints.STEP / "model.safetensors").write_text("a", encoding="utf-8")
    (folder / "again" / checkpoints.STEP / "more").touch()
    with fake(save={}, again={}) as ours:
        expect_raises(WrongData, ["saved as other bytes"], "a file more", lambda: checkpoints.check_ours(ours, folder))


def check_checkpoints_rows():
    """What is measured of the library stands beside each peer that it is compared with."""
    report = Report({}, io.StringIO())
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def ask(seconds):
            def answer(verb, *words):
                if verb in ("save", "begin_save"):
                    pathlib.Path(words[-1]).mkdir()
                return {"wrong": 0, "seconds": seconds}
            return types.SimpleNamespace(ask=answer, facts={"bytes": 12, "ranks": 2})

        checkpoints.measure(ask(1.0), ask(2.5), 2, folder, types.SimpleNamespace(rounds=2), report)
    met = {(made["verb"], made["peer"]["name"]): made["met"] for made in report.rows}
    expect(all(made["value"]["median"] == 2.5 and made["rounds"] == 2 for made in report.rows), "times as fast")
    expect({key for key, value in met.items() if value is False}
           == {("save", "PyTorch DCP"), ("save", "PyTorch DCP, no sync"), ("load", "PyTorch DCP, no sync")}
           and len(met) == 10 and set(met.values()) == {False, None}, "aims beside DCP alone", str(met))


def check_reshard():
    """The program moves what it says, each byte once; a side that moves other values gets no row."""
    with Worker("shardkit", [[BUILD / "benchmarks/peers/peer_reshard", 3, 2000]]) as ours:
        numel = 12 * 3 * 840
        expect((ours.facts["ranks"], ours.facts["bytes"]) == (3, 4 * numel), "ranks and bytes of the matrices")
        # Each rank has a third already; of its third of the columns, a third of the rows.
        expect(ours.facts["received_whole"] == 3 * 4 * numel * 2 // 3, "what no rank has already")
        # Shards end on cache lines, not quite where rows do.
        expect(abs(ours.facts["received_columns"] - 4 * numel * 2 // 3) < 4 * numel // 50, "likewise, by columns")
        report = Report({}, io.StringIO())
        reshard.measure(ours, ours, 3, types.SimpleNamespace(rounds=2), report)
        expect([made["what"] for made in report.rows] == ["rows to all of them, 3 ranks", "rows to columns, 3 ranks"]
               and all(made["met"] is None and made["check"]["largest"] == 0 for made in report.rows), "rows")
        expect_raises(WrongData, ["expected reshard or check of whole or columns"], "an unknown form",
                      lambda: ours.ask("reshard", "diagonals"))
    with fake(check={"wrong": 3}) as peer:
        expect_raises(WrongData, ["3 elements differ"], "a planted value", lambda: reshard.check((peer,), "whole"))


def check_adamw_left_out(folder):
    """Each peer of AdamW that cannot be had is left out by itself, with the reason, and fails by itself."""
    program = folder / "no_avx2"
    program.write_text("#!/bin/sh\necho '{\"unavailable\": \"no AVX2\"}'\n", encoding="utf-8")
    program.chmod(0o755)

    def torch_python():
        raise Unavailable("no network")

    def run(python):
        report = Report({}, io.StringIO())
        adamw.run(types.SimpleNamespace(rounds=1, quick=True, setup=types.SimpleNamespace(
            program=lambda name: program, torch_python=python)), report)
        return report

    report = run(torch_python)
    expect([(entry["what"], entry["why"]) for entry in report.left_out]
           == [("hand-written AVX2", "no AVX2"), ("torch.optim.AdamW", "no network")] and report.rows == [],
           "peers of AdamW are left out one by one", str(report.left_out))
    report = run(lambda: "/bin/false")
    expect([(entry["what"], entry["why"]) for entry in report.failed] == [("torch.optim.AdamW", "PyTorch fused: ended")]
           and len(report.left_out) == 1, "one that goes wrong fails alone", str(report.failed))


def main():
    check_refusals()
    check_figures()
    check_workers()
    check_planted()
    check_planted_run()
    check_light_headers()
    check_worker_programs()
    for check in (check_checkpoints_program, check_planted_checkpoints):
        with tempfile.TemporaryDirectory() as name:
            check(pathlib.Path(name))
    check_checkpoints_rows()
    check_reshard()
    with tempfile.TemporaryDirectory() as name, contextlib.suppress(BrokenPipeError):
        check_adamw_left_out(pathlib.Path(name))
        check_runs(pathlib.Path(name))
    end()


main()
