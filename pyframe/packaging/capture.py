"""A whole graph as the input of a package: what of it the plan takes, and how its results become those of a call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from inductor.package.errors import PackageError
from inductor.subclasses.wrapper_tensors import is_wrapper

from ..export import assumptions
from ..export.whole_graph import GraphInput, WholeGraph, whole_graph
from ..signature.conditions import Condition, InputSpec, Size, Value
from . import sizes

# Operators of conditions that the C++ runner computes, on 64-bit ints.
_OPERATORS = frozenset("+ - * // % min max neg abs not == != < <= > >= and or is".split()) | {"is not"}


@dataclass
class Capture:
    """`graph` takes first the leaves of the arguments that it uses, in the order of `leaves`, then `constants`.

    `examples`: the graph's inputs as fake tensors and symbolic ints, `inputs`: the real ones. `names`: of the
    constants. `whole`: the signature and the structure of the result, whose leaves are `returned`: for each a kind
    ("result" of the graph, "argument" or "fixed", a constant) and its number. `specs` and `conditions`: what a call
    must be.
    """

    graph: fx.GraphModule
    whole: WholeGraph
    leaves: list[int]
    examples: list[Any]
    inputs: list[Any]
    constants: list[torch.Tensor]
    names: list[str]
    specs: list[InputSpec]
    returned: list[list[Any]] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)


def capture(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], dynamic: Any) -> Capture:
    """`f` as one graph for calls like `f(*args, **kwargs)`, without gradients. `dynamic`: as for `package`. Unsupported
    and UserError as for `pyframe.export`; PackageError if a package cannot hold the program."""
    with torch.no_grad():
        whole = whole_graph(f, args, kwargs, sizes.by_parameter(dynamic, f, args, kwargs))
    return _Selection(whole).capture()


class _Selection:
    """Keeps of a whole graph what a plan computes."""

    def __init__(self, whole: WholeGraph) -> None:
        self.whole, self.graph = whole, whole.graph_module.graph
        nodes = self.graph.find_nodes(op="placeholder")
        self.inputs: dict[fx.Node, GraphInput] = dict(zip(nodes, whole.inputs, strict=True))

    def capture(self) -> Capture:
        whole = self.whole
        outputs = self._returned_as_they_are()
        given = [(node, each) for node, each in self.inputs.items() if node.users and each.leaf is not None]
        fixed = [(node, each) for node, each in self.inputs.items() if node.users and each.leaf is None]
        kept = {id(each.value) for _, each in fixed}
        for node in outputs.values():  # constants that are results, and that the plan does not read
            each = self.inputs[node]
            if each.leaf is None and id(each.value) not in kept:
                kept.add(id(each.value))
                fixed.append((node, each))
        returned = self._returned(outputs, [each for _, each in fixed])
        order = [node for node, _ in (*given, *fixed)]
        self._keep(order)
        specs = assumptions.input_specs(whole)
        leaves = [each.leaf for _, each in given if each.leaf is not None]
        constants = [each.value for _, each in fixed if each.value is not None]
        real = [whole.leaves[leaf].example for leaf in leaves]
        for name, x in ((whole.leaves[leaf].name, whole.leaves[leaf].example) for leaf in leaves):
            _check_tensor(x, name)
        for _, each in fixed:
            _check_tensor(each.value, each.name)
        return Capture(
            whole.graph_module, whole, leaves, [each.fake for _, each in (*given, *fixed)], [*real, *constants],
            constants, [each.name for _, each in fixed], specs, returned,
            [_checked(each) for each in assumptions.conditions(whole, specs)],
        )  # fmt: skip

    def _returned_as_they_are(self) -> dict[int, fx.Node]:
        """Take the placeholders out of the results of the graph: by their place, what they were."""
        (output,) = self.graph.find_nodes(op="output")
        results = list(output.args[0])
        found = {place: node for place, node in enumerate(results) if node in self.inputs}
        for node in results:
            value = node.meta.get("val") if isinstance(node, fx.Node) else node
            if not isinstance(value, torch.Tensor):
                raise PackageError("a result is a number that depends on sizes which vary; return a tensor")
        output.args = (tuple(node for node in results if node not in self.inputs),)
        if all(node.op in ("placeholder", "output") for node in self.graph.nodes):
            raise PackageError("the function computes nothing")
        return found

    def _returned(self, outputs: Mapping[int, fx.Node], fixed: Sequence[GraphInput]) -> list[list[Any]]:
        """The kind and the number of each leaf of the result."""
        found: list[list[Any]] = []
        (output,) = self.graph.find_nodes(op="output")
        computed = itertools.count()
        for place in range(len(outputs) + len(output.args[0])):
            each = self.inputs[outputs[place]] if place in outputs else None
            if each is None:
                found.append(["result", next(computed)])
            elif each.leaf is not None:
                found.append(["argument", each.leaf])
            else:
                found.append(["fixed", next(k for k, known in enumerate(fixed) if known.value is each.value)])
        return found

    def _keep(self, order: Sequence[fx.Node]) -> None:
        """Put the placeholders in this order, without those that are not in it, which nothing reads."""
        for node in set(self.inputs).difference(order):
            self.graph.erase_node(node)
        for before, node in itertools.pairwise(order):
            before.append(node)
        self.whole.graph_module.recompile()


def _check_tensor(x: Any, where: str) -> None:
    if isinstance(x, torch.Tensor) and (
        x.layout is not torch.strided or is_wrapper(x) or type(x) not in (torch.Tensor, nn.Parameter)
    ):
        raise PackageError(f"{where} is not a plain tensor: {type(x).__qualname__}, {x.layout}")


def _checked(condition: Condition) -> Condition:
    """A condition that the C++ runner can compute. PackageError for another one."""

    def check(term: Any) -> None:
        if isinstance(term, tuple):
            if term[0] not in _OPERATORS:
                raise PackageError(f"a condition with {term[0]!r}, which a package cannot hold: {condition.text}")
            for part in term[1:]:
                check(part)
        elif not isinstance(term, Size | Value | int):
            raise PackageError(f"a condition with the number {term!r}, which a package cannot hold: {condition.text}")

    check(condition.term)
    return condition
