# SPDX-License-Identifier: Apache-2.0
"""The optimizer's step of Muon for the matrices of a GPT, against torch.optim.Muon: on one rank, and on ranks that shard
them, where users of FSDP2 gather every matrix on every rank."""
import contextlib
import pathlib
import tempfile

import row
import training
from refusal import WrongData
from worker import Worker, take_turns, torch_worker

PART = "muon"
# Layers and width of training's models.
MODELS = {"0.8M": (4, 128), "19M": (6, 512)}
STEPS = {"0.8M": 20, "19M": 2}
MOST_ROUNDS = 5
CHECKED_STEPS = 3
# bf16 has three digits, of which five products of products leave fewer.
ALLOWED = {"fp32": 1e-4, "bf16": 5e-2}


def check(ours, peer, form, shape, folder):
    """Both take the same steps from the same numbers; how far they end from each other."""
    for side in (ours, peer):
        side.ask("prepare", *shape)
        side.ask("go", CHECKED_STEPS)
    file = folder / "matrices"
    ours.ask("dump", file)
    difference = peer.ask("compare", file).get("difference")
    file.unlink(missing_ok=True)
    if not isinstance(difference, float) or not difference <= ALLOWED[form]:
        raise WrongData(f"Muon after {CHECKED_STEPS} steps: {peer.name} differs from shardkit by {difference} of the largest "
                        f"element, more than {ALLOWED[form]:g}")
    return {"what": f"matrices after {CHECKED_STEPS} steps, largest difference over the largest element",
            "largest": difference, "allowed": ALLOWED[form]}


def compare(program, python, model, ranks, folder, options, report):
    name = "torch.optim.Muon" if ranks == 1 else "FSDP2, full gathers"
    environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(Worker("shardkit Muon", [[program, ranks]], environment, timeout=600)).with_ranks(ranks)
        report.record_side("shardkit Muon", ours.facts, ranks)
        peers = []
        for form in ALLOWED:
            with report.attempt(PART, f"{model}, {ranks} ranks, {form}"):
                peer = stack.enter_context(torch_worker(
                    f"{name}, {form}", python, "torch_muon.py", form, ranks=ranks, meeting=folder / f"{model}_{ranks}_{form}",
                    timeout=600)).with_ranks(ranks)
                report.record_side(peer.name, peer.facts, ranks)
                peers.append((peer, check(ours, peer, form, MODELS[model], folder)))
        steps = 2 if options.quick else STEPS[model]
        received = {}

        def seconds_of(side):
            found = side.ask("go", steps)
            received[side.name] = found.get("received")
            return found.get("seconds") / steps

        sides = [ours, *(peer for peer, _ in peers)]
        mine, *others = take_turns(min(options.rounds, MOST_ROUNDS), *(lambda side=side: seconds_of(side) for side in sides))
        for (peer, checked), times in zip(peers, others):
            report.add(row.make_row(
                PART, f"Muon's step, {model}, {ranks} rank{'s' if ranks > 1 else ''}",
                row.side(ours.name, mine, received=received[ours.name]), row.side(peer.name, times, received=received[peer.name]),
                "times_faster", [b / a for a, b in zip(mine, times)], None, checked, model=model, ranks=ranks, steps=steps))


def compare_training(python, model, ranks, folder, options, report):
    """Whole steps of the GPT example, whose losses must be the same."""
    name = "DDP, torch.optim.Muon, fp32"
    what = f"GPT step with Muon, {model}, {ranks} ranks"
    files = training.Files(folder, options, {**training.MODELS[model], "optimizer": "muon"})
    files.make_values(python)
    program = options.setup.train_gpt()
    steps = training.STEPS[model]

    def ours(count):
        return training.train_gpt(program, files.config, "full_shard", ranks, count, folder)

    with torch_worker(name, python, training.SCRIPT, "train", files.config_file, files.values, "no_shard", "eager", ranks=ranks,
                      meeting=folder / f"meeting_{model}_{ranks}", timeout=600) as peer:
        checked = training.check(ours(training.CHECKED_STEPS), peer.with_ranks(ranks), what)
        report.record_side(peer.name, peer.facts, ranks)
        tokens = files.config["batch"] * files.config["sequence"]
        mine, others = take_turns(min(options.rounds, MOST_ROUNDS), lambda: tokens / ours(steps + 1)["tokens_per_second"],
                                  lambda: peer.ask("go", steps).get("seconds") / steps)
    report.add(row.make_row(PART, what, row.side("train_gpt", mine), row.side(name, others), "times_faster",
                            [b / a for a, b in zip(mine, others)], None, checked, model=model, ranks=ranks, steps=steps))


def run(options, report):
    program = options.setup.program("peer_muon")
    python = options.setup.torch_python()
    with tempfile.TemporaryDirectory() as name:
        for model in MODELS:
            if model not in options.models:
                continue
            for ranks in (1, *options.ranks):
                with report.attempt(PART, f"{model}, {ranks} ranks"):
                    compare(program, python, model, ranks, pathlib.Path(name), options, report)
            with report.attempt(PART, f"training, {model}"):
                compare_training(python, model, min(options.ranks), pathlib.Path(name), options, report)
