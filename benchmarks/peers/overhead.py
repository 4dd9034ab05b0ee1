# SPDX-License-Identifier: Apache-2.0
"""What the verbs of a Sharded cost over the engine calls that they come down to: time, and instructions."""
import json
import re

import row
from collectives import MPI_FLAGS
from figures import size_text
from refusal import WrongData
from targets import bound_of
from worker import finished

PART = "overhead"
# What figures have targets, by their names.
TARGETS = {"ns_per_verb": "verb_nanoseconds", "ns_per_operation": "operation_nanoseconds",
           "ns_per_call": "recorded_nanoseconds", "instructions_per_verb": "verb_instructions"}
FOLLOWED = ("followed_step", "improved_step")
RECORDED = "recorded_call"
TITLES = {"full_shard_window": "FullShard window", "full_shard_reduce": "FullShard gradients",
          "no_shard_window": "NoShard window", "no_shard_reduce": "NoShard gradients",
          "followed_step": "step, followed", "improved_step": "step, followed with overlap",
          RECORDED: "all-gather in the flight recorder"}
COUNTED = (100, 600)  # passes of the two runs whose difference is counted


def sides_of(case, engine, verbs):
    """What the two sides of a case are called."""
    if case in FOLLOWED:
        return f"followed, {verbs} operations", f"the step without, {engine}"
    if case == RECORDED:
        return f"recorded twice, {verbs} calls", f"recorded once, {engine}"
    return f"Sharded, {verbs} verbs", f"bare calls of {engine}"


def figure_of(case, unit):
    """What is measured of a case, in `unit`, and its target."""
    figure = f"{unit}_per_{'operation' if case in FOLLOWED else 'call' if case == RECORDED else 'verb'}"
    return figure, bound_of(TARGETS[figure]) if figure in TARGETS else None


def rows_of(found, engine, ranks, rounds):
    """The rows of one program's JSON.
    @raise WrongData when it measured something else than it was asked to, or data was wrong"""
    if found.get("ranks") != ranks:
        raise WrongData(f"overhead on {engine}: has {found.get('ranks')} ranks, asked for {ranks}")
    for case in found["rows"]:
        name = f"{TITLES[case['case']]} {size_text(case['bytes'])}, {ranks} rank{'s' if ranks > 1 else ''}"
        if case["wrong"] != 0:
            raise WrongData(f"{name} on {engine}: {case['wrong']} wrong values")
        wrapped, bare = case["wrapped"], case["bare"]
        if len(wrapped) != rounds or len(bare) != rounds:
            raise WrongData(f"{name} on {engine}: {len(wrapped)} rounds, asked for {rounds}")
        values = [(a - b) / case["verbs"] * 1e9 for a, b in zip(wrapped, bare)]
        ours, peer = sides_of(case["case"], engine, case["verbs"])
        figure, target = figure_of(case["case"], "ns")
        yield row.make_row(
            PART, name, row.side(ours, wrapped), row.side(peer, bare), figure, values, target,
            {"what": "every value that both leave, exactly", "wrong": 0}, ranks=ranks, size=case["bytes"],
            engine=engine, case=case["case"], verbs=case["verbs"])


def measure(engine, command, ranks, options, report):
    name = f"overhead on {engine}, {ranks} ranks"
    with report.attempt(PART, name):
        output, _ = finished(name, command)
        lines = [line for line in output.splitlines() if line.startswith("{")]
        if not lines:
            raise WrongData(f"{name}: printed no result")
        found = json.loads(lines[-1])
        for made in rows_of(found, engine, ranks, options.rounds):
            report.add(made)
        report.record_side(f"overhead on {engine}", {key: found[key] for key in found if key not in (
            "rows", "ranks")}, ranks)


def instructions(program, case, side, elements):
    """Of one pass, by the difference of two runs, so that what happens once is not counted; and its verbs."""
    counts = []
    for times in COUNTED:
        output, log = finished("valgrind", ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program,
                                            case, side, elements, times])
        found = re.search(r"Collected\s*:\s*(\d+)", log)
        if not found:
            raise WrongData("valgrind printed no count of instructions")
        counts.append(int(found.group(1)))
        verbs = json.loads(output)["verbs"]
    return (counts[1] - counts[0]) / (COUNTED[1] - COUNTED[0]), verbs


def count(options, report):
    """@raise Unavailable without what counts"""
    options.setup.need("valgrind")
    program = options.setup.program("peer_overhead_counted")
    for case, title in list(TITLES.items())[:2 if options.quick else None]:
        if case == RECORDED:
            continue
        for elements in (64,) if options.quick or case in FOLLOWED else (64, 1 << 18):
            with report.attempt(PART, f"{title}, instructions"):
                wrapped, verbs = instructions(program, case, "wrapped", elements)
                bare, _ = instructions(program, case, "bare", elements)
                ours, peer = sides_of(case, "self", verbs)
                figure, target = figure_of(case, "instructions")
                report.add(row.make_row(
                    PART, f"{title} {size_text(4 * elements)}, 1 rank", row.side(ours, instructions=wrapped),
                    row.side(peer, instructions=bare), figure, [(wrapped - bare) / verbs], target, ranks=1,
                    size=4 * elements, engine="self", case=case, verbs=verbs))


def run(options, report):
    program = options.setup.program("peer_overhead")
    for ranks in (1, 2):
        measure("threads", [program, ranks, options.rounds], ranks, options, report)
    for mpi in ("openmpi", "mpich"):
        if mpi not in options.peers:
            continue
        with report.attempt(PART, f"{mpi}, 2 ranks"):
            launch = [options.setup.launcher(mpi), *MPI_FLAGS[mpi], "-n", 2]
            measure(mpi, [*launch, options.setup.program(f"peer_overhead_mpi_{mpi}"), options.rounds],
                    2, options, report)
    with report.attempt(PART, "instructions"):
        count(options, report)
