# SPDX-License-Identifier: Apache-2.0
"""Collectives of the engines against those of MPI implementations, of gloo, and std::barrier."""
import contextlib
import pathlib
import tempfile

import row
from figures import size_text
from refusal import WrongData
from targets import bound_of
from worker import Worker, take_turns, torch_worker

PART = "collectives"
MOST_CALLS = 20000
VERBS = ("all_reduce", "reduce_scatter", "all_gather")
SIZES = (256, 4 << 10, 1 << 20, 8 << 20, 64 << 20)
QUICK_SIZES = (256, 1 << 20)
# It has threads of its own, which bound ranks may leave no room.
GLOO = {"gloo": "pinned", "gloo, not bound": "free"}
MPI_FLAGS = {"openmpi": ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"], "mpich": []}


def calls_for(side, options):
    """Back to back in a turn: as many as fill a part of a second on this side, found by trying."""
    budget = 0.05 if options.quick else 0.25
    calls = 2
    while True:
        seconds = side.go(calls)
        if not isinstance(seconds, (int, float)) or not seconds > 0:
            raise WrongData(f"{side.label}: answered {seconds!r} where seconds are expected")
        if seconds >= budget / 10 or calls >= MOST_CALLS:
            return max(2, min(MOST_CALLS, int(calls * budget / seconds)))
        calls *= 8


def target(verb, size, ranks, peer, processors, ours="shardkit threads"):
    """The project's own aims: see docs/benchmark_results.md."""
    if ours == "shardkit on openmpi":
        small = verb == "all_reduce" and size == 256 and ranks <= processors
        return bound_of("mpi_small_all_reduce_openmpi") if small and peer == "openmpi" else None
    if ours != "shardkit threads":
        return None
    if peer == "openmpi":
        if verb in VERBS and size >= 8 << 20:
            return bound_of(f"{verb}_openmpi")
        return bound_of("small_all_reduce_openmpi") if verb == "all_reduce" and size == 256 else None
    if peer == "std::barrier":
        return bound_of("more_ranks_than_processors") if ranks > processors else None
    return None


class Side:
    """A variant of a worker: what it is called, and what it was told it would run."""

    def __init__(self, label, worker, variant):
        self.label, self.worker, self.variant = label, worker, variant

    def prepare(self, verb, size):
        found = self.worker.ask("prepare", self.variant, verb, size)
        if found.get("wrong") != 0:
            raise WrongData(f"{self.label}: {verb} of {size} bytes: {found.get('wrong')} wrong values")

    def go(self, calls):
        return self.worker.ask("go", self.variant, calls).get("seconds")


def open_sides(stack, options, report, ranks):
    """Starts the workers of all sides; what cannot be had is left out. The first side is the threads engine."""

    def opened(worker):
        return stack.enter_context(worker).with_ranks(ranks)

    threads = opened(Worker("threads engine", [[options.setup.program("peer_threads_collectives"), ranks]]))
    report.record_side("shardkit threads", threads.facts, ranks)
    sides = [Side("shardkit threads", threads, "library"), Side("std::barrier", threads, "std")]
    for mpi in ("openmpi", "mpich"):
        if mpi not in options.peers:
            continue
        with report.attempt(PART, f"{mpi}, {ranks} ranks"):
            launch = [options.setup.launcher(mpi), *MPI_FLAGS[mpi], "-n", ranks,
                      options.setup.program(f"peer_mpi_collectives_{mpi}")]
            compares = opened(Worker(mpi, [[*launch, "compare"]]))
            trusts = opened(Worker(mpi, [[*launch, "trust"]]))
            report.record_side(mpi, {**compares.facts, "launch": " ".join(map(str, [mpi, *MPI_FLAGS[mpi]]))}, ranks)
            sides += [Side(mpi, compares, "raw"), Side(f"shardkit on {mpi}", compares, "library"),
                      Side(f"shardkit on {mpi}, trusting", trusts, "library")]
    if "gloo" in options.peers:
        with report.attempt(PART, f"gloo, {ranks} ranks"):
            python = options.setup.torch_python()
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            for label, placing in GLOO.items():
                gloo = opened(torch_worker(label, python, "torch_collectives.py", placing, ranks=ranks, meeting=folder / placing))
                report.record_side(label, gloo.facts, ranks)
                sides.append(Side(label, gloo, "gloo"))
    return sides


def beside_barrier(verb, size):
    """The smallest all-reduce is little more than a barrier."""
    return verb == "barrier" or verb == "all_reduce" and size == 256


def compared(sides):
    """Which side stands against which; the first of a pair is the library's."""
    by_label = {side.label: side for side in sides}
    ours = by_label["shardkit threads"]
    pairs = [(ours, by_label[label]) for label in ("openmpi", "mpich", *GLOO, "std::barrier") if label in by_label]
    for mpi in ("openmpi", "mpich"):
        for mine in (f"shardkit on {mpi}", f"shardkit on {mpi}, trusting"):
            if mine in by_label:
                pairs.append((by_label[mine], by_label[mpi]))
    return pairs


def measure(sides, verb, size, ranks, options, report):
    """One verb and size on all sides in turns, and a row for each pair."""
    active = [side for side in sides if side.label != "std::barrier" or beside_barrier(verb, size)]
    for side in active:
        side.prepare(verb, size)
    calls = {side.label: calls_for(side, options) for side in active}
    seconds = take_turns(options.rounds, *[lambda side=side: side.go(calls[side.label]) for side in active])
    times = {side.label: [value / calls[side.label] for value in values] for side, values in zip(active, seconds)}
    name = f"{verb}, {ranks} ranks" if verb == "barrier" else f"{verb} {size_text(size)}, {ranks} ranks"
    for ours, peer in compared(active):
        values = [b / a for a, b in zip(times[ours.label], times[peer.label])]
        aim = target(verb, size, ranks, peer.label, options.processors, ours.label)
        report.add(row.make_row(
            PART, name, row.side(ours.label, times[ours.label], calls=calls[ours.label]),
            row.side(peer.label, times[peer.label], calls=calls[peer.label]),
            "times_faster", values, aim, {"what": "every element of every rank, exactly", "wrong": 0}, ranks=ranks,
            size=size, verb=verb, type="float"))


def run(options, report):
    sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
    for ranks in options.ranks:
        with contextlib.ExitStack() as stack:
            sides = open_sides(stack, options, report, ranks)
            measure(sides, "barrier", 0, ranks, options, report)
            for verb in VERBS:
                for size in sizes:
                    measure(sides, verb, size, ranks, options, report)
