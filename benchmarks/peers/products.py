# SPDX-License-Identifier: Apache-2.0
"""The matrix products of a training step of the GPT example, by its BLAS against PyTorch's, one thread each."""
import contextlib
import pathlib
import tempfile

import row
import training
from refusal import Unavailable, WrongData
from targets import bound_of
from worker import Worker, take_turns, torch_worker

PART = "products"
# Multiply-adds. A smaller product's time is for the most part that of PyTorch's call.
LEAST = 1 << 22


def products_of(made):
    """[m, n, k, left, right, add, count] of each kind that is large enough, from what `training.noted_products` gives.
    @raise WrongData when there is none"""
    large = [kind for kind in made["kinds"] if kind[0] * kind[1] * kind[2] >= LEAST]
    if not large:
        raise WrongData(f"none of {made['products']} matrix products has {LEAST} multiply-adds")
    return large


def check(ours, peer, products):
    """Both make each product of the same whole numbers.
    @raise WrongData when a sum over one differs"""
    for side in (ours, peer):
        for product in products:
            side.ask("product", *product)
    mine, other = (side.ask("check").get("sums") for side in (ours, peer))
    if mine != other or not isinstance(mine, list) or len(mine) != len(products):
        raise WrongData(f"sums over {len(products)} matrix products are {mine} by {ours.name} and {other} by {peer.name}")
    return {"what": f"sums over {len(products)} kinds of products, largest difference", "largest": 0, "allowed": 0}


def compare(ours, peer, model, products, options, report):
    checked = check(ours, peer, products)
    rounds = min(options.rounds, training.LARGE_ROUNDS) if model in training.LARGE else options.rounds
    mine, others = take_turns(rounds, *[lambda side=side: side.ask("go").get("seconds") for side in (ours, peer)])
    report.add(row.make_row(
        PART, f"matrix products of a step, {model}", row.side(ours.name, mine), row.side(peer.name, others), "times_faster",
        [b / a for a, b in zip(mine, others)], bound_of("products_pytorch"), checked, model=model, kinds=len(products),
        multiply_adds=sum(m * n * k * count for m, n, k, *_, count in products)))


def run(options, report):
    program = options.setup.program("peer_blas_products")
    library = options.setup.products()
    if library is None:
        raise Unavailable("what notes train_gpt's products cannot be built here")
    train_gpt = options.setup.train_gpt()
    python = options.setup.torch_python()
    for model in options.models:
        with contextlib.ExitStack() as stack, report.attempt(PART, model):
            files = training.Files(pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())), options,
                                   training.MODELS[model])
            products = products_of(training.noted_products(train_gpt, library, files.config, "no_shard", 1, files.folder))
            ours = stack.enter_context(Worker("train_gpt's BLAS", [[program]], timeout=600))
            peer = stack.enter_context(torch_worker("PyTorch", python, "torch_products.py", timeout=600))
            for side in (ours, peer):
                report.record_side(f"{side.name}, products", side.facts)
            compare(ours, peer, model, products, options, report)
