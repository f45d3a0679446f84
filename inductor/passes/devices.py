"""Tensors on the CPU among those of a GPU: constants, such as the numbers and lists of an index or an assignment, and
0-d tensors, which operators take beside tensors of any device."""

from __future__ import annotations

import operator

import torch
from torch import fx

from ..aot.calls import call, value_of

aten = torch.ops.aten
_COPIES = (aten.lift_fresh_copy.default, aten._to_copy.default, aten.clone.default)


def on_one_device(gm: fx.GraphModule) -> bool:
    """Makes the operands of operators on a GPU lie there: constants for good, other tensors by a copy at each call, so
    that kernels see one device. Whether anything was changed."""
    devices = {_device(node) for node in gm.graph.nodes} - {None}
    gpus = {d for d in devices if d is not None and d.type == "cuda"}
    if len(devices) < 2 or len(gpus) != 1:  # noqa: PLR2004
        return False
    (gpu,) = gpus
    changed = False
    for node in list(gm.graph.nodes):
        if node.op == "get_attr" and _is_on_cpu(node) and _serves_gpu(node, gpu):
            _move_constant(gm, node, gpu)
            changed = True
    for node in list(gm.graph.nodes):
        users = [u for u in node.users if _device(u) == gpu and u.target is not aten._to_copy.default]
        if _is_on_cpu(node) and users:
            with gm.graph.inserting_after(node):
                copy = call(gm.graph, aten._to_copy.default, node, device=gpu, like=node)
            for user in users:
                user.replace_input_with(node, copy)
            changed = True
    if changed:
        gm.graph.eliminate_dead_code()
        gm.recompile()
    return changed


def _device(node: fx.Node) -> torch.device | None:
    """Where the value of a node is, the first one if it has several; None for what is no tensor."""
    val = node.meta.get("val")
    first = val[0] if isinstance(val, tuple | list) and val else val
    return first.device if isinstance(first, torch.Tensor) else None


def _is_on_cpu(node: fx.Node) -> bool:
    val = node.meta.get("val")
    return isinstance(val, torch.Tensor) and val.device.type == "cpu"


def _serves_gpu(node: fx.Node, gpu: torch.device) -> bool:
    """Whether all that is made of a constant, but copies of it, is on the GPU."""
    return bool(node.users) and all(
        _device(user) == gpu or user.target in _COPIES and _serves_gpu(user, gpu) for user in node.users
    )


def _move_constant(gm: fx.GraphModule, node: fx.Node, gpu: torch.device) -> None:
    """The constant of a `get_attr` node, and copies of it, on the GPU."""
    name = f"{str(node.target).replace('.', '_')}_on_gpu"
    setattr(gm, name, operator.attrgetter(str(node.target))(gm).detach().to(gpu))
    node.target = name
    node.meta["val"] = value_of(aten._to_copy.default, (node,), {"device": gpu})
    copies = list(node.users)
    while copies:
        copy = copies.pop()
        if _is_on_cpu(copy):
            copy.meta["val"] = value_of(copy.target, copy.args, copy.kwargs)
            copies.extend(copy.users)
