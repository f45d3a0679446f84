"""Helpers that add nodes to a graph whose nodes carry fake tensors in `meta["val"]`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

from ..fx_utils.nodes import set_arguments
from ..process.import_stubs import stub_torch_compiler
from .torch_mistakes import without_mistakes
from .trace_memo import Results, call_key, new_results, results_to_make

# The attribute of a fake tensor mode that holds what calls return, by key; None where metadata do not say it all.
# It is not a dict of ours, because keys refer to the mode, which then would never be freed.
_KNOWN = "_results_of_calls"
_ORIGIN = ("stack_trace", "nn_module_stack", "backward")


@contextlib.contextmanager
def python_kernels(mode: FakeTensorMode) -> Iterator[None]:
    """If the mode has symbolic sizes, run Python kernels of operators where they exist, because some C++ kernels ask
    for concrete sizes. Python kernels whose results differ from ATen's are left out."""
    if mode.shape_env is None:
        yield
        return
    with without_mistakes(), enable_python_dispatcher():
        yield


def value_of(target: Any, args: Any, kwargs: Any) -> Any:
    """The result of an operator for the fake tensors that its arguments carry. Equal layers ask for the same results
    again and again, which are then made from what the first call returned."""
    args, kwargs = fx.map_arg((args, kwargs), lambda n: n.meta["val"])
    if target is torch.ops.aten.copy_.default:
        return args[0]
    leaves = pytree.tree_leaves((args, kwargs))
    mode = next((x.fake_mode for x in leaves if isinstance(x, FakeTensor)), None)
    if mode is None:
        return target(*args, **kwargs)
    known: dict[Any, Results | None] = vars(mode).setdefault(_KNOWN, {})
    key, tensors = call_key(target, args, kwargs)
    results = known.get(key) if key is not None else None
    if results is not None:
        return new_results(results, tensors, mode)
    with stub_torch_compiler, torch.no_grad(), mode, python_kernels(mode):
        value = target(*args, **kwargs)
    if key is not None and key not in known:
        known[key] = results_to_make(value, tensors)
    return value


def call(graph: fx.Graph, target: Any, *args: Any, like: fx.Node | None = None, **kwargs: Any) -> fx.Node:
    """Add a node at the graph's insertion point and compute its fake result. Stack trace, module stack and the
    `backward` mark of a joint graph are taken from `like`."""
    node = graph.call_function(target)
    set_arguments(node, args, kwargs)
    if like is not None:
        node.meta.update({k: v for k, v in like.meta.items() if k in _ORIGIN})
    node.meta["val"] = value_of(target, args, kwargs)
    return node


def copied(graph: fx.Graph, node: fx.Node, copy_of: Callable[[fx.Node], fx.Node]) -> fx.Node:
    """A copy of a node of another graph, like `Graph.node_copy`, without its search for symbols."""
    copy = graph.create_node(node.op, node.target, name=node.name, type_expr=node.type)
    set_arguments(copy, *fx.map_arg((node.args, node.kwargs), copy_of))
    copy.meta.update(node.meta)
    return copy


def device_of(node: fx.Node) -> torch.device | None:
    """The device of a node's value, or of its first item; None if that is not a tensor."""
    val = node.meta.get("val")
    first = val[0] if isinstance(val, tuple | list) and val else val
    return first.device if isinstance(first, torch.Tensor) else None
