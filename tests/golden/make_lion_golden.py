#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes lion_golden.json beside this file: trajectories of algorithm 2 of arXiv 2302.06675, in rational numbers.

Each step starts from numbers of the element type, is computed exactly, line by line as the paper has it, and is rounded
once to the element type. Needs nothing but Python; the seeds are fixed, so it writes the same bytes each time.
"""

import json
import pathlib
import random
import struct
from fractions import Fraction

NUMEL = 29
STEPS = 6


def to_fp32(number):
    return struct.unpack("<f", struct.pack("<f", float(number)))[0]


ROUND = {"float32": to_fp32, "float64": float}


def text(number, dtype):
    """The shortest decimal that reads back as the same number."""
    if dtype == "float64":
        return number
    return next(float(f"{number:.{digits}g}") for digits in range(1, 10) if to_fp32(float(f"{number:.{digits}g}")) == number)


def lion_step(theta, m, g, eta, lam, beta1, beta2):
    c = beta1 * m + (1 - beta1) * g
    sign = (c > 0) - (c < 0)
    theta = theta - eta * (sign + lam * theta)
    m = beta2 * m + (1 - beta2) * g
    return theta, m


def trajectory(name, seed, dtype, options):
    numbers, rounded = random.Random(seed), ROUND[dtype]
    scales = [10 ** numbers.uniform(-8, 3) for _ in range(NUMEL)]
    theta = [rounded(numbers.gauss(0, 1) * 10 ** numbers.uniform(-4, 1)) for _ in range(NUMEL)]
    m = [0.0] * NUMEL
    exact = {name: Fraction(value) for name, value in options.items()}
    case = {"name": name, "dtype": dtype, "options": options, "initial": [text(x, dtype) for x in theta], "steps": []}
    for _ in range(STEPS):
        g = [0.0 if numbers.random() < 0.1 else rounded(numbers.gauss(0, 1) * scale) for scale in scales]
        for i in range(NUMEL):
            stepped = lion_step(Fraction(theta[i]), Fraction(m[i]), Fraction(g[i]), exact["learning_rate"],
                                exact["weight_decay"], exact["beta1"], exact["beta2"])
            theta[i], m[i] = (rounded(x) for x in stepped)
        case["steps"].append({"gradient": [text(x, dtype) for x in g], "parameter": [text(x, dtype) for x in theta],
                              "exp_avg": [text(x, dtype) for x in m]})
    return case


def main():
    defaults = {"learning_rate": 1e-4, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0}
    variants = {
        "defaults": {},
        "language model": {"beta1": 0.95, "beta2": 0.98, "weight_decay": 1.0},
        "large steps": {"learning_rate": 0.05, "weight_decay": 0.1},
        "betas of zero": {"learning_rate": 0.01, "beta1": 0.0, "beta2": 0.0},
    }
    cases = [trajectory(name, 400 + seed, dtype, defaults | changes) for dtype in ROUND
             for seed, (name, changes) in enumerate(variants.items())]
    golden = json.dumps({"lion": cases}, separators=(",", ":"), allow_nan=False)
    path = pathlib.Path(__file__).with_name("lion_golden.json")
    path.write_text(golden.replace('{"name"', '\n{"name"').replace('{"gradient"', '\n{"gradient"') + "\n",
                    encoding="utf-8")
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
