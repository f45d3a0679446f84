"""Symbolic sizes of a graph compiled for many sizes: SymInts while it is traced, `Size`s when it is lowered."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic
from torch.utils import _pytree as pytree
from torch.utils._sympy import functions

from ..aot.fake import fake_mode
from ..errors import Unsupported
from ..ir.real import AnyReal, Real
from ..ir.size import AnySize, Program, SizeEnv, named, scaled
from ..ir.sized import SizedTensor
from ..ir.substitute import replaced
from ..process.import_stubs import stub_torch_compiler
from .shape_env import LightShapeEnv, Named


class Symbols:
    """The symbols of one compilation; each has three forms: a sympy symbol, a SymInt, and a Size."""

    def __init__(self) -> None:
        self.shapes = LightShapeEnv()
        self.sizes = SizeEnv()
        self.mode: FakeTensorMode = fake_mode(shape_env=self.shapes)
        self._of: dict[Any, AnySize] = {}
        self._hints: dict[Any, int] = {}  # the symbols' values at the first call
        self._vals: dict[int, tuple[Any, Any]] = {}

    def symbol(self, name: str, value: int, least: int) -> torch.SymInt:
        """Create the SymInt of a number that is at least `least` (2 at most) and is `value` at the first call."""
        with stub_torch_compiler:
            symbol = self.shapes.create_symbol(value, Named(name), DimDynamic.DYNAMIC)
        self._of[symbol], self._hints[symbol] = self.sizes.symbol(name, value, least), value
        number = self.shapes.create_symintnode(symbol, hint=value)
        assert isinstance(number, torch.SymInt)
        return number

    def all(
        self, names: Mapping[Any, str], values: Mapping[str, int], least: int, twins: Mapping[str, str]
    ) -> dict[Any, torch.SymInt]:
        """Create a SymInt for each key of `names`. `twins` maps symbols to earlier ones, assumed to be equal."""
        symbols: dict[str, torch.SymInt] = {}
        for name in names.values():
            if name in twins:
                symbols[name] = symbols[twins[name]]
                self.sizes.assume("==", self.sizes.symbol(name, values[name], least), named(twins[name], self.sizes))
            else:
                symbols[name] = self.symbol(name, values[name], least)
        return {key: symbols[name] for key, name in names.items()}

    # ---- conversion of torch's numbers to Sizes

    def size(self, number: Any) -> AnySize:
        """A SymInt (or int) as a Size (or int). Unsupported for an expression that a Size cannot represent."""
        if not isinstance(number, torch.SymInt):
            return number
        return self._size(self.shapes.simplify(number.node.expr))

    def _size(self, expr: Any) -> AnySize:
        found = self._of.get(expr)
        if found is None:
            found = self._of[expr] = _evaluated(expr, self._size)
        return found

    def value(self, value: Any) -> Any:
        """A node's value with Sizes instead of SymInts; tensors become SizedTensors."""
        if isinstance(value, torch.Tensor):
            known = self._vals.get(id(value))
            if known is None:
                known = self._vals[id(value)] = value, SizedTensor.of(value, self.size)
            return known[1]
        if isinstance(value, tuple | list):
            return type(value)(map(self.value, value))
        if isinstance(value, torch.SymFloat):
            return self._real(self.shapes.simplify(value.node.expr))
        return UNSAYABLE if isinstance(value, torch.SymBool) else self.size(value)

    def _real(self, expr: Any) -> AnyReal:
        if isinstance(expr, sympy.Float):
            return float(expr)
        if expr.is_integer:
            return self._size(expr)
        rule, *more = _REAL_RULES.get(type(expr), ("",))
        if not rule:
            raise Unsupported(f"a number that is {expr}")
        args = [*map(self._real, expr.args), *more]
        return functools.reduce(lambda a, b: Real(rule, (a, b)), args) if len(args) > 1 else Real(rule, tuple(args))

    def program(self) -> Program:
        """What the compiled graph assumes about its sizes: the guards of the trace, and those from lowering."""
        for guard in self.shapes.guards:
            self._remember(guard.expr)
        return self.sizes.program()

    def _remember(self, condition: Any) -> None:
        if condition is sympy.true or condition == sympy.true:
            return
        if isinstance(condition, sympy.And):
            for part in condition.args:
                self._remember(part)
            return
        if isinstance(condition, sympy.Or):
            # One part suffices. Sizes for which only another one holds are compiled on their own.
            held = (part for part in condition.args if part.xreplace(self._hints) == sympy.true)
            part = next(held, None)
            if part is not None:
                self._remember(part)
                return
        relation = _RELATIONS.get(type(condition))
        if relation is None:
            raise Unsupported(f"a condition on sizes, {condition}")
        a, b = (self._size(arg) for arg in condition.args)
        if not relation(a, b):
            raise AssertionError(f"{condition} was assumed, and does not hold")


_RULES: dict[type, Callable[[list[Any]], AnySize]] = {
    sympy.Add: sum,
    sympy.Mul: math.prod,
    functions.FloorDiv: lambda args: args[0] // args[1],
    functions.CleanDiv: lambda args: args[0] // args[1],
    sympy.Mod: lambda args: args[0] % args[1],
    functions.Mod: lambda args: args[0] % args[1],
    functions.PythonMod: lambda args: args[0] % args[1],
    sympy.Max: max, functions.Max: max, sympy.Min: min, functions.Min: min,
}  # fmt: skip

_CHOICES = {sympy.Max, sympy.Min, functions.Max, functions.Min}

# an op of the loop IR, and extra arguments after those of the expression
_REAL_RULES: dict[type, tuple[Any, ...]] = {
    functions.IntTrueDiv: ("div",), functions.FloatTrueDiv: ("div",), sympy.Mul: ("mul",), sympy.Add: ("add",),
    functions.FloatPow: ("pow",), functions.ToFloat: ("mul", 1.0), functions.OpaqueUnaryFn_sqrt: ("sqrt",),
}  # fmt: skip


_EXACT = 1 << 22  # integers below this times a size are exact in float64


def _rounded_multiple(expr: Any) -> tuple[Any, float] | None:
    """(n, factor) if an expression is a size times a positive float, rounded down to an integer. So is the size of
    `F.interpolate(x, scale_factor=1.3)`."""
    if not isinstance(expr, functions.FloorToInt | functions.TruncToInt):
        return None
    factors = expr.args[0].args if isinstance(expr.args[0], sympy.Mul) else expr.args
    numbers = [float(x) for x in factors if isinstance(x, sympy.Float)]
    sizes = [x.args[0] for x in factors if isinstance(x, functions.ToFloat)]
    if len(sizes) != 1 or len(numbers) + 1 != len(factors):
        return None
    factor = math.prod(numbers, start=1.0)
    towards_zero = isinstance(expr, functions.TruncToInt) and not sizes[0].is_nonnegative
    return (sizes[0], factor) if 0 < factor < math.inf and not towards_zero else None


def _is_exact(factor: float) -> bool:
    """Whether the product of a size and a float is exact, so that the order of products does not matter."""
    return max(factor.as_integer_ratio()) < _EXACT


def _times(n: Any, factor: float) -> Any:
    """`math.floor(n * factor)` of an int or Size; of a SymInt, too, if the factor is exact."""
    p, q = factor.as_integer_ratio()
    return p * n // q if _is_exact(factor) else scaled(n, factor)


def _evaluated(expr: Any, of: Callable[[Any], Any]) -> Any:
    """Evaluate a sympy expression, with `of` for its parts. Unsupported for an expression without a rule."""
    if (multiple := _rounded_multiple(expr)) is not None:
        return _times(of(multiple[0]), multiple[1])
    if isinstance(expr, sympy.Integer):
        return int(expr)
    if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and 0 < int(expr.exp) < 8:
        return math.prod([of(expr.base)] * int(expr.exp))
    rule = _RULES.get(type(expr))
    if rule is None:
        raise Unsupported(f"a size that is {expr}")
    return rule([of(arg) for arg in expr.args])


# comparisons of Sizes, which record their outcome as an assumption
_RELATIONS: dict[type, Callable[[Any, Any], bool]] = {
    sympy.Eq: lambda a, b: a == b,
    sympy.Ne: lambda a, b: a != b,
    sympy.StrictLessThan: lambda a, b: a < b,
    sympy.LessThan: lambda a, b: a <= b,
    sympy.StrictGreaterThan: lambda a, b: a > b,
    sympy.GreaterThan: lambda a, b: a >= b,
}


class _Unsayable:
    """The value of a condition on sizes (SymBool); no node that uses it can be lowered."""


UNSAYABLE = _Unsayable()
SYMBOLIC = (torch.SymInt, torch.SymFloat)


def with_sizes(gm: fx.GraphModule, symbols: Symbols) -> None:
    """Replace SymInts by Sizes in the values and arguments of a traced graph's nodes."""
    for node in gm.graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = symbols.value(node.meta["val"])
        if any(isinstance(x, SYMBOLIC) for x in pytree.tree_leaves((node.args, node.kwargs))):
            node.args, node.kwargs = pytree.tree_map_only(SYMBOLIC, symbols.value, (node.args, node.kwargs))


@dataclass(frozen=True)
class Sized:
    """The inputs of a compilation for varying sizes: fake tensors and SymInts. `hints`: the symbols' values."""

    symbols: Symbols
    fakes: Sequence[Any]
    hints: Mapping[str, int]

    @property
    def known(self) -> list[Any]:
        """The inputs with Sizes instead of SymInts."""
        return list(map(self.symbols.value, self.fakes))

    def substitute(self, gm: fx.GraphModule) -> None:
        """Replace SymInts by Sizes in a traced graph; see `with_sizes`."""
        with_sizes(gm, self.symbols)

    def data(self, x: Any) -> Any:
        """A structure of plain data with its SymInts replaced by Sizes."""
        return replaced(x, SYMBOLIC, self.symbols.value)


def alike(names: Mapping[Any, str], values: Mapping[str, int], examples: Sequence[Any]) -> dict[str, str]:
    """For each symbol that looks like the same size as an earlier one, such as the batch sizes of two inputs, that
    earlier symbol. They have equal values now and occur as the same dimension of some inputs."""
    found: dict[str, str] = {}
    places: dict[str, set[int]] = {name: set() for name in names.values()}
    for x in examples:
        for d, n in enumerate(x.shape if isinstance(x, torch.Tensor) else ()):
            if isinstance(n, torch.SymInt) and n.node.expr in names:
                places[names[n.node.expr]].add(d)
    for k, name in enumerate(places):
        for first in list(places)[:k]:
            if first not in found and values[first] == values[name] and places[first] & places[name]:
                found[name] = first
                break
    return found


def fake_inputs(
    symbols: Symbols, given: Mapping[Any, torch.SymInt | int], examples: Sequence[Any], inputs: Sequence[Any]
) -> list[Any]:
    """`inputs` as fake tensors and SymInts. `examples` give their sizes in terms of the keys of `given`."""

    def number(example: Any, value: int) -> Any:
        return in_terms(example.node.expr, given) if isinstance(example, torch.SymInt) else given.get(example, value)

    fakes: list[Any] = []
    with stub_torch_compiler, symbols.mode:
        for example, x in zip(examples, inputs, strict=True):
            if not isinstance(x, torch.Tensor):
                fakes.append(number(example, x))
                continue
            size = [number(n, value) for n, value in zip(example.shape, x.shape)]
            stride = [number(n, value) for n, value in zip(example.stride(), x.stride())]
            fakes.append(torch.empty_strided(size, stride, dtype=x.dtype, device=x.device))
    return fakes


def in_terms(expr: Any, given: Mapping[Any, Any]) -> Any:
    """The value of an expression that `is_in_terms` of the keys of `given`, for these values of theirs."""
    return given[expr] if expr in given else _evaluated(expr, lambda part: in_terms(part, given))


def is_in_terms(expr: Any, known: Container[Any]) -> bool:
    """Whether the value of an expression can be computed from those of the expressions in `known` without comparing
    them: the larger one of two sizes would be assumed to be the one that is larger in the first call."""
    if expr in known or isinstance(expr, sympy.Integer):
        return True
    if isinstance(expr, sympy.Pow):
        return expr.exp.is_Integer and is_in_terms(expr.base, known)
    if (multiple := _rounded_multiple(expr)) is not None:
        return _is_exact(multiple[1]) and is_in_terms(multiple[0], known)
    return type(expr) in _RULES.keys() - _CHOICES and all(is_in_terms(part, known) for part in expr.args)
