"""ATen graphs traced on the CPU as if their tensors were on a GPU: for tests of what is generated for one, without one."""

from __future__ import annotations

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

GPU = torch.device("cuda:0")


def moved(value):
    """A fake tensor (or several) with its device changed to the GPU."""

    def move(x):
        if not isinstance(x, torch.Tensor):
            return x
        with torch.no_grad(), x.fake_mode:
            length = x.untyped_storage().nbytes() // x.dtype.itemsize
            bare = torch.empty(length, dtype=x.dtype, device="meta")
            bare = bare.as_strided(x.shape, x.stride(), x.storage_offset())
        return FakeTensor(x.fake_mode, bare, GPU)

    return pytree.tree_map(move, value)


def on_gpu(gm: fx.GraphModule) -> fx.GraphModule:
    """`gm`, whose nodes carry fake tensors of the CPU, changed to one of a GPU."""
    for node in gm.graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = moved(node.meta["val"])
        place = {name: GPU for name, value in node.kwargs.items() if isinstance(value, torch.device)}
        node.kwargs = {**node.kwargs, **place}
    gm.recompile()
    return gm
