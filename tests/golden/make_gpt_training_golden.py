#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes gpt_training.json and, with the argument `experts`, gpt_experts_training.json: losses and gradient norms of
whole training runs of the example's GPT, without and with layers of experts, by PyTorch in one process and double
precision.

Needs python3-torch (1.12 or later) and numpy; run from any directory. The model is in gpt_model.py;
optimizers and clipping are PyTorch's own. The order of the data and the text are written here a second time, from
their descriptions.
"""

import json
import math
import pathlib
import sys

import torch

from gpt_model import MASK, make_parameters, mean_loss, mix

MOMENTUM = 0.9


def make_text(count):
    """26 of the 256 tokens, from one end of the vocabulary to the other, so that each part of a split one has some;
    quickly learnt, so that losses fall."""
    return [9 * ((i * i + i // 50) % 26) + 13 for i in range(count)]


def starts(config, step, positions):
    """Where each sequence of the step begins in the text."""
    base = mix((mix(config["seed"] ^ int.from_bytes(b"dataq", "big")) + step) & MASK)
    return [mix((base + index) & MASK) % positions for index in range(config["batch"])]


def is_vector(name):
    """Biases and norms, which are not decayed."""
    return name.endswith("bias") or name.startswith("norm")


def make_optimizer(config, p):
    matrices = [value for (_, name), value in p.items() if not is_vector(name)]
    vectors = [value for (_, name), value in p.items() if is_vector(name)]
    groups = [{"params": matrices, "weight_decay": config["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}]
    if config["optimizer"] == "adamw":
        return torch.optim.AdamW(groups, lr=config["learning_rate"], betas=(0.9, 0.999), eps=1e-8)
    return torch.optim.SGD(groups, lr=config["learning_rate"], momentum=MOMENTUM)


def train(config):
    p = make_parameters(config)
    optimizer = make_optimizer(config, p)
    sequence = config["sequence"]
    text = make_text(config["text_bytes"])
    losses, norms = [], []
    for step in range(config["steps"]):
        begins = starts(config, step, len(text) - sequence)
        tokens = torch.tensor([text[begin:begin + sequence] for begin in begins])
        targets = torch.tensor([text[begin + 1:begin + 1 + sequence] for begin in begins])
        optimizer.zero_grad()
        loss, auxiliary = mean_loss(config, p, tokens, targets), 0.0
        if config.get("experts", 0):
            loss, auxiliary = loss
        (loss + auxiliary).backward()
        # No clipping is a bound that no norm reaches.
        norm = torch.nn.utils.clip_grad_norm_(p.values(), config["clip"] or math.inf)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    return {"config": config, "losses": losses, "grad_norms": norms}


def cases():
    common = {"sequence": 16, "layers": 2, "width": 16, "heads": 4, "batch": 12, "seed": 11, "steps": 10,
              "text_bytes": 500, "weight_decay": 0.1}
    adamw = {"optimizer": "adamw", "learning_rate": 1e-3}
    sgd = {"optimizer": "sgd", "learning_rate": 0.1}
    # Clipping at every step, at some, and at none.
    yield {**common, **adamw, "head": "tied", "clip": 0.0}
    yield {**common, **adamw, "head": "untied", "clip": 1.0}
    yield {**common, **sgd, "head": "tied", "clip": 0.5}
    yield {**common, **sgd, "head": "untied", "clip": 0.0}


def cases_with_experts():
    """`passes`: into how many the batch is cut, over all ranks; each has an auxiliary loss and a capacity of its own."""
    common = {"sequence": 16, "layers": 2, "width": 16, "heads": 4, "batch": 8, "seed": 11, "steps": 20,
              "text_bytes": 500, "weight_decay": 0.1, "passes": 4}
    yield {**common, "optimizer": "adamw", "learning_rate": 1e-3, "head": "tied", "clip": 1.0, "experts": 4, "top": 2,
           "capacity": 0}
    yield {**common, "optimizer": "sgd", "learning_rate": 0.1, "head": "untied", "clip": 0.0, "experts": 8, "top": 3,
           "capacity": 10}


def main():
    with_experts = sys.argv[1:] == ["experts"]
    trained = [train(case) for case in (cases_with_experts() if with_experts else cases())]
    target = pathlib.Path(__file__).resolve().with_name("gpt_experts_training.json" if with_experts else "gpt_training.json")
    text = json.dumps({"torch": torch.__version__, "cases": trained}, separators=(",", ":"))
    target.write_text(text.replace('{"config"', '\n{"config"') + "\n")
    print(f"{target.name}: {target.stat().st_size} bytes")
    for case in trained:
        print(case["config"]["optimizer"], case["config"]["head"], case["losses"], case["grad_norms"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
