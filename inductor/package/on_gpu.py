"""Moves an ATen graph that was traced on the CPU to a GPU, which need not exist."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from ..errors import Unsupported

GPU = torch.device("cuda:0")


def moved(value: Any) -> Any:
    """A fake tensor (or several) with its device changed to the GPU."""

    def move(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        with torch.no_grad(), x.fake_mode:  # type: ignore[attr-defined]
            length = x.untyped_storage().nbytes() // x.dtype.itemsize
            bare = torch.empty(length, dtype=x.dtype, device="meta")
            bare = bare.as_strided(x.shape, x.stride(), x.storage_offset())
        return FakeTensor(x.fake_mode, bare, GPU)  # type: ignore[attr-defined]

    return pytree.tree_map(move, value)


def on_gpu(gm: fx.GraphModule, numbers_on_cpu: bool = False) -> fx.GraphModule:
    """`gm`, whose nodes carry fake tensors of the CPU, changed to one of a GPU. `numbers_on_cpu`: inputs of no
    dimensions, and what is computed from them alone, stay on the CPU."""
    for node in gm.graph.nodes:
        if numbers_on_cpu and _stays(node):
            continue
        if "val" in node.meta:
            node.meta["val"] = moved(node.meta["val"])
        place = {name: GPU for name, value in node.kwargs.items() if isinstance(value, torch.device)}
        node.kwargs = {**node.kwargs, **place}
    gm.recompile()
    return gm


def for_gpu(gm: fx.GraphModule) -> fx.GraphModule:
    """`on_gpu`, with attention by the operator that chooses its kernel when it is called: tracing on the CPU has chosen
    one of the CPU. Unsupported where the logarithms that only that one returns are used, and for operators of oneDNN,
    which no GPU has."""
    for node in gm.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace in _ONEDNN:
            raise Unsupported(f"the operator {node.target} on a GPU")
    for node in gm.graph.find_nodes(op="call_function", target=_CPU_ATTENTION):
        if any(user.target is not operator.getitem or user.args[1] != 0 for user in node.users):
            raise Unsupported("attention on a GPU, with what its backward needs")
        given = dict(zip(("query", "key", "value", "dropout_p", "is_causal"), node.args)) | node.kwargs
        with gm.graph.inserting_before(node):
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
            args = [given.get(name, default) for name, default in zip(names, (None, None, None, None, 0.0, False))]
            kwargs = {"scale": given["scale"]} if "scale" in given else {}
            found = gm.graph.call_function(torch.ops.aten.scaled_dot_product_attention.default, tuple(args), kwargs)
        found.meta = {**node.meta, "val": node.meta["val"][0]}
        for user in list(node.users):
            user.replace_all_uses_with(found)
            gm.graph.erase_node(user)
        gm.graph.erase_node(node)
    return on_gpu(gm)


_ONEDNN = ("mkldnn", "onednn")
_CPU_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def _stays(node: fx.Node) -> bool:
    """Whether a node has a value on the CPU, given that the nodes before it have been moved."""
    if node.op == "placeholder":
        value = node.meta.get("val")
        return isinstance(value, torch.Tensor) and not value.dim()
    given = [x for n in node.all_input_nodes for x in pytree.tree_leaves(n.meta.get("val"))]
    tensors = [x for x in given if isinstance(x, torch.Tensor)]
    return bool(tensors) and all(x.device.type == "cpu" for x in tensors)
