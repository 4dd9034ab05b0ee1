# SPDX-License-Identifier: Apache-2.0
"""The example's GPT as a user of PyTorch writes it: modules, fused attention. First values, the order of the data and
which parameters are decayed are those of the scripts in tests/golden, which prove the example's model."""
import pathlib
import sys

import torch
import torch.nn as nn
import torch.nn.functional as functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/golden"))
from gpt_model import VOCABULARY, make_parameters  # noqa: E402
from make_gpt_training_golden import is_vector, starts  # noqa: E402


class Block(nn.Module):
    """A transformer block with norms before attention and before the two linear layers."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, self.heads, 3, width // self.heads)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(3))
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(seen.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """Gives the mean loss of a batch; the logits' matrix is the token embedding's."""

    def __init__(self, config):
        super().__init__()
        width = config["width"]
        self.wte = nn.Embedding(VOCABULARY, width)
        self.wpe = nn.Embedding(config["sequence"], width)
        self.blocks = nn.ModuleList(Block(width, config["heads"]) for _ in range(config["layers"]))
        self.norm = nn.LayerNorm(width)
        self.register_buffer("places", torch.arange(config["sequence"]), persistent=False)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(self.places)
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.wte.weight)
        return functional.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))


def module_name(path, name):
    """Of a parameter that the golden scripts call (path, name)."""
    if path == "embedding":
        return f"{name}.weight"
    inner = name.replace("_weight", ".weight").replace("_bias", ".bias")
    return inner if path == "head" else f"{path}.{inner}"


def first_values(config):
    """Slow: a loop in Python over all elements."""
    made = make_parameters({**config, "head": "tied"})
    return {module_name(path, name): value.detach().to(torch.float32) for (path, name), value in made.items()}


def parameter_groups(model, weight_decay):
    """Matrices are decayed; biases and norms are not."""
    named = [(name.rsplit(".", 2)[-2:], value) for name, value in model.named_parameters()]
    matrices = [value for words, value in named if not is_vector("_".join(words))]
    vectors = [value for words, value in named if is_vector("_".join(words))]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]


def batch_of(config, text, step, rank, ranks):
    """This rank's sequences of a step: tokens and the tokens that follow them."""
    each = config["batch"] // ranks
    length = config["sequence"]
    begins = starts(config, step, len(text) - length)[rank * each:(rank + 1) * each]
    tokens = torch.stack([text[begin:begin + length] for begin in begins]).long()
    targets = torch.stack([text[begin + 1:begin + 1 + length] for begin in begins]).long()
    return tokens, targets
