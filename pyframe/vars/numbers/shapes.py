"""Symbolic sizes and integers of one capture: a ShapeEnv of torch whose symbols stand for sources, and whose guards
become relations between them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import DimDynamic, RuntimeAssert, SLoc
from torch.utils._sympy.numbers import int_oo

from inductor.dynamic.shape_env import LightShapeEnv, Named
from inductor.process.import_stubs import stub_torch_compiler

from ...core.expr import Expr, Number, Tree, text
from ...core.guard import Guard, UserLine
from ...core.source import Source

_INEQUALITIES = (sympy.Le, sympy.Lt, sympy.Ge, sympy.Gt)


class NoTree(Exception):
    """The expression has an operator that `core.expr` lacks."""


class _Place(str):
    """A user's line as torch keeps it."""

    line: UserLine

    @staticmethod
    def of(line: UserLine) -> _Place:
        place = _Place(line)
        place.line = line
        return place


class Shapes(LightShapeEnv):
    """`user_line` gives the place being traced: each guard remembers its own."""

    def __init__(
        self, user_line: Callable[[], UserLine | None], tx: Any, numbers: bool = False, sizes: bool = False
    ) -> None:
        super().__init__(numbers, sizes)
        self.user_line, self.tx = user_line, tx
        self.source_of: dict[sympy.Symbol, Source] = {}
        self.symbols: dict[Source, Any] = {}

    def _get_stack_summary(self, is_debug: bool = False, framework_loc: str | None = None) -> tuple[SLoc, str]:
        line = self.user_line()
        return SLoc(None if line is None else _Place.of(line), None), ""

    # ---- symbols ----
    def size(self, source: Source, value: int) -> Any:
        """The SymInt of a size that is 2 or more."""
        return self._symbol(source, value, self.create_symbol)

    def integer(self, source: Source, value: int) -> Any:
        """The SymInt of any int."""
        return self._symbol(source, value, self.create_unspecified_symbol)

    def _symbol(self, source: Source, value: int, create: Callable[..., Any]) -> Any:
        found = self.symbols.get(source)
        if found is None:
            with stub_torch_compiler:
                symbol = create(value, Named(source.name), DimDynamic.DYNAMIC)
            self.source_of[symbol] = source
            found = self.symbols[source] = self.create_symintnode(symbol, hint=value)
        return found

    def unbacked(self, source: Source) -> Any:
        """The SymInt of a size of which nothing is known while tracing."""
        found = self.symbols.get(source)
        if found is None:
            with stub_torch_compiler:
                found = self.symbols[source] = self.create_unbacked_symint()
            self.source_of[found.node.expr] = source
            self._constrain_range_for_size(found.node.expr)
        return found

    def as_size(self, number: torch.SymInt) -> None:
        """Let it be known that an unbacked number is used as a size: 0 and 1 are nothing special."""
        if isinstance(number.node.expr, sympy.Symbol):
            self._constrain_range_for_size(number.node.expr)

    def narrow(self, source: Source, least: int | None, most: int | None) -> None:
        """Let it be known that `source` lies between these, which a guard checks."""
        symbol = self.symbols[source].node.expr
        self.constrain_symbol_range(symbol, 0 if least is None else least, int_oo if most is None else most)

    def settled(self, source: Source) -> int | None:
        """The only value that the guards leave to `source`; None if there are others."""
        expr = self.simplify(self.symbols[source].node.expr)
        return int(expr) if expr.is_number else None

    def is_new(self, expr: Any) -> bool:
        """Whether an expression is a symbol that an operator made and nobody has named yet."""
        return isinstance(expr, sympy.Symbol) and expr not in self.source_of

    def new_truth(self, value: torch.SymBool) -> Any:
        """The SymInt of the new symbol in a truth `symbol == 1`, which is how torch makes them; None if it is none."""
        expr = value.node.expr
        found = next(iter(expr.free_symbols), None) if isinstance(expr, sympy.Eq) else None
        if found is None or not self.is_new(found):
            return None
        return self.create_symintnode(found, hint=None)

    def assertions(self) -> tuple[RuntimeAssert, ...]:
        """What was taken to be true of numbers that no guard can ask for."""
        return tuple(each for group in self.deferred_runtime_asserts.values() for each in group)

    def assumption_since(self, before: Sequence[RuntimeAssert]) -> str | None:
        """The last of these that an operator has added, as text; None if it has added only bounds of numbers that it
        makes, such as a slice's size, which is at most that of the whole."""
        known = set(map(id, before))
        made = [each.expr for each in self.assertions() if id(each) not in known and not self._bounds_new(each.expr)]
        if not made:
            return None
        return text(tree) if (tree := self.tree_or_none(made[-1])) is not None else str(made[-1])

    def _bounds_new(self, expr: Any) -> bool:
        return isinstance(expr, _INEQUALITIES) and any(map(self.is_new, expr.args))

    # ---- expressions ----
    def tree(self, expr: Any) -> Tree:
        """A sympy expression over sources; NoTree if it cannot be said."""
        if isinstance(expr, sympy.Symbol):
            if expr not in self.source_of:
                raise NoTree(str(expr))
            return self.source_of[expr]
        if isinstance(expr, sympy.Integer):
            return Number.of(int(expr))
        if isinstance(expr, sympy.Float):
            return Number.of(float(expr))
        if expr in (sympy.true, sympy.false):
            return Number.of(bool(expr))
        rule = _RULES.get(type(expr)) or _BY_NAME.get(type(expr).__name__)
        if rule is None:
            raise NoTree(str(expr))
        return rule(self, *expr.args)

    def tree_or_none(self, expr: Any) -> Tree | None:
        try:
            return self.tree(expr)
        except NoTree:
            return None

    def relations(self) -> Iterator[Guard]:
        """Everything that tracing assumed of the symbols."""
        for assumed in self.guards:
            line = getattr(assumed.sloc.framework_loc, "line", None)
            symbols = sorted(assumed.expr.free_symbols, key=str)
            sources = [self.source_of[symbol] for symbol in symbols]
            try:
                yield Guard(sources[0], "RELATION", self.tree(assumed.expr), line)
            except NoTree:
                payload = (_SympyHolds(assumed.expr, symbols), tuple(sources[1:]), str(assumed.expr))
                yield Guard(sources[0], "PREDICATE", payload, line)


class _SympyHolds:
    """Whether a sympy expression is true of the values of its symbols, in order."""

    def __init__(self, expr: Any, symbols: list[sympy.Symbol]) -> None:
        self.expr, self.symbols = expr, symbols

    def __call__(self, *values: int) -> bool:
        known = {symbol: sympy.Integer(value) for symbol, value in zip(self.symbols, values, strict=True)}
        return self.expr.xreplace(known) == sympy.true


# ---- from sympy -------------------------------------------------------------------------------------------


def _plain(op: str) -> Callable[..., Tree]:
    return lambda shapes, *args: Expr(op, tuple(map(shapes.tree, args)))


def _folded(op: str) -> Callable[..., Tree]:
    """An operator of any number of arguments as one of two."""
    return lambda shapes, *args: functools.reduce(lambda a, b: Expr(op, (a, b)), map(shapes.tree, args))


def _sum(shapes: Shapes, *terms: Any) -> Tree:
    ordered = sorted(terms, key=lambda term: (_negative(term), bool(term.is_number)))
    total = shapes.tree(ordered[0])
    for term in ordered[1:]:
        negative = _negative(term)
        total = Expr("-" if negative else "+", (total, shapes.tree(-term if negative else term)))
    return total


def _negative(term: Any) -> bool:
    return bool(term.as_coeff_Mul()[0] < 0)


def _product(shapes: Shapes, *factors: Any) -> Tree:
    if factors[0] == -1:
        return Expr("neg", (_product(shapes, *factors[1:]),))
    return _folded("*")(shapes, *factors) if len(factors) > 1 else shapes.tree(factors[0])


def _power(shapes: Shapes, base: Any, exponent: Any) -> Tree:
    if not (exponent.is_Integer and exponent > 0):
        raise NoTree(f"{base}**{exponent}")
    return _folded("*")(shapes, *[base] * int(exponent)) if exponent < 8 else _plain("**")(shapes, base, exponent)


def _ceil_div(shapes: Shapes, a: Any, b: Any) -> Tree:
    return Expr("neg", (Expr("//", (Expr("neg", (shapes.tree(a),)), shapes.tree(b))),))


def _modular(shapes: Shapes, base: Any, divisor: Any, modulus: Any) -> Tree:
    return Expr("%", (Expr("//", (shapes.tree(base), shapes.tree(divisor))), shapes.tree(modulus)))


_RULES: dict[type, Callable[..., Tree]] = {
    sympy.Add: _sum, sympy.Mul: _product, sympy.Pow: _power, sympy.Abs: _plain("abs"),
    sympy.Eq: _plain("=="), sympy.Ne: _plain("!="), sympy.StrictLessThan: _plain("<"), sympy.LessThan: _plain("<="),
    sympy.StrictGreaterThan: _plain(">"), sympy.GreaterThan: _plain(">="),
    sympy.And: _folded("and"), sympy.Or: _folded("or"), sympy.Not: _plain("not"),
    sympy.Max: _folded("max"), sympy.Min: _folded("min"),
}  # fmt: skip
_BY_NAME: dict[str, Callable[..., Tree]] = {
    "FloorDiv": _plain("//"), "CleanDiv": _plain("//"), "CeilDiv": _ceil_div, "Mod": _plain("%"),
    "PythonMod": _plain("%"), "ModularIndexing": _modular, "Max": _folded("max"), "Min": _folded("min"),
    "PowByNatural": _plain("**"), "FloatPow": _plain("**"), "IntTrueDiv": _plain("/"), "FloatTrueDiv": _plain("/"),
    "ToFloat": _plain("float"), "TruncToInt": _plain("int"), "CeilToInt": _plain("ceil"),
    "FloorToInt": _plain("floor"), "OpaqueUnaryFn_sqrt": _plain("sqrt"),
    "LShift": _plain("<<"), "RShift": _plain(">>"), "BitwiseFn_bitwise_and": _plain("&"),
    "BitwiseFn_bitwise_or": _plain("|"), "Identity": lambda shapes, inner: shapes.tree(inner),
}  # fmt: skip
