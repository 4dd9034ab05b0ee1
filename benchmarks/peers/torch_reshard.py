# SPDX-License-Identifier: Apache-2.0
"""torch_reshard.py MATRICES ROWS COLUMNS RANK RANKS MEETING: one of several processes, each of which has its rows of every
matrix as a DTensor, and brings them to other placements by redistribute:

    reshard FORM    {"begin": ..., "end": ...}
    check FORM      {"wrong": elements that are not the source's}
FORM is whole (Replicate) or columns (Shard(1))."""
import sys
import time

from torch_worker import serve


class Matrices:
    def __init__(self, count, rows, columns):
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
        self.torch, self.dist = torch, dist
        self.placements = {"whole": [Replicate()], "columns": [Shard(1)]}
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        self.whole = [((torch.arange(rows * columns, dtype=torch.int64) * 7 + m * 1000) % 65521).float().view(rows, columns)
                      for m in range(count)]
        self.sharded = [distribute_tensor(each, mesh, [Shard(0)], src_data_rank=None) for each in self.whole]

    def moved(self, form):
        return [each.redistribute(placements=self.placements[form]) for each in self.sharded]

    def reshard(self, form):
        self.dist.barrier()
        begin = time.perf_counter()
        self.moved(form)
        return {"begin": begin, "end": time.perf_counter()}

    def check(self, form):
        rank, ranks = self.dist.get_rank(), self.dist.get_world_size()
        wrong = 0
        for whole, moved in zip(self.whole, self.moved(form)):
            expected = whole if form == "whole" else whole.chunk(ranks, dim=1)[rank]
            wrong += int((moved.to_local() != expected).sum())
        return {"wrong": wrong}


def main():
    count, rows, columns = (int(word) for word in sys.argv[1:4])
    rank, ranks, meeting = int(sys.argv[4]), int(sys.argv[5]), sys.argv[6]
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    made = Matrices(count, rows, columns)
    serve({"ranks": dist.get_world_size(), "torch": torch.__version__, "backend": dist.get_backend(),
           "threads": torch.get_num_threads(), "pinned": False}, {"reshard": made.reshard, "check": made.check})
    dist.destroy_process_group()


main()
