#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes gpt.json: losses and gradients of the example's GPT, computed by PyTorch in double precision.

Needs python3-torch (any version with gelu(approximate="tanh"), 1.12 or later) and numpy; run without arguments
from any directory. The model is in gpt_model.py, which shares no code with the C++ one.
"""

import json
import pathlib

import torch

from gpt_model import MASK, VOCABULARY, make_parameters, mean_loss, mix


def random_bytes(count, seed):
    return [(mix((seed + i) & MASK) >> 32) & 255 for i in range(count)]


def train(config):
    """Plain gradient descent; the gradients written are those of the last step, where no bias is zero any more."""
    p = make_parameters(config)
    shape = (config["batch"], config["sequence"])
    count = shape[0] * shape[1]
    losses = []
    for step in range(config["steps"]):
        tokens = torch.tensor(random_bytes(count, 1000 + 100 * step)).reshape(shape)
        targets = torch.tensor(random_bytes(count, 5000 + 100 * step)).reshape(shape)
        for value in p.values():
            value.grad = None
        loss = mean_loss(config, p, tokens, targets)
        loss.backward()
        losses.append(loss.item())
        if step + 1 < config["steps"]:
            with torch.no_grad():
                for value in p.values():
                    value -= config["learning_rate"] * value.grad
    gradients = []
    for (path, name), value in p.items():
        flat = value.grad.reshape(-1)
        # The two tables have one row per byte value: every 16th row, and the norm of all of them.
        stride = 16 if value.shape[0] == VOCABULARY else 1
        rows = value.grad[::stride].reshape(-1)
        gradients.append({"path": path, "name": name, "row_stride": stride, "norm": flat.norm().item(),
                          "values": rows.tolist()})
    return {"config": config, "losses": losses, "gradients": gradients}


def main():
    common = {"sequence": 6, "layers": 2, "width": 8, "batch": 3, "seed": 42, "steps": 4, "learning_rate": 0.5}
    cases = [train({**common, "heads": 2, "head": "tied"}), train({**common, "heads": 4, "head": "untied"})]
    target = pathlib.Path(__file__).resolve().parent / "gpt.json"
    target.write_text(json.dumps({"torch": torch.__version__, "cases": cases}, separators=(",", ":")) + "\n")
    print(f"{target.name}: {target.stat().st_size} bytes, losses {[case['losses'] for case in cases]}")


if __name__ == "__main__":
    main()
