# SPDX-License-Identifier: Apache-2.0
"""The flags of benchmarks/run peers, checked."""
import argparse
import os
import pathlib
import re

import adamw
import checkpoints
import collectives
import gpu
import includes
import muon
import overhead
import products
import reshard
import training
from refusal import BadFlag
from setup import Setup

PARTS = {module.PART: module for module in (collectives, adamw, muon, products, training, checkpoints, reshard, overhead,
                                        includes, gpu)}
ASKED_FOR = (gpu.PART,)  # only by name: few machines have what they need
PEERS = ("openmpi", "mpich", "gloo")
COMPILERS = ("c++", "clang++", "nvcc")
FORMS = {"off": ("eager",), "on": ("compile",), "both": ("eager", "compile")}


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise BadFlag(message)


def names(flag, text, known):
    """A list with commas."""
    given = text.split(",")
    for name in given:
        if name not in known:
            raise BadFlag(f"{flag} '{text}': expected a list with commas of {', '.join(known)}")
    if len(set(given)) != len(given):
        raise BadFlag(f"{flag} '{text}': expected each name once")
    return given


def count(flag, text, least, most):
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise BadFlag(f"{flag} '{text}': expected a whole number from {least} to {most}")
    return int(text)


def make_parser():
    parser = Parser(prog="benchmarks/run peers", allow_abbrev=False, description="Measures the library against its "
                    "peers in turns, and prints a table of ratios with the project's targets.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} [all but {', '.join(ASKED_FOR)}]")
    parser.add_argument("--json", metavar="FILE", help="write the results as one JSON object")
    parser.add_argument("--rounds", metavar="N", help="turns of every side [15; with --quick 3]")
    parser.add_argument("--quick", action="store_true", help="few sizes, rounds and steps: to try the program out")
    parser.add_argument("--ranks", metavar="LIST", default="2,4", help="of collectives, muon, training, checkpoints and reshard [2,4]")
    parser.add_argument("--peer", metavar="LIST", default=",".join(PEERS), help="of collectives and overhead "
                        f"[{','.join(PEERS)}]")
    parser.add_argument("--size", metavar="LIST", help="bytes of collectives [256,4096,1048576,8388608,67108864; with "
                        "--quick 256,1048576]")
    parser.add_argument("--policy", metavar="LIST", default=",".join(training.POLICIES), help="of training [all]")
    parser.add_argument("--model", metavar="LIST", help=f"of training and muon: parameters [{','.join(training.MODELS)}; with "
                        "--quick 0.8M]")
    parser.add_argument("--schedule", metavar="LIST", default=training.DEFAULT_SCHEDULE, help="of train_gpt in training, "
                        f"all of them in turns: none, auto, prefetch:N [{training.DEFAULT_SCHEDULE}]")
    parser.add_argument("--compile", metavar="NAME", help="torch.compile in training: off, on or both [both; with "
                        "--quick off]")
    parser.add_argument("--compiler", metavar="LIST", help="of includes [those of c++, clang++ and nvcc that are "
                        "there; with --quick c++]")
    parser.add_argument("--programs", metavar="FOLDER", help="a build folder with the programs: builds and installs "
                        "nothing")
    parser.add_argument("--torch-python", metavar="FILE", help="an interpreter that has PyTorch [installed below "
                        "build/]")
    parser.add_argument("--train-gpt", metavar="FILE", help="the training program [built]")
    return parser


def parse(arguments, root, which):
    """Options from the flags; `which` finds programs in PATH.
    @raise BadFlag"""
    options = make_parser().parse_intermixed_args(arguments)
    for part in options.parts:
        if part not in PARTS:
            raise BadFlag(f"part '{part}': expected {', '.join(PARTS)}")
    options.parts = [part for part in PARTS if part in options.parts or not (options.parts or part in ASKED_FOR)]
    if options.json == "":
        raise BadFlag("--json '': expected a file name")
    options.rounds = count("--rounds", options.rounds, 1, 10000) if options.rounds else 3 if options.quick else 15
    options.ranks = [count("--ranks", text, 2, 64) for text in options.ranks.split(",")]
    if len(set(options.ranks)) != len(options.ranks):
        raise BadFlag("--ranks: expected each number once")
    options.peers = names("--peer", options.peer, PEERS)
    options.sizes = [count("--size", text, 256, 1 << 30) for text in options.size.split(",")] if options.size else []
    if len(set(options.sizes)) != len(options.sizes):
        raise BadFlag("--size: expected each number once")
    options.policies = names("--policy", options.policy, training.POLICIES)
    if options.policies == ["hybrid_shard"] and not any(r >= 4 and r % 2 == 0 for r in options.ranks):
        raise BadFlag("--policy 'hybrid_shard': expected --ranks of at least 4, and even: groups of half of them")
    options.models = names("--model", options.model or ",".join(list(training.MODELS)[:1 if options.quick else None]),
                           training.MODELS)
    if "training" in options.parts:
        for ranks in options.ranks:
            for model in options.models:
                batch = training.MODELS[model]["batch"]
                if training.policies_of(model, ranks, options.policies) and batch % ranks != 0:
                    raise BadFlag(f"--ranks '{ranks}': expected a divisor of the {batch} sequences of a step, for "
                                  "training")
    options.schedules = options.schedule.split(",")
    if not all(re.fullmatch(r"none|auto|prefetch:[1-9]\d{0,3}", name) for name in options.schedules) or \
            len(set(options.schedules)) != len(options.schedules):
        raise BadFlag(f"--schedule '{options.schedule}': expected a list with commas of none, auto and prefetch:N, each once")
    form = options.compile or ("off" if options.quick else "both")
    if form not in FORMS:
        raise BadFlag(f"--compile '{form}': expected off, on or both")
    options.compile = FORMS[form]
    if options.compiler:
        options.compilers = names("--compiler", options.compiler, COMPILERS)
    else:
        options.compilers = [name for name in COMPILERS if which(name)][:1 if options.quick else None] or ["c++"]
    if options.programs and not os.path.isdir(options.programs):
        raise BadFlag(f"--programs '{options.programs}': expected a build folder")
    options.processors = len(os.sched_getaffinity(0))
    options.setup = Setup(pathlib.Path(root), options.programs, options.torch_python, options.train_gpt)
    return options
