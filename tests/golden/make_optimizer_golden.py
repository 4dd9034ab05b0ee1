#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes optimizer_golden.json beside this file: what PyTorch's AdamW, SGD, clip_grad_norm_ and GradScaler do.

Run it in a virtual environment that has PyTorch 2.3 or later (for GradScaler on the CPU) and numpy:
    python3 -m venv golden && golden/bin/pip install torch numpy
    golden/bin/python tests/golden/make_optimizer_golden.py
The seeds are fixed: the same PyTorch writes the same bytes. The tests read the committed file and need no PyTorch.
"""

import json
import pathlib

import numpy
import torch

NUMEL = 29
STEPS = 6


def numbers(tensor):
    """Shortest decimals that read back as the same number, as JSON values."""
    return [float(str(value)) for value in tensor.detach().numpy()]


def gradients(random, dtype, steps=STEPS, numel=NUMEL):
    """Magnitudes over eleven decades, each element with its own; some exact zeros."""
    scale = 10.0 ** random.uniform(-8, 3, numel)
    rows = random.standard_normal((steps, numel)) * scale
    rows[random.random((steps, numel)) < 0.1] = 0
    return [torch.tensor(row, dtype=dtype) for row in rows]


def initial(random, dtype, numel=NUMEL):
    return torch.tensor(random.standard_normal(numel) * 10.0 ** random.uniform(-4, 1, numel), dtype=dtype)


def trajectory(name, seed, dtype, make_optimizer, options, state_names):
    """Parameters and optimizer states before the first step and after every step."""
    random = numpy.random.default_rng(seed)
    parameter = torch.nn.Parameter(initial(random, dtype))
    optimizer = make_optimizer([parameter])
    case = {"name": name, "dtype": str(dtype).removeprefix("torch."), "options": options,
            "initial": numbers(parameter), "steps": []}
    for gradient in gradients(random, dtype):
        parameter.grad = gradient.clone()
        optimizer.step()
        step = {"gradient": numbers(gradient), "parameter": numbers(parameter)}
        for state in state_names:
            step[state] = numbers(optimizer.state[parameter][state])
        case["steps"].append(step)
    return case


def adamw_cases(amsgrad=False):
    defaults = {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 1e-2}
    variants = {
        "defaults": {},
        "language model": {"learning_rate": 3e-4, "beta2": 0.95, "weight_decay": 0.1},
        "no decay, large epsilon": {"learning_rate": 0.05, "epsilon": 1e-3, "weight_decay": 0.0},
        "betas of zero": {"learning_rate": 0.01, "beta1": 0.0, "beta2": 0.5},
    }
    for dtype in (torch.float32, torch.float64):
        for seed, (name, changes) in enumerate(variants.items()):
            options = defaults | changes

            def make(parameters, o=options):
                return torch.optim.AdamW(parameters, lr=o["learning_rate"], betas=(o["beta1"], o["beta2"]),
                                         eps=o["epsilon"], weight_decay=o["weight_decay"], foreach=False,
                                         amsgrad=amsgrad)

            states = ("exp_avg", "exp_avg_sq") + (("max_exp_avg_sq",) if amsgrad else ())
            yield trajectory(name, 100 + seed, dtype, make, options, states)


def sgd_cases():
    variants = {
        "plain": {"rule": "none"},
        "plain with decay": {"rule": "none", "weight_decay": 0.02},
        "momentum": {"rule": "classical", "momentum": 0.9},
        "momentum with decay": {"rule": "classical", "momentum": 0.8, "weight_decay": 0.02},
        "nesterov": {"rule": "nesterov", "momentum": 0.9},
        "nesterov with decay": {"rule": "nesterov", "momentum": 0.95, "weight_decay": 0.1},
    }
    for dtype in (torch.float32, torch.float64):
        for seed, (name, changes) in enumerate(variants.items()):
            options = {"learning_rate": 0.01, "momentum": 0.0, "weight_decay": 0.0} | changes

            def make(parameters, o=options):
                return torch.optim.SGD(parameters, lr=o["learning_rate"], momentum=o["momentum"],
                                       weight_decay=o["weight_decay"], nesterov=o["rule"] == "nesterov",
                                       foreach=False)

            states = () if options["rule"] == "none" else ("momentum_buffer",)
            yield trajectory(name, 200 + seed, dtype, make, options, states)


def clip_cases():
    """Three tensors; a norm above the bound, one below it, and gradients of zero."""
    for dtype in (torch.float32, torch.float64):
        for name, max_norm, factor in (("above", 1.0, 3.0), ("below", 1.0, 0.01), ("far above", 0.25, 1e4),
                                       ("zero", 1.0, 0.0)):
            random = numpy.random.default_rng(300)
            tensors = [torch.tensor(factor * random.standard_normal(n), dtype=dtype) for n in (17, 64, 5)]
            parameters = [torch.nn.Parameter(torch.zeros_like(t)) for t in tensors]
            for parameter, tensor in zip(parameters, tensors):
                parameter.grad = tensor.clone()
            norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
            yield {"name": name, "dtype": str(dtype).removeprefix("torch."), "max_norm": max_norm,
                   "norm": float(str(norm.numpy())), "gradients": [numbers(t) for t in tensors],
                   "clipped": [numbers(p.grad) for p in parameters]}


def loss_scale_cases():
    """The scale before each step and after the last, with an infinite gradient on the steps marked 1."""
    for name, interval, initial_scale, overflows in (
        ("grows and shrinks", 3, 65536.0, "0001000001100000000"),
        ("grows every step until a float would overflow", 1, 2.0**124, "000000"),
        ("shrinks only", 2000, 1024.0, "11111"),
    ):
        scaler = torch.amp.GradScaler("cpu", init_scale=initial_scale, growth_interval=interval)
        parameter = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([parameter], lr=0.0)
        scales = [scaler.get_scale()]
        for overflow in overflows:
            scaler.scale(torch.zeros(()))
            parameter.grad = torch.tensor([1.0, float("inf") if overflow == "1" else 1.0, 1.0])
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        yield {"name": name, "initial": initial_scale, "growth_interval": interval, "overflows": overflows,
               "scales": scales}


def main():
    golden = {
        "pytorch": torch.__version__.split("+")[0],
        "adamw": list(adamw_cases()),
        "amsgrad": list(adamw_cases(amsgrad=True)),
        "sgd": list(sgd_cases()),
        "clip": list(clip_cases()),
        "loss_scale": list(loss_scale_cases()),
    }
    path = pathlib.Path(__file__).with_name("optimizer_golden.json")
    text = json.dumps(golden, separators=(",", ":"), allow_nan=False)
    path.write_text(text.replace('{"name"', '\n{"name"').replace('{"gradient"', '\n{"gradient"') + "\n")
    print(f"{path}: {path.stat().st_size} bytes, PyTorch {golden['pytorch']}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
