# SPDX-License-Identifier: Apache-2.0
"""torch_muon.py bf16|fp32 RANK RANKS MEETING: steps torch.optim.Muon on one process, and on several what users of FSDP2
do: momenta are sharded, each rank gathers every matrix's direction and orthogonalises it, and keeps its own rows. bf16 is
what PyTorch computes in; fp32 is its function with that one type replaced.

    prepare LAYERS WIDTH  matrices and gradients that the library's worker makes by the same formula
    go STEPS              {"begin", "end": of all steps, "received": bytes of a rank in one}
    compare FILE          the matrices with those in FILE: {"difference": largest, over the largest element}
"""
import sys
import time

from torch_worker import pin_to, serve

RATE, DECAY, MOMENTUM = 0.02, 0.01, 0.95


def shapes_of(layers, width):
    return [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)] * layers


class FullGathers:
    """Muon of FSDP2's parameters."""

    def __init__(self, parameters, muon):
        self.parameters, self.muon = parameters, muon
        self.momenta = [value.detach() * 0 for value in parameters]

    def step(self):
        import torch
        from torch.distributed.tensor import distribute_tensor
        coefficients = (self.muon.DEFAULT_A, self.muon.DEFAULT_B, self.muon.DEFAULT_C)
        with torch.no_grad():
            for value, momentum in zip(self.parameters, self.momenta):
                momentum.lerp_(value.grad, 1 - MOMENTUM)
                whole = value.grad.lerp(momentum, MOMENTUM).full_tensor()
                moved = self.muon._zeropower_via_newtonschulz(whole, coefficients, 5, self.muon.EPS).to(value.dtype)
                own = distribute_tensor(moved, value.device_mesh, value.placements, src_data_rank=None)
                value.mul_(1 - RATE * DECAY)
                value.add_(own, alpha=-self.muon._adjust_lr(RATE, None, value.shape))


def main():
    form, rank, ranks, meeting = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    pin_to(rank)
    import torch  # after pinning: its threads are bound as this process is
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.optim import _muon as muon
    from muon_in_fp32 import in_type_of_gradient
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    if form == "fp32":
        in_type_of_gradient()
    state = {}

    def values(shape, factor):
        index = torch.arange(shape[0] * shape[1], dtype=torch.int64)
        found = ((index * factor + 1) & 0xFFFFFFFF).to(torch.float64) * 2.0**-32 - 0.5
        return found.to(torch.float32).reshape(shape)

    def split(tensor):
        return distribute_tensor(tensor, mesh, [Shard(0)], src_data_rank=None) if ranks > 1 else tensor

    def prepare(layers, width):
        state.clear()
        parameters = []
        for shape in shapes_of(int(layers), int(width)):
            value = torch.nn.Parameter(split(values(shape, 2654435761) / 16))
            value.grad = split(values(shape, 2246822519))
            parameters.append(value)
        state["parameters"] = parameters
        if ranks > 1:
            state["optimizer"] = FullGathers(parameters, muon)
        else:
            state["optimizer"] = torch.optim.Muon(parameters, lr=RATE, weight_decay=DECAY, momentum=MOMENTUM)
        return {}

    def go(steps):
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(int(steps)):
            state["optimizer"].step()
        end = time.perf_counter()
        elements = sum(value.numel() for value in state["parameters"])
        return {"begin": begin, "end": end, "received": 4 * elements * (ranks - 1) // ranks}

    def compare(name):
        whole = [value.detach().full_tensor() if ranks > 1 else value.detach() for value in state["parameters"]]
        mine = torch.cat([value.reshape(-1) for value in whole])
        other = torch.from_file(name, shared=False, size=mine.numel(), dtype=torch.float32)
        difference = ((mine - other).abs().max() / mine.abs().max()).item()
        return {"difference": difference if difference == difference else 1e300}

    serve({"ranks": ranks, "torch": torch.__version__, "threads": torch.get_num_threads(), "pinned": True, "type": form,
           "optimizer": "torch.optim.Muon" if ranks == 1 else "FSDP2's shards, full_tensor() of each matrix",
           "cpu_capability": torch.backends.cpu.get_cpu_capability()}, {"prepare": prepare, "go": go, "compare": compare})
    dist.destroy_process_group()


main()
