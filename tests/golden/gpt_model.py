# SPDX-License-Identifier: Apache-2.0
"""The example's GPT in PyTorch and double precision, for the scripts beside this file.

Written from the model's description alone; shares no code with the C++ one. First values come from this file's own
copy of the counter-based generator, gradients from autograd.
"""

import math

import numpy
import torch
import torch.nn.functional as functional

MASK = (1 << 64) - 1
VOCABULARY = 256
AUXILIARY = 0.01  # what routers' auxiliary losses count beside the loss of tokens


def mix(x):
    """splitmix64"""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def fnv(text, seed):
    h = seed ^ 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return mix(h)


def first_values(seed, layers, path, name, shape):
    count = math.prod(shape)
    if name.endswith("bias"):
        return torch.zeros(shape, dtype=torch.float64)
    if name.startswith("norm"):
        return torch.ones(shape, dtype=torch.float64)
    deviation = 0.02 / math.sqrt(2 * layers) if name in ("projection_weight", "down_weight") else 0.02
    base = fnv(name, fnv(path, mix(seed)))
    values = numpy.empty(count)
    for i in range(count):
        key = mix((base + 2 * i) & MASK)
        u = ((key >> 11) + 1) * 2.0**-53
        v = ((mix((key + 1) & MASK) >> 11) + 1) * 2.0**-53
        values[i] = deviation * math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v)
    return torch.from_numpy(values).reshape(shape)


def make_parameters(config):
    c, s, layers = config["width"], config["sequence"], config["layers"]
    block = {
        "norm1_weight": (c,), "norm1_bias": (c,), "qkv_weight": (3 * c, c), "qkv_bias": (3 * c,),
        "projection_weight": (c, c), "projection_bias": (c,), "norm2_weight": (c,), "norm2_bias": (c,),
        "up_weight": (4 * c, c), "up_bias": (4 * c,), "down_weight": (c, 4 * c), "down_bias": (c,),
    }
    shapes = {("embedding", "wte"): (VOCABULARY, c), ("embedding", "wpe"): (s, c)}
    for layer in range(layers):
        shapes.update({(f"blocks.{layer}", name): shape for name, shape in block.items()})
    shapes.update({("head", "norm_weight"): (c,), ("head", "norm_bias"): (c,)})
    if config["head"] == "untied":
        shapes[("logits", "weight")] = (VOCABULARY, c)
    experts = config.get("experts", 0)
    for layer in range(layers if experts else 0):
        shapes.update({(f"routers.{layer}", "norm_weight"): (c,), (f"routers.{layer}", "norm_bias"): (c,),
                       (f"routers.{layer}", "router_weight"): (experts, c),
                       (f"experts.{layer}", "up_weight"): (experts, 2 * c, c),
                       (f"experts.{layer}", "down_weight"): (experts, c, 2 * c)})
    return {key: first_values(config["seed"], layers, *key, shape).requires_grad_() for key, shape in shapes.items()}


def expert_layer(config, p, layer, x):
    """x + the weighted sum over the chosen experts of each token, and the auxiliary loss, a mean over passes. Every
    expert computes every token here; a pass's choices past the capacity count for nothing."""
    c, experts, top, passes = (config[name] for name in ("width", "experts", "top", "passes"))
    router = {name: value for (path, name), value in p.items() if path == f"routers.{layer}"}
    normal = functional.layer_norm(x, (c,), router["norm_weight"], router["norm_bias"], eps=1e-5).reshape(passes, -1, c)
    probabilities = functional.linear(normal, router["router_weight"]).softmax(dim=-1)
    share, chosen = probabilities.topk(top, dim=-1)
    weights = share / share.sum(dim=-1, keepdim=True)
    choices = functional.one_hot(chosen, experts)  # [passes, tokens, top, experts]
    if config["capacity"]:
        in_order = choices.flatten(1, 2)
        place = (in_order.cumsum(dim=1) - in_order).mul(in_order).sum(dim=-1).reshape(chosen.shape)
        weights = weights * (place < config["capacity"])
    auxiliary = experts * (choices.double().mean(dim=(1, 2)) * probabilities.mean(dim=1)).sum(dim=-1).mean()
    up = torch.einsum("ptc,ehc->pteh", normal, p[f"experts.{layer}", "up_weight"])
    made = torch.einsum("pteh,ech->ptec", functional.gelu(up, approximate="tanh"), p[f"experts.{layer}", "down_weight"])
    of_choices = made.gather(2, chosen.unsqueeze(-1).expand(-1, -1, -1, c))
    return x + (weights.unsqueeze(-1) * of_choices).sum(dim=2).reshape(x.shape), auxiliary


def mean_loss(config, p, tokens, targets):
    """The mean over all tokens; with experts, also what their routers add to it."""
    heads, c, s = config["heads"], config["width"], config["sequence"]
    batch, d = tokens.shape[0], c // heads
    x = p["embedding", "wte"][tokens] + p["embedding", "wpe"]
    auxiliary = 0.0
    mask = torch.ones(s, s, dtype=torch.bool).tril()
    for layer in range(config["layers"]):
        w = {name: value for (path, name), value in p.items() if path == f"blocks.{layer}"}
        normal = functional.layer_norm(x, (c,), w["norm1_weight"], w["norm1_bias"], eps=1e-5)
        qkv = functional.linear(normal, w["qkv_weight"], w["qkv_bias"]).reshape(batch, s, heads, 3, d)
        q, k, v = (qkv[:, :, :, i].transpose(1, 2) for i in range(3))
        scores = (q @ k.transpose(2, 3)) / math.sqrt(d)
        seen = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
        attention = (seen @ v).transpose(1, 2).reshape(batch, s, c)
        x = x + functional.linear(attention, w["projection_weight"], w["projection_bias"])
        normal = functional.layer_norm(x, (c,), w["norm2_weight"], w["norm2_bias"], eps=1e-5)
        up = functional.linear(normal, w["up_weight"], w["up_bias"])
        x = x + functional.linear(functional.gelu(up, approximate="tanh"), w["down_weight"], w["down_bias"])
        if config.get("experts", 0):
            x, added = expert_layer(config, p, layer, x)
            auxiliary = auxiliary + added
    x = functional.layer_norm(x, (c,), p["head", "norm_weight"], p["head", "norm_bias"], eps=1e-5)
    logits = x @ (p["logits", "weight"] if config["head"] == "untied" else p["embedding", "wte"]).T
    loss = functional.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))
    return (loss, AUXILIARY * auxiliary) if config.get("experts", 0) else loss
