# SPDX-License-Identifier: Apache-2.0
"""torch_gpu_step.py: clip_grad_norm_ and the step of torch.optim.AdamW(fused=True) on the first GPU.

    prepare ELEMENTS GROUPS off|on   equal fp32 parameters in that many tensors; on: captured in a CUDA graph
    go STEPS                         {"seconds": ...} of the host's clock, the GPU's work included
"""
import time

from torch_worker import answer, serve


def main():
    try:
        import torch
    except ImportError as error:
        return answer({"unavailable": f"this interpreter has no PyTorch: {error}"})
    if not torch.cuda.is_available():
        return answer({"unavailable": "PyTorch sees no GPU"})
    state = {}

    def step():
        torch.nn.utils.clip_grad_norm_(state["parameters"], 1.0, foreach=True)
        state["optimizer"].step()

    def prepare(elements, groups, graph):
        state.clear()
        each = int(elements) // int(groups)
        state["parameters"] = [torch.nn.Parameter(torch.rand(each, device="cuda") - 0.5) for _ in range(int(groups))]
        for parameter in state["parameters"]:
            parameter.grad = torch.rand_like(parameter) - 0.5
        state["optimizer"] = torch.optim.AdamW(state["parameters"], lr=1e-3, betas=(0.9, 0.999), eps=1e-8,
                                               weight_decay=1e-2, fused=True, capturable=graph == "on")
        state["step"] = step
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # as PyTorch asks for before a capture
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        if graph == "on":
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured):
                step()
            state["graph"] = captured
            state["step"] = captured.replay
        torch.cuda.synchronize()
        return {}

    def go(steps):
        run = state["step"]
        run()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(int(steps)):
            run()
        torch.cuda.synchronize()
        return {"seconds": time.perf_counter() - begin}

    serve({"torch": torch.__version__, "gpu": torch.cuda.get_device_name(0),
           "flags": "clip_grad_norm_(foreach=True), torch.optim.AdamW(fused=True)"}, {"prepare": prepare, "go": go})


main()
