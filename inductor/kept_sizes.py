"""A graph whose sizes vary as data: its nodes, and its inputs with sizes that are expressions over symbols.

`sized` describes the inputs that a graph was captured for. `rebuilt` makes inputs like these in another process, with
symbols of their own, for which the graph is compiled as if it had been captured there; what is compiled is found in the
disk cache, because the symbols have the values of the first capture as hints.
"""

from __future__ import annotations

import functools
import marshal
import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import DimDynamic, free_unbacked_symbols
from torch.utils._sympy import functions

from .aot.fake import fake_mode
from .cache.graph_data import NotData, graph_as_data, graph_of
from .dynamic.shape_env import LightShapeEnv, Named
from .kept_graph import are_present, gpus_of
from .process.import_stubs import stub_torch_compiler

_OPERATORS: dict[Any, str] = {
    sympy.Add: "+", sympy.Mul: "*", functions.FloorDiv: "//", functions.CleanDiv: "//", sympy.Mod: "%",
    functions.Mod: "%", functions.PythonMod: "%",
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
}  # fmt: skip
_MOST_FACTORS = 8  # of a power


def sized(gm: fx.GraphModule, examples: Sequence[Any]) -> tuple[Any, ...]:
    """A graph and its example inputs, fake tensors and SymInts, as data. NotData, which says why, if that is
    impossible."""
    symbols: dict[sympy.Symbol, int] = {}
    hints: list[int] = []

    def number(value: Any) -> Any:
        if type(value) is int:
            return value
        if not isinstance(value, torch.SymInt) or not value.node.has_hint() or free_unbacked_symbols(value):
            raise NotData("a size that depends on data")
        env = value.node.shape_env
        for symbol in sorted(value.node.expr.free_symbols, key=str):
            if symbol not in symbols:
                symbols[symbol] = len(hints)
                hints.append(int(env.create_symintnode(symbol, hint=None).node.hint))
        return _expression(value.node.expr, symbols)

    inputs = [_input(example, number) for example in examples]
    return marshal.dumps(graph_as_data(gm)), tuple(hints), tuple(inputs), gpus_of(gm, examples)


def _input(example: Any, number: Callable[[Any], Any]) -> tuple[Any, ...]:
    if isinstance(example, torch.SymInt):
        return ("number", number(example))
    if not isinstance(example, torch.Tensor):
        raise NotData(f"a graph that takes a number of type {type(example).__name__} that varies")
    if type(example) is not FakeTensor or example.layout is not torch.strided:
        raise NotData(f"an input of class {type(example).__name__}")
    sizes, strides = tuple(map(number, example.shape)), tuple(map(number, example.stride()))
    dtype = str(example.dtype).removeprefix("torch.")
    return "tensor", dtype, str(example.device), sizes, strides, example.requires_grad, example.is_leaf


def _expression(expr: Any, symbols: dict[sympy.Symbol, int]) -> Any:
    """An int, or a tuple: ("symbol", number), or an operator and its operands."""
    if isinstance(expr, sympy.Integer):
        return int(expr)
    if isinstance(expr, sympy.Symbol):
        return ("symbol", symbols[expr])
    if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and 0 < int(expr.exp) < _MOST_FACTORS:
        return ("*", *[_expression(expr.base, symbols)] * int(expr.exp))
    op = _OPERATORS.get(type(expr))
    if op is None:
        raise NotData(f"a size that is {expr}")
    return (op, *(_expression(each, symbols) for each in expr.args))


def rebuilt(data: tuple[Any, ...]) -> tuple[fx.GraphModule, list[Any]] | None:
    """The graph of what `sized` returned, and its example inputs; None if this process sees other GPUs."""
    nodes, hints, inputs, gpus = data
    if not are_present(gpus):
        return None
    gm = graph_of(marshal.loads(nodes))
    env = LightShapeEnv()
    mode = fake_mode(shape_env=env)
    with stub_torch_compiler:
        created = [env.create_symbol(hint, Named(f"s{k}"), DimDynamic.DYNAMIC) for k, hint in enumerate(hints)]
        symbols = [env.create_symintnode(symbol, hint=hint) for symbol, hint in zip(created, hints, strict=True)]
        with torch.inference_mode(False), mode:
            examples = [_example(each, symbols) for each in inputs]
    for node, example in zip(gm.graph.find_nodes(op="placeholder"), examples, strict=True):
        node.meta["val"] = example
    return gm, examples


def _example(described: tuple[Any, ...], symbols: Sequence[Any]) -> Any:
    kind, *parts = described
    if kind == "number":
        return _number(parts[0], symbols)
    dtype, device, sizes, strides, requires_grad, is_leaf = parts
    numbers = ([_number(each, symbols) for each in given] for given in (sizes, strides))
    fake = torch.empty_strided(*numbers, dtype=getattr(torch, dtype), device=device)
    if not requires_grad:
        return fake
    fake.requires_grad_()
    if is_leaf:
        return fake
    with torch.enable_grad():
        return fake.clone()


def _number(data: Any, symbols: Sequence[Any]) -> Any:
    if type(data) is int:
        return data
    op, *operands = data
    if op == "symbol":
        return symbols[operands[0]]
    return functools.reduce(_FUNCTIONS[op], (_number(each, symbols) for each in operands))
