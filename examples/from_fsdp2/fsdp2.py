# SPDX-License-Identifier: Apache-2.0
"""torchrun --nproc-per-node 2 examples/from_fsdp2/fsdp2.py: what same.cpp beside it does with this library."""
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

WIDTH, LAYERS, BATCH, STEPS, MICROBATCHES = 32, 3, 4, 5, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.down = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


def value(layer, index, shape):  # parameters that both programs can make
    i = torch.arange(index.start, index.stop, dtype=torch.float64)
    return (0.2 * torch.sin(0.7 * i + layer)).reshape(shape)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = nn.Sequential(*(Block().double() for _ in range(LAYERS)))
with torch.no_grad():
    for layer, block in enumerate(model):
        for p in block.parameters():
            p.copy_(value(layer, range(p.numel()), p.shape))
for block in model:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)

for step in range(STEPS):
    total = 0.0
    for m in range(MICROBATCHES):
        model.set_requires_gradient_sync(m + 1 == MICROBATCHES)
        i = torch.arange(BATCH * WIDTH, dtype=torch.float64)
        x = torch.cos(i + 31 * (m + MICROBATCHES * (rank + world * step))).reshape(BATCH, WIDTH)
        loss = model(x).square().mean() / 2 / MICROBATCHES
        loss.backward()
        total += loss.item()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
    optimizer.step()
    optimizer.zero_grad()
    total = torch.tensor(total, dtype=torch.float64)
    dist.all_reduce(total)
    if rank == 0:
        print(f"step {step}  loss {total.item() / world:.10f}  norm {norm.item():.10f}")
dist.destroy_process_group()
