"""Computes with complex numbers as pairs of real tensors, so that operators on them become loops.

Loops have no complex dtypes. `parts_of_complex` gives each complex value that a rule of `complex_rules` computes a pair
of nodes, its real and its imaginary part. Complex inputs and results of other operators are read in place, as memory of
real numbers (`aten.view_as_real`, a view); where another operator, a write or a result of the graph needs complex
numbers, the pair is written to memory as such (`aten.complex`). The results have the values, special values included,
of ATen's kernels. complex32 is left to ATen.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ..fx_utils.arguments import node_at
from ..fx_utils.dead_code import remove_unused
from ..fx_utils.views import ANY_VIEW, operator_name
from ..ir.buffer import part_dtype
from .common import aten
from .complex_rules import PAIRS, REALS, VIEWS, Arithmetic, Pair, Part, Unmatched

_ORIGIN = ("stack_trace", "nn_module_stack", "backward")
_DTYPES = (torch.complex64, torch.complex128)


def parts_of_complex(gm: fx.GraphModule) -> bool:
    """Replaces complex operators of an ATen graph without gradients. Returns whether there was one.

    Nodes carry fake tensors. Results keep their strides and which of them share memory.
    """
    if not any(_is_complex(node) for node in gm.graph.nodes):
        return False
    _Complex(gm.graph).run()
    gm.graph.lint()
    gm.recompile()
    return True


def _is_complex(node: fx.Node) -> bool:
    val = node.meta.get("val")
    return isinstance(val, torch.Tensor) and val.dtype.is_complex


class _Complex:
    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.pairs: dict[fx.Node, Pair] = {}  # of the values that a rule computes
        self.leaves: dict[fx.Node, Pair] = {}  # of the values that are complex numbers in memory
        self.reals: dict[fx.Node, fx.Node] = {}  # what replaces real results of complex operands, and views of them
        self.interleaved: dict[fx.Node, Pair] = {}  # the parts of which such replacements consist

    def run(self) -> None:
        nodes = list(self.graph.nodes)
        for node in nodes:
            if node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor):
                self.rewrite(node)
        for node in reversed(nodes):
            self.settle(node)
        remove_unused(self.graph)

    def rewrite(self, node: fx.Node) -> None:
        """Adds the nodes that compute a complex node's parts, or the real result of complex operands."""
        if node.target in PAIRS and _is_complex(node) and self.supported(node):
            pair = self.by_rule(PAIRS[node.target], node)
            if pair is not None:
                self.pairs[node] = pair
        elif node.target in REALS and any(map(_is_complex, node.all_input_nodes)) and self.supported(node):
            real = self.by_rule(REALS[node.target], node)
            if real is not None:
                self.reals[node] = real
        elif operator_name(node) in ANY_VIEW and self.real_source(node) is not None:
            self.reals[node] = self.view_of_real(node)
        elif operator_name(node) not in ANY_VIEW and node.target is not aten.copy_.default:
            for arg in node.all_input_nodes:
                if arg in self.reals:
                    node.replace_input_with(arg, self.reals[arg])

    def supported(self, node: fx.Node) -> bool:
        """Whether all complex values are of a dtype with rules, and all tensors are on one device."""
        given = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
        vals = [val for val in given if isinstance(val, torch.Tensor)]
        if len(vals) != len(given):
            return False
        kinds = {val.dtype for val in vals if val.dtype.is_complex}
        return kinds <= set(_DTYPES) and len({val.device for val in vals}) == 1

    def by_rule(self, rule: Any, node: fx.Node) -> Any:
        """The result of a rule; None if it does not fit the arguments."""
        with self.graph.inserting_before(node):
            try:
                return rule(Builder(self, node), node)
            except Unmatched:
                return None  # nodes that it has added have no users

    def real_source(self, node: fx.Node) -> fx.Node | None:
        source = node.args[0]
        return self.reals.get(source) if isinstance(source, fx.Node) else None

    def view_of_real(self, node: fx.Node) -> fx.Node:
        """The same view of what replaces its source: of the two parts that were stacked, one is taken without that."""
        source = self.reals[node_at(node)]
        if node.target is aten.select.int and source in self.interleaved:
            if node.args[1] in (-1, source.meta["val"].dim() - 1):
                return self.interleaved[source][node.args[2]]  # type: ignore[index]
        with self.graph.inserting_before(node):
            view = Builder(self, node).emit(node.target, source, *node.args[1:])
        view.kwargs = node.kwargs
        return view

    def parts(self, node: fx.Node) -> Pair:
        """The parts of a complex node; those of one without a rule are read from its memory."""
        if node in self.pairs:
            return self.pairs[node]
        if node not in self.leaves:
            after = node
            while after.op in ("placeholder", "get_attr") and after.next.op in ("placeholder", "get_attr"):
                after = after.next
            with self.graph.inserting_after(after):
                whole = self.graph.call_function(aten.view_as_real.default, (node,))
            whole.meta["val"] = torch.view_as_real(node.meta["val"])
            taken = []
            for k in (1, 0):
                with self.graph.inserting_after(whole):
                    taken.append(self.graph.call_function(aten.select.int, (whole, -1, k)))
                taken[-1].meta["val"] = whole.meta["val"].select(-1, k)
            for each in (whole, *taken):
                each.meta |= {k: v for k, v in node.meta.items() if k in _ORIGIN}
            self.leaves[node] = (taken[1], taken[0])
        return self.leaves[node]

    def settle(self, node: fx.Node) -> None:
        """Removes a node that is not needed any more; one whose complex numbers are needed writes its pair to memory.

        A view remains a view of its source, which is then needed as complex numbers.
        """
        replaced = node in self.pairs or node in self.reals
        if not node.users and (replaced or node.op == "call_function" and not node.is_impure()):
            self.graph.erase_node(node)
        elif node in self.pairs and node.target not in VIEWS:
            with self.graph.inserting_before(node):
                stored = self.graph.call_function(aten.complex.default, self.pairs[node])
            stored.meta = dict(node.meta)
            node.replace_all_uses_with(stored)
            self.graph.erase_node(node)
        elif node in self.reals and operator_name(node) not in ANY_VIEW:
            node.replace_all_uses_with(self.reals[node])
            self.graph.erase_node(node)


class Builder(Arithmetic):
    """Adds the nodes that replace one node. Their fake results are like its own, with the dtype of its parts."""

    def __init__(self, pairs: _Complex, node: fx.Node) -> None:
        val = node.meta["val"]
        self.pairs, self.node, self.dtype = pairs, node, part_dtype(val.dtype)
        if not val.dtype.is_complex:  # the real result of complex operands
            given = [x.meta["val"].dtype for x in node.all_input_nodes if _is_complex(x)]
            self.dtype = max(map(part_dtype, given), key=lambda dtype: dtype.itemsize) if given else val.dtype

    def emit(
        self, target: Any, *args: Any, dtype: torch.dtype | None = None, like: Any = None, **kwargs: Any
    ) -> fx.Node:
        """A node whose result has the size of the replaced node's, or of `like`, and this dtype."""
        val = self.node.meta["val"] if like is None else like
        node = self.pairs.graph.call_function(target)
        node.args, node.kwargs = args, kwargs
        node.meta |= {k: v for k, v in self.node.meta.items() if k in _ORIGIN}
        node.meta["val"] = val.new_empty_strided(val.shape, val.stride(), dtype=dtype or self.dtype)
        return node

    def operand(self, x: Any) -> tuple[Part, Part]:
        """The parts of a tensor or number in the dtype of the result's parts."""
        if not isinstance(x, fx.Node):
            if not isinstance(x, int | float | complex):
                raise Unmatched
            number = complex(x)
            return number.real, number.imag
        if not isinstance(x.meta.get("val"), torch.Tensor):
            raise Unmatched
        if _is_complex(x):
            re, im = self.pairs.parts(x)
            return self.converted(re), self.converted(im)
        return self.converted(self.pairs.reals.get(x, x)), 0.0

    def converted(self, x: fx.Node) -> fx.Node:
        """A real tensor in the dtype of the result's parts."""
        if x.meta["val"].dtype == self.dtype:
            return x
        copy = self.emit(aten._to_copy.default, x, like=x.meta["val"])
        copy.kwargs = {"dtype": self.dtype}
        return copy

    def interleaved(self, x: Any) -> fx.Node:
        """The parts of a complex tensor along a new last dimension, in new memory."""
        parts = self.pairs.parts(x)
        if x in self.pairs.pairs:
            made = self.emit(aten.stack.default, list(parts), -1)
        else:
            made = self.emit(aten.clone.default, parts[0].args[0])
            made.kwargs = {"memory_format": torch.contiguous_format}
        self.pairs.interleaved[made] = parts
        return made

    def part_args(self, k: int) -> tuple[Any, ...]:
        """The arguments of the replaced node with part `k` of each complex tensor. Unmatched if a real floating-point
        tensor is among them, which ATen would convert."""

        def part(x: fx.Node) -> Any:
            val = x.meta.get("val")
            if _is_complex(x):
                return self.pairs.parts(x)[k]
            if not isinstance(val, torch.Tensor) or val.dtype.is_floating_point:
                if isinstance(val, torch.Tensor):
                    raise Unmatched
            return x

        return fx.map_arg(self.node.args, part)
