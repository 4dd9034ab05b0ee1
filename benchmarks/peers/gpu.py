# SPDX-License-Identifier: Apache-2.0
"""The global norm and a clipped step of AdamW on a GPU against PyTorch's clip_grad_norm_ and fused AdamW: one large
parameter and many small ones, plain and as a CUDA graph. Only when it is asked for: it needs a GPU and a PyTorch with
CUDA."""
import contextlib
import json
import pathlib
import tempfile

import row
from refusal import Unavailable
from worker import Worker, finished

PART = "gpu"
SIZES = (32 << 20, 1 << 30)
QUICK_SIZES = (32 << 20,)
GROUPS = (1, 10, 100, 300)
STEPS = 50


def program_of(options):
    """@raise Unavailable without benchmarks/gpu/build.sh's program"""
    program = (options.setup.given_programs or options.setup.root / "build/benchmarks_gpu") / "kernels"
    if not program.is_file():
        raise Unavailable(f"no {program}: run benchmarks/gpu/build.sh, or give its folder as --programs")
    return program


def ours_of(program, bytes_moved, graph, folder):
    """Seconds of a step and launches, by number of groups: one round of the library's program."""
    file = folder / "rows.json"
    flags = ["--device", "gpu", "--kernel", "step", "-d", "float", "-b", bytes_moved, "-e", bytes_moved, "--groups",
             ",".join(str(groups) for groups in GROUPS), "--graph", graph, "--rounds", "3", "--json", file]
    finished(f"{program} {' '.join(map(str, flags))}", [program, *flags])
    found = json.loads(file.read_text())
    file.unlink()
    return {each["groups"]: (each["time_us"]["median"] * 1e-6, each["launches"], each["count"])
            for each in found["rows"]}


def compare(program, peer, bytes_moved, graph, folder, options, report):
    """One size: in every round the library's program, then PyTorch with as many tensors."""
    ours, theirs = {groups: [] for groups in GROUPS}, {groups: [] for groups in GROUPS}
    launches, elements = {}, {}
    for _ in range(options.rounds):
        for groups, (seconds, launched, count) in ours_of(program, bytes_moved, graph, folder).items():
            ours[groups].append(seconds)
            launches[groups], elements[groups] = launched, count
        for groups in GROUPS:
            peer.ask("prepare", elements[groups], groups, graph)
            theirs[groups].append(peer.ask("go", STEPS)["seconds"] / STEPS)
    for groups in GROUPS:
        report.add(row.make_row(
            PART, f"norm, clip and AdamW, {elements[groups] >> 20} Mi elements, {groups} groups"
            + (", graph" if graph == "on" else ""), row.side("shardkit", ours[groups]),
            row.side(peer.name, theirs[groups]), "times_faster",
            [b / a for a, b in zip(ours[groups], theirs[groups])], row.at_least(1), groups=groups, graph=graph == "on",
            elements=elements[groups], bytes=bytes_moved, launches=launches[groups]))


def run(options, report):
    program = program_of(options)
    python = options.setup.torch_python()
    script = pathlib.Path(__file__).with_name("torch_gpu_step.py")
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        peer = stack.enter_context(Worker("PyTorch fused AdamW", [[python, "-B", script]]))
        if "unavailable" in peer.facts:
            raise Unavailable(peer.facts["unavailable"])
        report.record_side(peer.name, peer.facts)
        for bytes_moved in QUICK_SIZES if options.quick else SIZES:
            for graph in ("off", "on"):
                compare(program, peer, bytes_moved, graph, folder, options, report)
