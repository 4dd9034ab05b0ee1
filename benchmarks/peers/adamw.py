# SPDX-License-Identifier: Apache-2.0
"""AdamW on the host against a loop written by hand, and against PyTorch's fused and foreach optimizers, one thread
each."""
import contextlib
import pathlib
import tempfile

import row
from refusal import Unavailable, WrongData
from targets import bound_of
from worker import Worker, take_turns, torch_worker

PART = "adamw"
# 28 bytes an element are read and written: a core's cache, the machine's cache, and memory.
SIZES = (32 << 10, 512 << 10, 16 << 20)
QUICK_SIZES = (32 << 10, 1 << 20)
CHECKED_STEPS = 10
ALLOWED = 1e-6
BY_HAND = "hand-written AVX2"
TARGETS = {BY_HAND: bound_of("adamw_by_hand"), "PyTorch fused": bound_of("adamw_pytorch")}
FORMS = ("fused", "foreach")


def steps_for(elements):
    return max(1, min(2000, (64 << 20) // (elements * 28)))


def check(ours, peer, elements, folder):
    """Both take the same steps from the same numbers; how far they end from each other."""
    for side in (ours, peer):
        side.ask("prepare", elements)
        side.ask("go", CHECKED_STEPS)
    file = folder / "parameters"
    ours.ask("dump", file)
    difference = peer.ask("compare", file).get("difference")
    file.unlink(missing_ok=True)
    if not isinstance(difference, float) or not difference <= ALLOWED:
        raise WrongData(f"AdamW of {elements} elements after {CHECKED_STEPS} steps: {peer.name} differs from shardkit "
                        f"by {difference} of the largest parameter, more than {ALLOWED:g}")
    return {"what": f"parameters after {CHECKED_STEPS} steps, largest difference over the largest value",
            "largest": difference, "allowed": ALLOWED}


def compare(ours, peers, elements, folder, options, report):
    """One size: checked against each peer, then all in turns."""
    checks = [check(ours, peer, elements, folder) for peer in peers]
    steps = steps_for(elements)
    seconds = take_turns(options.rounds, *[lambda side=side: side.ask("go", steps).get("seconds")
                                           for side in (ours, *peers)])
    mine, *others = [[value / steps for value in values] for values in seconds]
    for peer, found, times in zip(peers, checks, others):
        report.add(row.make_row(
            PART, f"AdamW, {elements} elements fp32", row.side(ours.name, mine), row.side(peer.name, times),
            "times_faster", [b / a for a, b in zip(mine, times)], TARGETS.get(peer.name), found, elements=elements,
            bytes=28 * elements, steps=steps))


def by_hand(program, stack):
    """@raise Unavailable where the program was compiled for a processor without AVX2"""
    side = stack.enter_context(Worker(BY_HAND, [[program, "by_hand"]]))
    if "unavailable" in side.facts:
        raise Unavailable(side.facts["unavailable"])
    return [side]


def torch(options, stack):
    """@raise Unavailable where PyTorch cannot be had"""
    python = options.setup.torch_python()
    return [stack.enter_context(torch_worker(f"PyTorch {form}", python, "torch_adamw.py", form)) for form in FORMS]


def run(options, report):
    program = options.setup.program("peer_adamw")
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        peers = []
        for name, start in ((BY_HAND, lambda: by_hand(program, stack)),
                            ("torch.optim.AdamW", lambda: torch(options, stack))):
            with report.attempt(PART, name):
                peers += start()
        if not peers:
            return
        ours = stack.enter_context(Worker("shardkit AdamW", [[program, "library"]]))
        for side in (ours, *peers):
            report.record_side(side.name, side.facts)
        for elements in QUICK_SIZES if options.quick else SIZES:
            compare(ours, peers, elements, folder, options, report)
