# SPDX-License-Identifier: Apache-2.0
"""Bringing matrices from one share of the ranks to another against PyTorch's DTensor.redistribute: from rows of each rank to
all of them on every rank, and to columns of each rank."""
import contextlib
import pathlib
import tempfile

import row
from refusal import WrongData
from worker import Worker, take_turns, torch_worker

PART = "reshard"
ELEMENTS = 24_000_000
QUICK_ELEMENTS = 500_000
MATRICES, COLUMNS = 12, 840
FORMS = {"whole": "rows to all of them", "columns": "rows to columns"}
PEER = "DTensor.redistribute, gloo"


def check(sides, form):
    """@raise WrongData when a side moves other values than those that it was given"""
    for side in sides:
        wrong = side.ask("check", form).get("wrong")
        if wrong != 0:
            raise WrongData(f"{side.name}: {wrong} elements differ from the source's, {form}")
    return {"what": "elements of both sides that are not the source's", "largest": 0.0, "allowed": 0.0}


def measure(ours, peer, ranks, options, report):
    for form, text in FORMS.items():
        checked = check((ours, peer), form)
        mine, others = take_turns(options.rounds, *[lambda side=side: side.ask("reshard", form).get("seconds")
                                                    for side in (ours, peer)])
        report.add(row.make_row(PART, f"{text}, {ranks} ranks", row.side("shardkit", mine), row.side(PEER, others),
                                "times_faster", [b / a for a, b in zip(mine, others)], None, checked, ranks=ranks,
                                bytes=ours.facts["bytes"], received=ours.facts[f"received_{form}"]))


def run(options, report):
    program = options.setup.program("peer_reshard")
    elements = QUICK_ELEMENTS if options.quick else ELEMENTS
    python = None
    with report.attempt(PART, "PyTorch's DTensor"):
        python = options.setup.torch_python()
    for ranks in options.ranks if python else ():
        with contextlib.ExitStack() as stack:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            with report.attempt(PART, f"{ranks} ranks"):
                ours = stack.enter_context(Worker("shardkit", [[program, ranks, elements]], timeout=600))
                rows = ours.facts["bytes"] // 4 // MATRICES // COLUMNS
                peer = stack.enter_context(torch_worker("PyTorch", python, "torch_reshard.py", MATRICES, rows, COLUMNS,
                                                        ranks=ranks, meeting=folder / "meeting", timeout=600))
                for side in (ours, peer):
                    report.record_side(f"{side.name} reshard", side.with_ranks(ranks).facts, ranks)
                measure(ours, peer, ranks, options, report)
