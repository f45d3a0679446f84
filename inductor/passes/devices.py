"""Moves CPU operands of GPU operators to the GPU, so that kernels see tensors of one device.

Such operands are constants, for example the numbers and lists of an indexing expression or assignment, and 0-d tensors,
which operators accept together with tensors of any device. A copy of a 0-d tensor needs no memory on the GPU: kernels
that read it take the number as an argument (`_number_on_gpu` in `lower/pointwise.py`).
"""

from __future__ import annotations

import contextlib
import operator
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from ..aot.calls import call, device_of, value_of
from ..fx_utils.dead_code import remove_unused

aten = torch.ops.aten
_COPIES = (aten.lift_fresh_copy.default, aten._to_copy.default, aten.clone.default)


def on_one_device(gm: fx.GraphModule) -> bool:
    """Moves CPU operands of GPU operators to the GPU. Returns whether anything was changed.

    Constants are moved once, factories create their results on the GPU, and other tensors are copied at each call.
    """
    devices = {device_of(node) for node in gm.graph.nodes} - {None}
    gpus = {d for d in devices if d is not None and d.type == "cuda"}
    if len(devices) < 2 or len(gpus) != 1:  # noqa: PLR2004
        return False
    (gpu,) = gpus
    changed = False
    for node in list(gm.graph.nodes):
        if _is_on_cpu(node) and _is_constant(node) and _serves_gpu(node, gpu):
            _move_constant(gm, node, gpu)
            changed = True
    for node in list(gm.graph.nodes):
        users = [u for u in node.users if device_of(u) == gpu and u.target is not aten._to_copy.default]
        if _is_on_cpu(node) and users:
            with gm.graph.inserting_after(node):
                copy = call(gm.graph, aten._to_copy.default, node, device=gpu, like=node)
            for user in users:
                user.replace_input_with(node, copy)
            changed = True
    for node in list(gm.graph.nodes):
        changed |= _sum_on_gpu(gm.graph, node)
    if changed:
        remove_unused(gm.graph)
        gm.recompile()
    return changed


def _is_on_cpu(node: fx.Node) -> bool:
    val = node.meta.get("val")
    return isinstance(val, torch.Tensor) and val.device.type == "cpu"


def _is_constant(node: fx.Node) -> bool:
    """Whether a node is a tensor attribute of the graph, or a deterministic factory: an operator with a `device`
    argument and without tensor arguments."""
    if node.op == "get_attr":
        return True
    if not isinstance(node.target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded in node.target.tags:
        return False
    takes_device = any(argument.name == "device" for argument in node.target._schema.arguments)
    return takes_device and not any(isinstance(x.meta.get("val"), torch.Tensor) for x in node.all_input_nodes)


def _serves_gpu(node: fx.Node, gpu: torch.device) -> bool:
    """Whether all users of a constant are on the GPU, looking through copies of it."""
    return bool(node.users) and all(
        device_of(user) == gpu or user.target in _COPIES and _serves_gpu(user, gpu) for user in node.users
    )


def _move_constant(gm: fx.GraphModule, node: fx.Node, gpu: torch.device) -> None:
    """Moves a constant and its copies to the GPU."""
    if node.op == "get_attr":
        name = f"{str(node.target).replace('.', '_')}_on_gpu"
        setattr(gm, name, operator.attrgetter(str(node.target))(gm).detach().to(gpu))
        node.target = name
        node.meta["val"] = value_of(aten._to_copy.default, (node,), {"device": gpu})
    else:
        node.kwargs = {**node.kwargs, "device": gpu}
        fake = node.meta["val"]
        with fake.fake_mode if isinstance(fake, FakeTensor) else contextlib.nullcontext():
            node.meta["val"] = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=gpu)
    copies = list(node.users)
    while copies:
        copy = copies.pop()
        if _is_on_cpu(copy):
            copy.meta["val"] = value_of(copy.target, copy.args, copy.kwargs)
            copies.extend(copy.users)


def _sum_on_gpu(graph: fx.Graph, node: fx.Node) -> bool:
    """If `node` adds two CPU copies of GPU tensors, adds on the GPU and copies the sum. Returns whether it did.

    Such a sum arises for example in the gradient of a 0-d CPU tensor.
    """
    if node.target is not aten.add.Tensor or not _is_on_cpu(node):
        return False
    parts = [_copied_from_gpu(x) for x in node.args]
    if any(part is None for part in parts):
        return False
    val = node.meta["val"]
    with graph.inserting_before(node):
        added = call(graph, aten.add.Tensor, *parts, like=node, **node.kwargs)
        copy = call(graph, aten._to_copy.default, added, device=val.device, like=node)
    node.replace_all_uses_with(copy)
    return True


def _copied_from_gpu(node: Any) -> fx.Node | None:
    """The GPU tensor of which `node` is a CPU copy with the same dtype, or None."""
    if not isinstance(node, fx.Node) or node.target is not aten._to_copy.default:
        return None
    source = node.args[0]
    assert isinstance(source, fx.Node)
    device = device_of(source)
    same = source.meta["val"].dtype == node.meta["val"].dtype
    return source if same and device is not None and device.type == "cuda" and _is_on_cpu(node) else None
