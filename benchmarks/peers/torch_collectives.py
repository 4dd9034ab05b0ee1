# SPDX-License-Identifier: Apache-2.0
"""torch_collectives.py pinned|free RANK RANKS FILE: collectives of gloo through torch.distributed, on one of several
processes that meet in FILE. Free: gloo's own threads may run where no rank is bound."""
import sys
import time

from torch_worker import pin_to, serve


def main():
    pinned, rank, ranks, file = sys.argv[1] == "pinned", int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    if pinned:
        pin_to(rank)
    import torch  # after pinning: its threads are bound as this process is
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=ranks)
    state = {}

    def addend(of_rank, count, offset=0):
        """Whole numbers whose sums are exact."""
        index = torch.arange(offset, offset + count, dtype=torch.int64)
        return ((index * 7 + of_rank * 31 + index // 13) % 8).to(torch.float32)

    def total(count, offset=0):
        return sum(addend(r, count, offset) for r in range(ranks))

    def prepare(_, verb, text):
        count = int(text) // 4
        piece = count // ranks
        sent = received = None
        if verb == "all_reduce":  # gloo has it in place only
            sent = addend(rank, count)
            state["call"] = lambda: dist.all_reduce(sent)
            state["call"]()
            wrong = int((sent != total(count)).sum())
            sent.zero_()  # sums of sums would become infinite
        elif verb == "reduce_scatter":
            sent, received = addend(rank, piece * ranks), torch.empty(piece)
            state["call"] = lambda: dist.reduce_scatter_tensor(received, sent)
            state["call"]()
            wrong = int((received != total(piece, rank * piece)).sum())
        elif verb == "all_gather":
            sent, received = addend(rank, piece), torch.empty(piece * ranks)
            state["call"] = lambda: dist.all_gather_into_tensor(received, sent)
            state["call"]()
            right = torch.cat([addend(r, piece) for r in range(ranks)])
            wrong = int((received != right).sum())
        elif verb == "barrier":
            wrong, state["call"] = 0, dist.barrier
        else:
            raise ValueError(f"verb '{verb}'")
        for _ in range(5):
            state["call"]()
        return {"wrong": wrong}

    def go(_, text):
        calls, call = int(text), state["call"]
        for _ in range(min(calls, 5)):
            call()
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return {"begin": begin, "end": time.perf_counter()}

    serve({"ranks": dist.get_world_size(), "torch": torch.__version__, "backend": dist.get_backend(), "pinned": pinned,
           "threads": torch.get_num_threads()}, {"prepare": prepare, "go": go})
    dist.destroy_process_group()


main()
