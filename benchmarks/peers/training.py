# SPDX-License-Identifier: Apache-2.0
"""A training step of the GPT example against PyTorch on gloo: the same model, first values, data, type and threads; and
against the step's matrix products alone."""
import contextlib
import json
import pathlib
import tempfile

import row
from refusal import Unavailable, WrongData
from targets import bound_of
from worker import finished, take_turns, torch_worker

PART = "training"
POLICIES = ("no_shard", "shard_optimizer", "shard_grad_op", "full_shard", "hybrid_shard")
PEERS = {"no_shard": "DDP", "shard_optimizer": "DDP + ZeroRedundancyOptimizer", "shard_grad_op": "FSDP2, no reshard",
         "full_shard": "FSDP2", "hybrid_shard": "FSDP2, 2D mesh"}
# By their parameters.
MODELS = {
    "0.8M": {"sequence": 64, "layers": 4, "width": 128, "heads": 4, "batch": 16},
    "19M": {"sequence": 128, "layers": 6, "width": 512, "heads": 8, "batch": 8},
    "85M": {"sequence": 128, "layers": 12, "width": 768, "heads": 12, "batch": 4},
}
STEPS = {"0.8M": 20, "19M": 4, "85M": 2}  # of a turn
LARGE = ("19M", "85M")  # whose step is mostly products
LARGE_POLICIES = ("no_shard", "full_shard")
LARGE_ROUNDS = 5
# train_gpt's own defaults, given to both sides all the same.
TRAINING = {"seed": 1, "learning_rate": 1e-3, "weight_decay": 0.01, "clip": 1.0}
PRODUCTS = "its matrix products alone"
SCRIPT = "torch_training.py"
DEFAULT_SCHEDULE = "auto"  # train_gpt's own
CHECKED_STEPS = 6
ALLOWED = 1e-3
# FSDP2 and DDP on two ranks are what the project wants to beat.
BEATEN = ("no_shard", "shard_grad_op", "full_shard")


def text_bytes(root):
    """What both sides train on: the repository's pages."""
    return b"".join(path.read_bytes() for path in sorted((root / "docs").glob("*.md")))


def policies_for(ranks, asked):
    """hybrid_shard needs ranks to share out twice."""
    return [f"{policy}:{ranks // 2}" if policy == "hybrid_shard" else policy for policy in asked
            if policy != "hybrid_shard" or ranks >= 4 and ranks % 2 == 0]


def train_gpt_command(program, config, policy, ranks, steps, report, schedule):
    return [str(program), "--engine", "threads", "--mesh", f"{ranks}x1x1", "--policy", policy, "--dtype", "fp32",
            "--steps", str(steps), "--batch", str(config["batch"]), "--sequence", str(config["sequence"]),
            "--layers", str(config["layers"]), "--width", str(config["width"]), "--heads", str(config["heads"]),
            "--optimizer", config.get("optimizer", "adamw"), "--lr", repr(config["learning_rate"]),
            "--weight-decay", repr(config["weight_decay"]), "--clip", repr(config["clip"]),
            "--schedule", schedule, "--seed", str(config["seed"]), "--text", config["text"], "--json", str(report)]


def train_gpt(program, config, policy, ranks, steps, folder, schedule=DEFAULT_SCHEDULE, environment=()):
    """A run of its own; gives its JSON."""
    file = folder / "train_gpt.json"
    finished(f"train_gpt {policy}", train_gpt_command(program, config, policy, ranks, steps, file, schedule),
             {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **dict(environment)})
    found = json.loads(file.read_text(encoding="utf-8"))
    if found["world"] != ranks or found["policy"] != policy or len(found["losses"]) != steps:
        raise WrongData(f"train_gpt has run {found['policy']} on {found['world']} ranks for {len(found['losses'])} "
                        f"steps, asked for {policy}, {ranks} and {steps}")
    return found


def same_run(runs, what):
    """The first of train_gpt's runs by their schedule.
    @raise WrongData unless all of them have its losses and norms, to the bit"""
    (first, right), *others = runs.items()
    for schedule, found in others:
        for member in ("losses", "grad_norms"):
            if found[member] != right[member]:
                raise WrongData(f"{what}: {member} of train_gpt with --schedule {schedule} are {found[member]}, with "
                                f"--schedule {first} {right[member]}")
    return right


def noted_products(program, library, config, policy, ranks, folder):
    """What products.cpp writes of the products of one step, made once more as the ranks made them, and of nothing else."""
    file = folder / "products.json"
    file.unlink(missing_ok=True)
    found = train_gpt(program, config, policy, ranks, 1, folder,
                      environment={"LD_PRELOAD": str(library), "SHARDKIT_PRODUCTS": str(file)})
    if not file.exists():
        raise WrongData("train_gpt has ended without its matrix products alone")
    made = json.loads(file.read_text(encoding="utf-8"))
    expected = ranks * (found["multiply_adds_of_layers"] + found["multiply_adds_of_attention"]["most"])
    if made["threads"] != ranks or made["multiply_adds"] != expected:
        raise WrongData(f"{made['threads']} threads have made {made['multiply_adds']} multiply-adds of matrix products "
                        f"alone, {ranks} ranks of train_gpt {expected}")
    return made


def largest_difference(ours, peer):
    """Relative to the value; of lists that are of one length and finite."""
    if len(ours) != len(peer) or not all(isinstance(x, float) and abs(x) < float("inf") for x in [*ours, *peer]):
        return float("inf")
    return max(abs(a - b) / max(abs(a), 1e-12) for a, b in zip(ours, peer))


def check(found, peer, what):
    """Losses and norms of the two sides, step by step.
    @raise WrongData when they are not those of one training run"""
    answer = peer.ask("check", CHECKED_STEPS)
    largest = {}
    for member in ("losses", "grad_norms"):
        largest[member] = largest_difference(found[member], answer.get(member, []))
        if not largest[member] <= ALLOWED:
            raise WrongData(f"{what}: {member} of {peer.name} and train_gpt differ by {largest[member]:g}, more than "
                            f"{ALLOWED:g}: {answer.get(member)} and {found[member]}")
    return {"what": f"losses and gradient norms of {CHECKED_STEPS} steps, largest relative difference",
            "largest": max(largest.values()), "allowed": ALLOWED}


class Files:
    """What both sides read, in a folder."""

    def __init__(self, folder, options, shape):
        self.folder = folder
        self.config = {**shape, **TRAINING, "text": str(folder / "text"), "pinned": False}
        (folder / "text").write_bytes(text_bytes(options.setup.root))
        self.config_file = folder / "config.json"
        self.config_file.write_text(json.dumps(self.config), encoding="utf-8")
        self.values = folder / "values.pt"

    def make_values(self, python):
        script = pathlib.Path(__file__).with_name(SCRIPT)
        finished("PyTorch's side cannot make its first values", [python, "-B", script, "values", self.config_file, self.values],
                 failed=Unavailable)


def measure(python, program, model, policy, ranks, files, options, report):
    """One policy: both forms of PyTorch's side checked, then all sides in turns, train_gpt with each schedule."""
    steps = 5 if options.quick else STEPS[model]
    what = f"GPT step, {model}, {policy}, {ranks} ranks"
    peer_name = PEERS[policy.partition(":")[0]]
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(options.setup.folder / "inductor")}
    details = {"ranks": ranks, "policy": policy, "steps": steps, "model": model, **MODELS[model], "dtype": "fp32"}
    found = same_run({schedule: train_gpt(program, files.config, policy, ranks, CHECKED_STEPS, files.folder, schedule)
                      for schedule in options.schedules}, what)
    report.record_side(f"BLAS of train_gpt, {model}", found["blas"])
    with contextlib.ExitStack() as stack:
        peers = []
        for form in options.compile if python else ():
            name = f"{peer_name}, compiled" if form == "compile" else peer_name
            meeting = files.folder / f"meeting_{policy.replace(':', '_')}_{ranks}_{form}"
            with report.attempt(PART, f"{what}, {name}"):
                peer = stack.enter_context(torch_worker(
                    name, python, SCRIPT, "train", files.config_file, files.values, policy, form, ranks=ranks, meeting=meeting,
                    environment=environment, timeout=600)).with_ranks(ranks)
                checked = check(found, peer, what)
                report.record_side(f"PyTorch {name}", peer.facts, ranks)
                peers.append((peer, checked))
        sides = [lambda peer=peer: peer.ask("go", steps).get("seconds") / steps for peer, _ in peers]
        library = options.setup.products() if ranks <= options.processors else None
        if library:
            sides.append(lambda: noted_products(program, library, files.config, policy, ranks, files.folder)["seconds"])
        if not sides:
            return

        def ours(schedule):
            tokens = files.config["batch"] * files.config["sequence"]
            run_of = train_gpt(program, files.config, policy, ranks, steps + 1, files.folder, schedule)
            return tokens / run_of["tokens_per_second"]

        rounds = min(options.rounds, LARGE_ROUNDS) if model in LARGE else options.rounds
        times_of = take_turns(rounds, *(lambda schedule=schedule: ours(schedule) for schedule in options.schedules), *sides)
        others = times_of[len(options.schedules):]
        for schedule, mine in zip(options.schedules, times_of):
            titled = what + ("" if schedule == DEFAULT_SCHEDULE else f", --schedule {schedule}")
            of_row = {**details, "schedule": schedule}
            for (peer, checked), times in zip(peers, others):
                aim = bound_of("training_fsdp2") if ranks == 2 and policy in BEATEN else None
                report.add(row.make_row(
                    PART, titled, row.side("train_gpt", mine), row.side(peer.name, times), "times_faster",
                    [b / a for a, b in zip(mine, times)], aim, checked, **of_row))
            if library:
                aim = bound_of("training_products") if ranks == 2 and model in LARGE else None
                report.add(row.make_row(
                    PART, titled, row.side("train_gpt", mine), row.side(PRODUCTS, others[-1]), "share",
                    [b / a for a, b in zip(mine, others[-1])], aim, None, **of_row))


def policies_of(model, ranks, asked):
    """Of a large model on more ranks than two, and of its other policies, nothing new is learned in its minutes."""
    if model in LARGE:
        return [policy for policy in LARGE_POLICIES if policy in asked] if ranks == 2 else []
    return policies_for(ranks, asked)


def run(options, report):
    python = None
    with report.attempt(PART, "FSDP2 and DDP on gloo"):
        python = options.setup.torch_python()
    if not python and not options.setup.products():
        return
    program = options.setup.train_gpt()
    for model in options.models:
        with tempfile.TemporaryDirectory() as name:
            files = Files(pathlib.Path(name), options, MODELS[model])
            if python:
                files.make_values(python)
            report.record_side(f"train_gpt, {model}", {
                "flags": options.setup.flags_of_train_gpt, "pinned": False, "threads": 1,
                "command": " ".join(["train_gpt", *train_gpt_command("", {**files.config, "text": "TEXT"}, "POLICY",
                                                                     "N", "STEPS", "FILE",
                                                                     "SCHEDULE")[1:]])})
            for ranks in options.ranks:
                for policy in policies_of(model, ranks, options.policies):
                    with report.attempt(PART, f"{model}, {policy}, {ranks} ranks"):
                        measure(python, program, model, policy, ranks, files, options, report)
