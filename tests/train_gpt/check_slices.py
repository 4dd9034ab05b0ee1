# SPDX-License-Identifier: Apache-2.0
"""check_slices.py PROGRAM [--cut] [-- LAUNCHER...]: train_gpt --slices saves the same bytes, and has the same losses and
norms, on any number of ranks, under every policy and engine. Each configuration is compared with its run on one rank. So it
does with experts, shared by any number of them. A run whose checkpoints move from 8 ranks to 2 and to 4 ends as the one that
stays on one. LAUNCHER starts processes, for --engine mpi. --cut: a few of the configurations.
"""
import argparse
import hashlib
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

POLICIES = ("no_shard", "shard_optimizer", "shard_grad_op", "full_shard", "hybrid_shard:2", "hybrid_optimizer:2", "secondary_shard:2")
# The width is odd, and so is the number of layers: shards end within parameters, and have padding.
ODD = ["--batch", "16", "--sequence", "9", "--layers", "3", "--width", "21", "--heads", "3", "--head", "untied"]
EVEN = ["--batch", "16", "--sequence", "8", "--layers", "2", "--width", "16", "--heads", "2"]
SLICES = ["--slices", "8"]
wrong = []


class Program:
    def __init__(self, path, launcher, folder):
        self.path, self.launcher, self.folder = str(path), launcher, folder

    def run(self, ranks, *flags, engine="threads"):
        """What the run reports, without what differs between meshes."""
        words = [self.path, "--mesh", f"{ranks}x1x1", "--engine", engine, "--json", "report.json", "--text", "text", *SLICES, *flags]
        saved = flags[flags.index("--save") + 1] if "--save" in flags else "end"
        if "--save" not in flags:
            words += ["--save", saved]
        if engine == "mpi":
            words = [*self.launcher, "-n", str(ranks), *words]
        done = subprocess.run(words, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=600, check=False)
        if done.returncode != 0:
            return f"ended with {done.returncode}: {(done.stdout + done.stderr).decode(errors='replace')[-2000:]}"
        report = json.loads((self.folder / "report.json").read_text(encoding="utf-8"))
        # The same state is saved in the same bytes.
        newest = max((self.folder / saved).glob("step-*"))
        state = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(newest.glob("*.safetensors")))).hexdigest()
        if "--save" not in flags:
            shutil.rmtree(self.folder / saved)
        return {"state": state, "losses": report["losses"], "grad_norms": report["grad_norms"]}


def expect(same, what, *shown):
    print(("ok: " if same else "WRONG: ") + what, flush=True)
    if not same:
        wrong.append(what)
        for each in shown:
            print("  ", each)


def configurations(cut):
    """Flags that change the numbers."""
    models = {"odd": ODD, "even": EVEN}
    optimizers = ("adamw", "lion", "muon")
    everything = itertools.product(models, ("fp32", "bf16"), ("1", "0"), optimizers)
    few = (("odd", "fp32", "1", "adamw"), ("odd", "bf16", "1", "lion"), ("even", "bf16", "0", "muon"))
    for model, dtype, clip, optimizer in few if cut else everything:
        yield (f"{model} {dtype} --clip {clip} {optimizer}",
               [*models[model], "--dtype", dtype, "--clip", clip, "--optimizer", optimizer])


def worlds(cut, mpi):
    """(ranks, policy, engine), without the run that all are compared with."""
    if cut:
        places = [(ranks, policy) for ranks, policy in ((1, "full_shard"), (2, "no_shard"), (2, "shard_optimizer"),
                                                        (4, "hybrid_shard:2"), (8, "shard_grad_op"))]
    else:
        places = [(ranks, policy) for ranks in (1, 2, 4, 8) for policy in POLICIES
                  if (ranks, policy) != (1, "no_shard") and (ranks > 1 or not policy.endswith(":2"))]
    for ranks, policy in places:
        yield ranks, policy, "threads"
        if mpi and (not cut or ranks == 4):
            yield ranks, policy, "mpi"


def check_worlds(program, cut):
    steps = ["--steps", "8" if cut else "30"]
    hashes = {}
    for what, flags in configurations(cut):
        expected = program.run(1, *steps, *flags, "--policy", "no_shard")
        expect(isinstance(expected, dict), f"{what}: trains on one rank", expected)
        if not isinstance(expected, dict):
            continue
        hashes.setdefault(expected["state"], []).append(what)
        for ranks, policy, engine in worlds(cut, program.launcher):
            found = program.run(ranks, *steps, *flags, "--policy", policy, engine=engine)
            expect(found == expected, f"{what}: {ranks} ranks, {policy}, {engine}", expected, found)
    expect(len(hashes) == sum(1 for _ in configurations(cut)), f"each configuration has its own state: {hashes}")
    plain = program.run(2, *steps, *EVEN, "--policy", "no_shard")
    other = program.run(2, *steps, *EVEN, "--policy", "no_shard", "--seed", "2")
    expect(plain != other, "another seed has another state", plain, other)


def check_moves(program, cut):
    """From 8 ranks to 2 and to 4, under another policy each time."""
    for optimizer in ("adamw", "muon") if cut else ("adamw", "lion", "muon"):
        flags = [*ODD, "--dtype", "bf16", "--optimizer", optimizer]
        whole = program.run(1, "--steps", "12", *flags, "--policy", "no_shard")
        saved = f"saved-{optimizer}"
        parts = [program.run(ranks, "--steps", steps, *flags, "--policy", policy, "--save", saved, "--resume", saved)
                 for ranks, steps, policy in ((8, "4", "full_shard"), (2, "8", "shard_optimizer"), (4, "12", "hybrid_shard:2"))]
        losses = [loss for part in parts if isinstance(part, dict) for loss in part["losses"]]
        expect(isinstance(whole, dict) and losses == whole["losses"] and parts[-1]["state"] == whole["state"],
               f"{optimizer}: 8, then 2, then 4 ranks end as 1 does", whole, parts)


def check_experts(program, cut):
    """One state for every ep, and for a run that moves from one to another."""
    steps = "6" if cut else "20"
    for what, more in (("any number of rows", []), ("a capacity, in fp64", ["--capacity", "5", "--dtype", "fp64"])):
        flags = [*EVEN, "--experts", "4", "--top", "2", *more]
        expected = program.run(1, "--steps", steps, *flags, "--policy", "no_shard")
        expect(isinstance(expected, dict) and expected["losses"][-1] < expected["losses"][0], f"experts, {what}: the loss falls",
               expected)
        places = [(4, 4, "no_shard"), (4, 2, "full_shard"), (8, 4, "hybrid_shard:4")]
        if not cut:
            places += [(ranks, ep, policy) for ranks in (2, 4, 8) for ep in (1, 2, 4) for policy in POLICIES
                       if ep <= ranks and (ep < 4 or not policy.endswith(":2"))]
        for ranks, ep, policy in places:
            for engine in ("threads", "mpi") if program.launcher and (ranks, ep) == (4, 2) else ("threads",):
                found = program.run(ranks, "--steps", steps, *flags, "--policy", policy, "--ep", str(ep), engine=engine)
                expect(found == expected, f"experts, {what}: {ranks} ranks, {policy}, ep {ep}, {engine}", expected, found)
        saved = "saved-experts-" + str(len(more))
        parts = [program.run(ranks, "--steps", str(until), *flags, "--policy", "full_shard", "--ep", str(ep), "--save", saved,
                             "--resume", saved) for ranks, until, ep in ((4, 2, 4), (8, 4, 2), (1, steps, 1))]
        expect(isinstance(parts[-1], dict) and parts[-1]["state"] == expected["state"],
               f"experts, {what}: ep 4, then 2, then 1 ends as 1 does", expected, parts)


def check_refusals(program):
    def refused(said, ranks, *flags):
        found = program.run(ranks, "--steps", "1", *flags)
        expect(isinstance(found, str) and said in found, f"refused: {said}", found)

    refused("--microbatches with --slices: expected one of them", 2, *EVEN, "--microbatches", "2")
    refused("expected data-parallel ranks that are a power of two and divide them", 16, *EVEN)
    refused("--batch 12: expected a multiple of --slices 8", 2, "--batch", "12")
    saved = program.run(2, "--steps", "2", *EVEN, "--save", "sliced")
    expect(isinstance(saved, dict), "a step is saved", saved)
    done = subprocess.run([program.path, "--steps", "4", "--text", "text", *EVEN, "--resume", "sliced"], cwd=program.folder,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    expect(done.returncode == 2 and b"saved by a run with --slices 8, this one has --slices 0" in done.stderr,
           "a run of slices goes on with slices", done.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--cut", action="store_true")
    given = sys.argv[1:]
    at = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:at])
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="shardkit-slices-") as name:
        # A text of its own: this repository's may change while the runs last.
        (pathlib.Path(name) / "text").write_bytes(pathlib.Path(__file__).read_bytes())
        program = Program(options.program.resolve(), given[at + 1:], pathlib.Path(name).resolve())
        check_refusals(program)
        check_worlds(program, options.cut)
        check_moves(program, options.cut)
        check_experts(program, options.cut)
    print(f"{len(wrong)} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
