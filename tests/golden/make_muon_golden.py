#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes muon_golden.json beside this file: what torch.optim.Muon does.

Run it in a virtual environment that has PyTorch 2.9 or later and numpy:
    python3 -m venv golden && golden/bin/pip install torch numpy
    golden/bin/python tests/golden/make_muon_golden.py
PyTorch orthogonalises in bf16 whatever the gradient's type is. Here its own function runs with that one type replaced
by the gradient's, so that the arithmetic can be compared. The seeds are fixed: the same PyTorch writes the same bytes.
"""

import inspect
import json
import pathlib

import numpy
import torch
from torch.optim import _muon

source = inspect.getsource(_muon._zeropower_via_newtonschulz)
assert source.count("torch.bfloat16") == 1
exec(source.replace("torch.bfloat16", "grad.dtype"), vars(_muon))  # noqa: S102

COEFFICIENTS = (_muon.DEFAULT_A, _muon.DEFAULT_B, _muon.DEFAULT_C)
SHAPES = {"tall": (7, 3), "wide": (3, 9), "square": (5, 5), "row": (1, 6), "column": (6, 1), "one": (1, 1),
          "tiles": (14, 37)}


def numbers(tensor):
    """Shortest decimals that read back as the same number, as JSON values."""
    return [float(str(value)) for value in tensor.detach().flatten().numpy()]


def name(dtype):
    return str(dtype).removeprefix("torch.")


def matrices(random):
    for shape_name, shape in SHAPES.items():
        yield shape_name, shape, random.standard_normal(shape)
    yield "zero", (4, 3), numpy.zeros((4, 3))
    yield "below epsilon", (3, 4), random.standard_normal((3, 4)) * 1e-9
    yield "large", (3, 4), random.standard_normal((3, 4)) * 1e25
    yield "rank one", (4, 6), numpy.outer(random.standard_normal(4), random.standard_normal(6))


def orthogonalised():
    for dtype in (torch.float32, torch.float64):
        random = numpy.random.default_rng(41)
        for case, shape, values in matrices(random):
            matrix = torch.tensor(values, dtype=dtype)
            if case == "large" and dtype == torch.float32:
                continue  # the squares overflow in PyTorch
            result = _muon._zeropower_via_newtonschulz(matrix, COEFFICIENTS, 5, _muon.EPS)
            yield {"name": case, "dtype": name(dtype), "rows": shape[0], "columns": shape[1],
                   "matrix": numbers(matrix), "result": numbers(result)}


def trajectories():
    defaults = {"learning_rate": 1e-3, "weight_decay": 0.1, "momentum": 0.95, "nesterov": True, "scale": "original"}
    variants = {
        "defaults": {},
        "as AdamW": {"scale": "match_rms_adamw", "learning_rate": 3e-3},
        "no Nesterov": {"nesterov": False, "momentum": 0.8, "weight_decay": 0.0},
        "large steps": {"learning_rate": 0.2, "momentum": 0.5},
    }
    for dtype in (torch.float32, torch.float64):
        for seed, (case, changes) in enumerate(variants.items()):
            options = defaults | changes
            for shape_name in ("tall", "wide", "square", "row"):
                random = numpy.random.default_rng(100 + seed)
                parameter = torch.nn.Parameter(torch.tensor(random.standard_normal(SHAPES[shape_name]), dtype=dtype))
                optimizer = torch.optim.Muon([parameter], lr=options["learning_rate"],
                                             weight_decay=options["weight_decay"], momentum=options["momentum"],
                                             nesterov=options["nesterov"], adjust_lr_fn=options["scale"])
                trajectory = {"name": case, "shape": shape_name, "dtype": name(dtype), "options": options,
                              "rows": parameter.shape[0], "columns": parameter.shape[1],
                              "initial": numbers(parameter), "steps": []}
                for _ in range(4):
                    gradient = torch.tensor(random.standard_normal(parameter.shape), dtype=dtype)
                    parameter.grad = gradient.clone()
                    optimizer.step()
                    trajectory["steps"].append(
                        {"gradient": numbers(gradient), "parameter": numbers(parameter),
                         "momentum_buffer": numbers(optimizer.state[parameter]["momentum_buffer"])})
                yield trajectory


def main():
    golden = {"torch": torch.__version__, "orthogonalised": list(orthogonalised()), "muon": list(trajectories())}
    path = pathlib.Path(__file__).parent / "muon_golden.json"
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n", encoding="utf-8")


main()
