# SPDX-License-Identifier: Apache-2.0
"""torch_adamw.py fused|foreach: steps torch.optim.AdamW on one thread and one processor.

    prepare ELEMENTS     parameters and gradients that the library's worker makes by the same formula
    go STEPS             {"seconds": ...}
    compare FILE         the parameters with those in FILE: {"difference": largest, over the largest parameter}
"""
import sys
import time

from torch_worker import pin_to, serve


def main():
    form = sys.argv[1]
    pin_to(0)
    import torch  # after pinning: its threads are bound as this process is
    torch.set_num_threads(1)
    state = {}

    def values(count, factor):
        index = torch.arange(count, dtype=torch.int64)
        return ((index * factor + 1) & 0xFFFFFFFF).to(torch.float64) * 2.0**-32 - 0.5

    def prepare(text):
        state.clear()
        count = int(text)
        parameter = torch.nn.Parameter(values(count, 2654435761).to(torch.float32))
        parameter.grad = (0.01 * values(count, 2246822519)).to(torch.float32)
        state["parameter"] = parameter
        state["optimizer"] = torch.optim.AdamW([parameter], lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2,
                                               fused=form == "fused", foreach=form == "foreach")
        return {}

    def go(text):
        step = state["optimizer"].step
        begin = time.perf_counter()
        for _ in range(int(text)):
            step()
        return {"seconds": time.perf_counter() - begin}

    def compare(name):
        mine = state["parameter"].detach()
        other = torch.from_file(name, shared=False, size=mine.numel(), dtype=torch.float32)
        difference = ((mine - other).abs().max() / mine.abs().max()).item()
        return {"difference": difference if difference == difference else 1e300}

    serve({"torch": torch.__version__, "threads": torch.get_num_threads(), "pinned": True,
           "flags": f"torch.optim.AdamW({form}=True)", "cpu_capability": torch.backends.cpu.get_cpu_capability()},
          {"prepare": prepare, "go": go, "compare": compare})


main()
