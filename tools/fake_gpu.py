"""ATen graphs traced on the CPU as if their tensors were on a GPU, and what they are lowered to: shows what is
generated for a GPU without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from inductor.aot.decompositions import decompositions
from inductor.aot.functionalize import to_aten
from inductor.aot.joint import to_joint
from inductor.aot.partition import partition
from inductor.aot.random import seeded
from inductor.aot.training_decompositions import training_decompositions
from inductor.ir.nodes import GraphIR
from inductor.lower import lower_graph, separate_results
from inductor.passes import run_half_passes, run_joint_passes, run_passes, without_known_masks

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


def _stays(node: fx.Node) -> bool:
    """Whether a node has a value on the CPU, given that the nodes before it have been moved."""
    if node.op == "placeholder":
        value = node.meta.get("val")
        return isinstance(value, torch.Tensor) and not value.dim()
    given = [x for n in node.all_input_nodes for x in pytree.tree_leaves(n.meta.get("val"))]
    tensors = [x for x in given if isinstance(x, torch.Tensor)]
    return bool(tensors) and all(x.device.type == "cpu" for x in tensors)


def lowered_inference(gm: fx.GraphModule, inputs: Sequence[Any]) -> GraphIR:
    """The loop IR of a captured graph, without gradients."""
    plain = [x.detach() if isinstance(x, torch.Tensor) else x for x in inputs]
    with torch.no_grad():
        aten = to_aten(without_known_masks(gm), plain, decompositions())
    graph = on_gpu(aten.graph)
    seeded(graph)
    return lower_graph(run_passes(graph, aten.shared), aten.shared, aten.uncounted)


def lowered_training(gm: fx.GraphModule, inputs: Sequence[Any]) -> tuple[GraphIR, GraphIR]:
    """The loop IR of the forward and of the backward of a captured graph. Autocast is as the caller has set it."""
    joint = to_joint(without_known_masks(gm), inputs, training_decompositions())
    on_gpu(joint.graph)
    seeded(joint.graph)
    run_joint_passes(joint.graph)
    halves = partition(joint)
    return _lowered_half(halves.forward), _lowered_half(halves.backward)


def _lowered_half(half: fx.GraphModule) -> GraphIR:
    run_half_passes(half)
    return lower_graph(half, separate_results(half))
