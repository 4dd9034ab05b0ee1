# SPDX-License-Identifier: Apache-2.0
"""PyTorch orthogonalises in bf16 whatever the gradient's type is: its own function with that one type replaced."""
import inspect


def in_type_of_gradient():
    from torch.optim import _muon
    if hasattr(_muon, "in_type_of_gradient"):
        return
    source = inspect.getsource(_muon._zeropower_via_newtonschulz)
    if source.count("torch.bfloat16") != 1:
        raise RuntimeError("torch.optim.Muon does not name bfloat16 once, as it did")
    exec(source.replace("torch.bfloat16", "grad.dtype"), vars(_muon))
    _muon.in_type_of_gradient = True
