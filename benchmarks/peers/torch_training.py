# SPDX-License-Identifier: Apache-2.0
"""torch_training.py values CONFIG FILE: writes the model's first values.
torch_training.py train CONFIG FILE POLICY eager|compile RANK RANKS MEETING: trains on one of several processes with
what PyTorch offers for a policy, as its documentation recommends.

    check STEPS     trains from the beginning: {"losses": [...], "grad_norms": [...]} over all ranks
    go STEPS        trains on: {"seconds": of all steps}
"""
import json
import sys
import time

from torch_worker import pin_to, serve


def wrapped(model, policy, form, ranks):
    """The model as ranks train it together, compiled or not, and what this is called."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard
    from torch.nn.parallel import DistributedDataParallel
    if policy in ("no_shard", "shard_optimizer"):
        parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
        if form == "compile":
            parallel = torch.compile(parallel)
        return parallel, "DistributedDataParallel(gradient_as_bucket_view=True)"
    group = int(policy.partition(":")[2] or ranks)
    if group == ranks:
        mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("shard",))
    else:
        mesh = init_device_mesh("cpu", (ranks // group, group), mesh_dim_names=("replicate", "shard"))
    reshard = policy != "shard_grad_op"
    for block in model.blocks:
        if form == "compile":
            block.compile()
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard)
    # gloo has no average: sums, and a division of ours, the same with every version.
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
            module.set_gradient_divide_factor(float(ranks))
    return model, f"fully_shard(mesh={tuple(mesh.shape)}, reshard_after_forward={reshard}) on blocks and root"


def make_optimizer(groups, policy, learning_rate):
    import torch
    if policy == "shard_optimizer":
        from torch.distributed.optim import ZeroRedundancyOptimizer
        return (ZeroRedundancyOptimizer(groups, optimizer_class=torch.optim.AdamW, lr=learning_rate, fused=True),
                "ZeroRedundancyOptimizer(AdamW(fused=True))")
    return torch.optim.AdamW(groups, lr=learning_rate, fused=True), "AdamW(fused=True)"


class MuonAndAdamW:
    """torch.optim.Muon of the blocks' matrices, in fp32, and AdamW of the rest, with one learning rate."""

    FLAGS = "Muon(adjust_lr_fn='match_rms_adamw') in fp32, AdamW(fused=True)"

    def __init__(self, model, groups, config):
        import torch
        from muon_in_fp32 import in_type_of_gradient
        in_type_of_gradient()
        rate, decay = config["learning_rate"], config["weight_decay"]
        matrices = [value for name, value in model.named_parameters() if "blocks" in name and value.dim() == 2]
        chosen = {id(value) for value in matrices}
        rest = [{**group, "params": [value for value in group["params"] if id(value) not in chosen]} for group in groups]
        self.parts = (torch.optim.Muon(matrices, lr=rate, weight_decay=decay, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
                      torch.optim.AdamW(rest, lr=rate, fused=True))

    def step(self):
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none):
        for part in self.parts:
            part.zero_grad(set_to_none=set_to_none)


class Trainer:
    """One rank's run. Its state begins anew with every check."""

    def __init__(self, config, file, policy, form, rank, ranks):
        import torch
        import torch_gpt
        self.torch, self.gpt = torch, torch_gpt
        self.config, self.file, self.policy, self.form = config, file, policy, form
        self.rank, self.ranks = rank, ranks
        with open(config["text"], "rb") as text:
            self.text = torch.frombuffer(bytearray(text.read()), dtype=torch.uint8)
        self.begin()

    def begin(self):
        model = self.gpt.Gpt(self.config)
        model.load_state_dict(self.torch.load(self.file, weights_only=True), strict=True)
        self.model, self.model_flags = wrapped(model, self.policy, self.form, self.ranks)
        groups = self.gpt.parameter_groups(model, self.config["weight_decay"])
        if self.config.get("optimizer") == "muon":
            self.optimizer, self.optimizer_flags = MuonAndAdamW(model, groups, self.config), MuonAndAdamW.FLAGS
        else:
            self.optimizer, self.optimizer_flags = make_optimizer(groups, self.policy, self.config["learning_rate"])
        self.parameters = [value for group in groups for value in group["params"]]
        self.number = 0

    def step(self):
        """Loss of this rank's sequences, and the gradients' norm over all ranks."""
        tokens, targets = self.gpt.batch_of(self.config, self.text, self.number, self.rank, self.ranks)
        loss = self.model(tokens, targets)
        loss.backward()
        norm = self.torch.nn.utils.clip_grad_norm_(self.parameters, self.config["clip"])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.number += 1
        return loss.detach(), norm

    def check(self, text):
        import torch.distributed as dist
        if self.number > 0:
            self.begin()
        losses, norms = [], []
        for _ in range(int(text)):
            loss, norm = self.step()
            dist.all_reduce(loss)
            losses.append(loss.item() / self.ranks)
            norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
            norms.append(norm.item())
        return {"losses": losses, "grad_norms": norms}

    def go(self, text):
        import torch.distributed as dist
        self.step()  # the peer has had the processors
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(int(text)):
            self.step()
        return {"begin": begin, "end": time.perf_counter()}


def main():
    with open(sys.argv[2], encoding="utf-8") as file:
        config = json.load(file)
    if sys.argv[1] == "values":
        import torch
        import torch_gpt
        torch.save(torch_gpt.first_values(config), sys.argv[3])
        return
    values, policy, form = sys.argv[3:6]
    rank, ranks, meeting = int(sys.argv[6]), int(sys.argv[7]), sys.argv[8]
    if config["pinned"]:
        pin_to(rank)
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    trainer = Trainer(config, values, policy, form, rank, ranks)
    serve({"ranks": dist.get_world_size(), "torch": torch.__version__, "backend": dist.get_backend(),
           "threads": torch.get_num_threads(), "pinned": config["pinned"], "compile": form == "compile",
           "model": trainer.model_flags, "optimizer": trainer.optimizer_flags,
           "cpu_capability": torch.backends.cpu.get_cpu_capability()}, {"check": trainer.check, "go": trainer.go})
    dist.destroy_process_group()


main()
