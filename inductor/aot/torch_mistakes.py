"""Decompositions of torch that give wrong results: traces are made without them, so that ATen's own kernels run.

multilabel_margin_loss: places behind the first -1 of a target count as targets of class 0 (torch 2.11 to 2.15).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch._C import DispatchKey

WRONG = (torch.ops.aten.multilabel_margin_loss_forward.default,)


@contextlib.contextmanager
def without_mistakes() -> Iterator[None]:
    """Within this block torch's Python dispatcher, too, takes ATen's kernels for the operators of WRONG."""
    taken = [(op, op.py_kernels.pop(DispatchKey.Autograd)) for op in WRONG if DispatchKey.Autograd in op.py_kernels]
    try:
        for op, _ in taken:
            op._dispatch_cache.clear()
        yield
    finally:
        for op, kernel in taken:
            op.py_kernels[DispatchKey.Autograd] = kernel
            op._dispatch_cache.clear()
