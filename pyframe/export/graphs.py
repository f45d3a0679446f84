"""Graphs as JSON data, and back. Nothing here calls what the data names; `targets` decides which operators a graph may
have."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from inductor.eager.transforms import GradAndValue, Vmapped
from inductor.modes import graph_module

from ..errors import UserError
from ..signature.data import decode, encode
from . import targets


def _check_names(op: str, target: Any, kwargs: Any) -> None:
    """UserError for names that are not those of variables and attributes: torch.fx writes them into Python code."""
    names: list[Any] = [*kwargs] if isinstance(kwargs, dict) else [None]
    names += [target] if op == "placeholder" else str(target).split(".") if op == "get_attr" else []
    for name in names:
        valid = isinstance(name, str) and (name.isidentifier() or op == "get_attr" and name.isdigit())
        if not valid or keyword.iskeyword(name):
            raise UserError(f"the file is damaged: {name!r} is no name")


def encode_graph(module: fx.GraphModule) -> dict[str, Any]:
    """A graph with the graphs that its operators take."""
    children = {name: child for name, child in module.named_children() if isinstance(child, fx.GraphModule)}
    if getattr(module, "settings", ()):
        raise UserError("export: a program that changes settings of the process cannot be saved")
    return {
        "nodes": [_encode_node(node) for node in module.graph.nodes],
        "graphs": {name: encode_graph(child) for name, child in children.items()},
    }


def _encode_node(node: fx.Node) -> dict[str, Any]:
    target: Any = node.target
    if isinstance(target, Vmapped):
        dims = {"in": encode(target.in_dims), "out": encode(target.out_dims)}
        rest = {"randomness": target.randomness, "chunk": target.chunk_size, "label": target.label}
        target = {"vmap": {"graph": encode_graph(target.gm), **dims, **rest}}
    elif isinstance(target, GradAndValue):
        target = {"gradients": {"graph": encode_graph(target.gm), "of": list(target.places), "label": target.label}}
    elif node.op == "call_function":
        target = targets.name_of(target)
    data = {"op": node.op, "name": node.name, "target": target, "args": encode(node.args)}
    if node.kwargs:
        data["kwargs"] = encode(node.kwargs)
    if node.meta.get("stack_trace"):
        data["trace"] = node.meta["stack_trace"]
    return data


def decode_graph(data: Mapping[str, Any], root: torch.nn.Module) -> fx.GraphModule:
    """The graph that `encode_graph` gave as `data`. `root` has the tensors that it reads. UserError for operators that
    a saved graph may not have."""
    for name, child in data["graphs"].items():
        setattr(root, name, decode_graph(child, torch.nn.Module()))
    graph, nodes = fx.Graph(), dict[str, fx.Node]()
    for each in data["nodes"]:
        op, args, kwargs = each["op"], decode(each["args"], nodes), decode(each.get("kwargs", {"dict": []}), nodes)
        target: Any = each["target"]
        _check_names(op, target, kwargs)
        if op == "output":
            graph.output(*args)
            continue
        if op == "call_function":
            target = _transform(target) if isinstance(target, dict) else targets.target_of(target)
            if target is getattr:
                targets.check_attribute(args[1])
        elif op == "call_method":
            targets.check_method(target)
        elif op not in ("placeholder", "get_attr"):
            raise UserError(f"the file is damaged: unknown operation {op!r}")
        node = graph.create_node(op, target, args, kwargs, name=each["name"])
        if "trace" in each:
            node.meta["stack_trace"] = each["trace"]
        nodes[each["name"]] = node
    graph.lint()
    return graph_module(root, graph)


def _transform(data: Any) -> Vmapped | GradAndValue:
    """A transform of a graph. UserError for data that is none."""
    ((kind, content),) = data.items()
    if kind not in ("vmap", "gradients"):
        raise UserError(f"the file is damaged: unknown operation {kind!r}")
    graph = decode_graph(content["graph"], torch.nn.Module())
    made: Vmapped | GradAndValue
    if kind == "gradients":
        made = GradAndValue(graph, content["of"])
    else:
        settings = content["randomness"], content["chunk"]
        made = Vmapped(graph, decode(content["in"]), decode(content["out"]), *settings)
    made.label = content["label"]
    return made
