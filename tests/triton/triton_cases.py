"""Kernels at sizes with tails, long rows and odd strides, by name; run by worker_triton.py."""

import torch
import torch.nn.functional as F
from triton_support import check

CASES = {}


def case(fn):
    CASES[fn.__name__] = fn
    return fn


def cases(**each):
    """One case a keyword: the function with these arguments."""

    def register(fn):
        for name, args in each.items():
            CASES[f"{fn.__name__}[{name}]"] = lambda args=args: fn(*args)
        return fn

    return register


@cases(even=(4, 16), tails=(3, 37), many=(64, 768), tiny=(2, 5))
def layernorm_holds_rows(rows, cols):
    check(lambda x, w, b: F.layer_norm(x, (cols,), w, b), torch.randn(rows, cols), torch.randn(cols), torch.randn(cols),
          kinds=["persistent"])
