# SPDX-License-Identifier: Apache-2.0
"""torchrun --nproc-per-node N benchmarks/gpt/fsdp2.py [flags of benchmarks/run gpt]: the same steps with PyTorch's FSDP2,
blocks compiled, as its documentation recommends. Prints tokens a second."""
import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from main import SEQUENCE, SHAPES, VOCABULARY, heads_of

ROWS = (VOCABULARY + 127) // 128 * 128


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        split = [each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(self.norm1(x)).chunk(3, -1)]
        seen = F.scaled_dot_product_attention(*split, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.projection(seen)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(ROWS, width), nn.Embedding(SEQUENCE, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=SHAPES, default="124M")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    given = parser.parse_args()
    ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Gpt(*SHAPES[given.model], heads_of(given.model)).cuda()
    how = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16)} if given.dtype == "bf16" else {}
    for block in model.blocks:
        block.compile()
        fully_shard(block, **how)
    fully_shard(model, **how)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    tokens = torch.randint(VOCABULARY, (given.batch // ranks, SEQUENCE + 1), device="cuda")

    def step():
        model(tokens[:, :-1], tokens[:, 1:]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(given.steps // 2):  # compiles, and takes memory
        step()
    torch.cuda.synchronize()
    began = time.perf_counter()
    timed = given.steps - given.steps // 2
    for _ in range(timed):
        step()
    torch.cuda.synchronize()
    if rank == 0:
        rate = timed * given.batch * SEQUENCE / (time.perf_counter() - began)
        print(f"FSDP2 of PyTorch {torch.__version__}: {rate:.0f} tokens/s, "
              f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GB at most")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
