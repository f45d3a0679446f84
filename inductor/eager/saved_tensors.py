"""What happens around a call to the tensors that autograd saves in it.

A checkpoint (`torch.utils.checkpoint` with `use_reentrant=False`) counts them, repeats the call in the backward pass
and takes the tensors that are saved then. So both calls have to run the same operators: not ATen's in one and a
compiled graph in the other, which save different tensors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.autograd.graph import saved_tensors_hooks


def saving_is_observed() -> bool:
    """Whether hooks of `torch.autograd.graph.saved_tensors_hooks`, as a checkpoint's, are active in this thread."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


@contextlib.contextmanager
def unobserved_saving() -> Iterator[None]:
    """In the block such hooks see nothing: for a run that the program did not ask for."""
    if not saving_is_observed():
        yield
        return
    with saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        yield
