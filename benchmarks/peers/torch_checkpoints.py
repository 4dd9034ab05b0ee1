# SPDX-License-Identifier: Apache-2.0
"""torch_checkpoints.py STEP RANK RANKS MEETING: one of several processes that save and load, as PyTorch's documentation
recommends, the state that the library has saved as STEP; each has its shard of every tensor, as FSDP2 would share them out.

    save FORM PATH      {"begin": ..., "end": ...}
    load FORM PATH      the same, into tensors that are there
    check FORM PATH     loads into tensors of other values: {"wrong": values that are not those of STEP}
    begin_save PATH     the same as save, until dcp.async_save has returned
    commit              ... and until what it has begun is done
FORM is dcp, dcp_no_sync, hf, torch or safetensors; the last two are saved and loaded whole by the first process alone."""
import pathlib
import sys
import time

from torch_worker import serve

ALONE = ("torch", "safetensors")


class Checkpoints:
    """One rank's state and how each form saves it."""

    def __init__(self, step, rank):
        import torch
        import torch.distributed as dist
        import torch.distributed.checkpoint as dcp
        from safetensors import torch as safetensors
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor
        self.torch, self.dist, self.dcp, self.safetensors, self.rank = torch, dist, dcp, safetensors, rank
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        self.whole, self.sharded = {}, {}
        for name, file in (("", "model"), ("exp_avg.", "state/exp_avg"), ("exp_avg_sq.", "state/exp_avg_sq")):
            for key, value in safetensors.load_file(step / f"{file}.safetensors").items():
                self.sharded[name + key] = distribute_tensor(value, mesh, [Shard(0)], src_data_rank=None)
                if rank == 0:
                    self.whole[name + key] = value.clone()
        self.model = [key for key in self.sharded if not key.startswith("exp_avg")]
        # Of its own: collectives of a save in the background would meet those that are called meanwhile.
        self.background = dist.new_group(backend="gloo")
        self.pending = None

    def state_of(self, form):
        if form in ALONE:
            return self.whole
        return {key: self.sharded[key] for key in self.model} if form == "hf" else dict(self.sharded)

    def writer(self, form, path):
        if form == "hf":
            from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
            return HuggingFaceStorageWriter(path, save_distributed=True, enable_consolidation=True)
        return self.dcp.FileSystemWriter(path, sync_files=form == "dcp")

    def do_save(self, form, path):
        state = self.state_of(form)
        if form == "torch" and self.rank == 0:
            self.torch.save(state, path / "state.pt")
        if form == "safetensors" and self.rank == 0:
            self.safetensors.save_file(state, path / "state.safetensors")
        if form not in ALONE:
            self.dcp.save(state, storage_writer=self.writer(form, str(path)))

    def do_load(self, form, path):
        state = self.state_of(form)
        if form in ALONE:
            if self.rank == 0:
                found = self.torch.load(path / "state.pt", weights_only=True) if form == "torch" else \
                    self.safetensors.load_file(path / "state.safetensors")
                for key, value in state.items():
                    value.copy_(found[key])
        elif form == "hf":
            from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
            self.dcp.load(state, storage_reader=HuggingFaceStorageReader(str(path)))
        else:
            self.dcp.load(state, checkpoint_id=str(path))

    def timed(self, work):
        self.dist.barrier()
        begin = time.perf_counter()
        work()
        return {"begin": begin, "end": time.perf_counter()}

    def save(self, form, path):
        pathlib.Path(path).mkdir(exist_ok=True)
        return self.timed(lambda: self.do_save(form, pathlib.Path(path)))

    def load(self, form, path):
        return self.timed(lambda: self.do_load(form, pathlib.Path(path)))

    def check(self, form, path):
        def mine(value):
            return value.to_local() if hasattr(value, "to_local") else value
        state = self.state_of(form)
        kept = {key: mine(value).clone() for key, value in state.items()}
        for value in state.values():
            mine(value).fill_(-7)
        self.do_load(form, pathlib.Path(path))
        wrong = sum(int((mine(value) != kept[key]).sum()) for key, value in state.items())
        return {"wrong": wrong}

    def begin_save(self, path):
        def begin():
            self.pending = self.dcp.async_save(dict(self.sharded), checkpoint_id=path, process_group=self.background)
        return self.timed(begin)

    def commit(self):
        return self.timed(self.pending.result)


def main():
    step, rank, ranks, meeting = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    made = Checkpoints(step, rank)
    serve({"ranks": dist.get_world_size(), "torch": torch.__version__, "backend": dist.get_backend(),
           "threads": torch.get_num_threads(), "pinned": False},
          {"save": made.save, "load": made.load, "check": made.check, "begin_save": made.begin_save,
           "commit": made.commit})
    dist.destroy_process_group()


main()
