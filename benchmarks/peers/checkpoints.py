# SPDX-License-Identifier: Apache-2.0
"""Saving and loading a state of parameters and two moments against PyTorch: its distributed checkpoints (DCP), its
writer of Hugging Face files with consolidation, torch.save and safetensors.torch."""
import contextlib
import filecmp
import pathlib
import shutil
import tempfile

import row
from refusal import WrongData
from targets import bound_of
from worker import Worker, take_turns, torch_worker

PART = "checkpoints"
# 12 bytes each: fp32 parameters and two moments of AdamW.
ELEMENTS = 124_000_000
QUICK_ELEMENTS = 1_000_000
DCP = "PyTorch DCP"
# Name, form as torch_checkpoints.py calls it, and what of the library is measured beside it: where the bytes go, and
# what is saved. Files of Hugging Face hold the model alone; whoever does not sync leaves bytes in the page cache.
PEERS = ((DCP, "dcp", "disk", "state"), (f"{DCP}, no sync", "dcp_no_sync", "cached", "state"),
         ("HF writer, consolidated", "hf", "disk", "model"), ("torch.save, one process", "torch", "cached", "state"),
         ("safetensors, one process", "safetensors", "cached", "state"))
STEP = "step-00000001"


def same_files(a, b):
    """Whether two folders hold the same files, byte for byte."""
    names = [sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file()) for folder in (a, b)]
    return names[0] == names[1] and all(filecmp.cmp(a / name, b / name, shallow=False) for name in names[0])


def check_ours(ours, folder):
    """What is loaded into another model is saved as the same bytes. The state stays in folder/kept.
    @raise WrongData when it is not"""
    ours.ask("save", "disk", "state", folder / "kept")
    ours.ask("save", "disk", "model", folder / "kept_model")
    ours.ask("again", folder / "kept" / STEP, folder / "again")
    if not same_files(folder / "kept" / STEP, folder / "again" / STEP):
        raise WrongData("shardkit: what was loaded is saved as other bytes")
    shutil.rmtree(folder / "again")


def check_peer(peer, form, what, folder):
    """The peer keeps what it was given: the state that the library has saved. It stays in folder/FORM.
    @raise WrongData when values differ"""
    peer.ask("save", form, folder / form)
    wrong = peer.ask("check", form, folder / form).get("wrong")
    if wrong != 0:
        raise WrongData(f"{what}: {wrong} values differ from the library's after a load")
    return {"what": "values of the library's files, saved and loaded by the peer, that differ", "largest": 0.0,
            "allowed": 0.0}


def timed_save(side, words, folder):
    """Into a folder that is not there; what was written is gone before another side is measured."""
    target = folder / "timed"
    seconds = side.ask(*words, target).get("seconds")
    shutil.rmtree(target)
    return seconds


def begun(side, words, target, end):
    """The seconds until a save in the background is begun."""
    seconds = side.ask(*words, target).get("seconds")
    side.ask(end)
    shutil.rmtree(target)
    return seconds


def aim_of(verb, peer):
    """Of saving and loading beside DCP; how soon a save is begun has none."""
    return bound_of(f"checkpoint_{verb}_dcp") if verb in ("save", "load") and peer.startswith(DCP) else None


def add_rows(report, what, seconds, peers, checks, verb, **details):
    """seconds: the library's and each peer's."""
    mine, *others = seconds
    for name, check, times in zip(peers, checks, others):
        report.add(row.make_row(PART, what, row.side("shardkit", mine), row.side(name, times), "times_faster",
                                [b / a for a, b in zip(mine, times)], aim_of(verb, name), check, verb=verb, **details))


def measure(ours, peer, ranks, folder, options, report):
    """Everything in turns: the library once for what it is compared with."""
    checks = {form: check_peer(peer, form, name, folder) for name, form, _, _ in PEERS}
    details = {"ranks": ranks, "bytes": ours.facts["bytes"]}
    for to, state in dict.fromkeys((to, state) for _, _, to, state in PEERS):
        chosen = [(name, form) for name, form, peer_to, peer_state in PEERS if (peer_to, peer_state) == (to, state)]
        names, found = [name for name, _ in chosen], [checks[form] for _, form in chosen]
        of_what = f"{state}, {ranks} ranks"
        where = "to the disk" if to == "disk" else "into the page cache"
        seconds = take_turns(options.rounds, lambda: timed_save(ours, ("save", to, state), folder), *[
            lambda form=form: timed_save(peer, ("save", form), folder) for _, form in chosen])
        add_rows(report, f"save {where}, {of_what}", seconds, names, found, "save", **details)
        if to == "disk" and state == "state":
            continue  # a load asks not how durable its files are
        kept = folder / ("kept" if state == "state" else "kept_model") / STEP
        seconds = take_turns(options.rounds, lambda: ours.ask("load", to, state, kept).get("seconds"), *[
            lambda form=form: peer.ask("load", form, folder / form).get("seconds") for _, form in chosen])
        add_rows(report, f"load, warm, {of_what}", seconds, names, found, "load", **details)
    seconds = take_turns(options.rounds, lambda: begun(ours, ("begin_save", "disk", "state"), folder / "timed", "commit"),
                         lambda: begun(peer, ("begin_save",), folder / "timed", "commit"))
    add_rows(report, f"until a save beside a step is begun, {ranks} ranks", seconds, [f"{DCP}, async_save"], [checks["dcp"]],
             "begin_save", **details)


def run(options, report):
    program = options.setup.program("peer_checkpoints")
    elements = QUICK_ELEMENTS if options.quick else ELEMENTS
    python = None
    with report.attempt(PART, "PyTorch's checkpoints"):
        python = options.setup.torch_python()
    for ranks in options.ranks if python else ():
        with contextlib.ExitStack() as stack:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            with report.attempt(PART, f"{ranks} ranks"):
                ours = stack.enter_context(Worker("shardkit", [[program, ranks, elements]], timeout=600))
                check_ours(ours, folder)
                peer = stack.enter_context(torch_worker(
                    "PyTorch", python, "torch_checkpoints.py", folder / "kept" / STEP, ranks=ranks, meeting=folder / "meeting",
                    timeout=600))
                for side in (ours, peer):
                    report.record_side(f"{side.name} checkpoints", side.with_ranks(ranks).facts, ranks)
                measure(ours, peer, ranks, folder, options, report)
