"""The ShapeEnv of one capture.

It is a subclass of torch's ShapeEnv that maps each symbol to the source of its value.  The guards that torch adds to it
while tracing become RELATION guards between these sources.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import DimDynamic, RuntimeAssert, SLoc
from torch.utils._sympy import functions
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from inductor.dynamic.shape_env import LightShapeEnv, Named
from inductor.process.import_stubs import stub_torch_compiler

from ...core.expr import Expr, Number, Tree, evaluate, sources, text
from ...core.guard import Guard, UserLine
from ...core.source import Source
from ..tracer import Tracer

_INEQUALITIES = (sympy.Le, sympy.Lt, sympy.Ge, sympy.Gt)


class NoTree(Exception):
    """Raised for a sympy expression that `core.expr` cannot represent (unknown operator or symbol)."""


class _Place(str):
    """A user's line, as a string that torch can store with a guard."""

    line: UserLine

    @staticmethod
    def of(line: UserLine) -> _Place:
        place = _Place(line)
        place.line = line
        return place


class Shapes(LightShapeEnv):
    """The ShapeEnv of a trace.  `user_line` returns the line being traced, which is stored with each new guard."""

    def __init__(
        self, user_line: Callable[[], UserLine | None], tx: Tracer, numbers: bool = False, sizes: bool = False
    ) -> None:
        super().__init__(numbers, sizes)
        self.user_line, self.tx = user_line, tx
        self.source_of: dict[sympy.Symbol, Source] = {}
        self.tree_of: dict[sympy.Symbol, Expr] = {}  # what computes a symbol without a source
        self.floats: dict[Expr, Any] = {}  # by their trees: floats that are not known while tracing, ints of floats
        self.symbols: dict[Source, Any] = {}

    def _get_stack_summary(self, is_debug: bool = False, framework_loc: str | None = None) -> tuple[SLoc, str]:
        line = self.user_line()
        return SLoc(None if line is None else _Place.of(line), None), ""

    # ---- symbols ----
    def size(self, source: Source, value: int) -> Any:
        """The SymInt for a size of 2 or more."""
        return self._symbol(source, value, self.create_symbol)

    def integer(self, source: Source, value: int) -> Any:
        """The SymInt for any int."""
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
        """An unbacked SymInt for a size: nothing but that it is a size is known while tracing."""
        found = self.symbols.get(source)
        if found is None:
            with stub_torch_compiler:
                found = self.symbols[source] = self.create_unbacked_symint()
            self.source_of[found.node.expr] = source
            self._constrain_range_for_size(found.node.expr)
        return found

    def float_of(self, tree: Expr) -> Any:
        """An unbacked SymFloat for what `tree` computes of unbacked numbers. All that is known of it while tracing is
        the bound that `max(constant, ...)` or `min(constant, ...)` gives it."""
        found = self.floats.get(tree)
        if found is None:
            with stub_torch_compiler:
                found = self.floats[tree] = self.create_unbacked_symfloat()
            self.pending_fresh_unbacked_symbols.clear()
            self.tree_of[found.node.expr] = tree
            first = tree.args[0]
            if tree.op in ("min", "max") and isinstance(first, Number) and math.isfinite(first.value):
                bound, ends = sympy.Float(first.value), (-sympy.oo, sympy.oo)
                ranges = (bound, ends[1]) if tree.op == "max" else (ends[0], bound)
                self.var_to_range[found.node.expr] = ValueRanges(*ranges)
        return found

    def computed(self, tree: Expr, value: int) -> Any:
        """The SymInt for an int, `value` in this call, that `tree` computes from floats."""
        found = self.floats.get(tree)
        if found is None:
            name = Named(f"computed{len(self.tree_of)}")
            with stub_torch_compiler:
                symbol = self.create_unspecified_symbol(value, name, DimDynamic.DYNAMIC)
            self.tree_of[symbol] = tree
            found = self.floats[tree] = self.create_symintnode(symbol, hint=value)
        return found

    def as_size(self, number: torch.SymInt) -> None:
        """Declare that an unbacked symbol is a size, so that size-oblivious checks ignore the special cases 0 and 1."""
        if isinstance(number.node.expr, sympy.Symbol):
            self._constrain_range_for_size(number.node.expr)

    def narrow(self, source: Source, least: int | None, most: int | None) -> None:
        """Bound the symbol of `source`; the caller adds the guard that checks the bounds."""
        symbol = self.symbols[source].node.expr
        self.constrain_symbol_range(symbol, 0 if least is None else least, int_oo if most is None else most)

    def only_value(self, source: Source) -> int | None:
        """The value of `source` if the guards so far allow only one; else None."""
        expr = self.simplify(self.symbols[source].node.expr)
        return int(expr) if expr.is_number else None

    def is_new(self, expr: Any) -> bool:
        """Whether an expression is an unbacked symbol that an operator created and that has no source yet."""
        return isinstance(expr, sympy.Symbol) and expr not in self.source_of and expr not in self.tree_of

    def new_truth(self, value: torch.SymBool) -> Any:
        """The SymInt for the new symbol in a SymBool of the form `symbol == 1`, as torch creates data-dependent ones;
        None for any other SymBool."""
        expr = value.node.expr
        found = next(iter(expr.free_symbols), None) if isinstance(expr, sympy.Eq) else None
        if found is None or not self.is_new(found):
            return None
        return self.create_symintnode(found, hint=None)

    def assertions(self) -> tuple[RuntimeAssert, ...]:
        """Torch's deferred runtime assertions: assumptions about unbacked symbols, which no guard can check."""
        return tuple(each for group in self.deferred_runtime_asserts.values() for each in group)

    def assumptions_since(self, before: Sequence[RuntimeAssert]) -> list[Any]:
        """The expressions of the assertions added after `before` was taken.  Bounds of symbols that the operator itself
        created are left out, such as that of a slice's size by the size of the whole."""
        known = set(map(id, before))
        return [each.expr for each in self.assertions() if id(each) not in known and not self._bounds_new(each.expr)]

    def text(self, expr: Any) -> str:
        """An expression in terms of sources where these can be named."""
        return text(tree) if (tree := self.tree_or_none(expr)) is not None else str(expr)

    def _bounds_new(self, expr: Any) -> bool:
        return isinstance(expr, _INEQUALITIES) and any(map(self.is_new, expr.args))

    # ---- expressions ----
    def tree(self, expr: Any) -> Tree:
        """A sympy expression as a tree over sources; raises NoTree if `core.expr` cannot represent it."""
        if isinstance(expr, sympy.Symbol):
            known: Tree | None = self.source_of.get(expr) or self.tree_of.get(expr)
            if known is None:
                raise NoTree(str(expr))
            return known
        if isinstance(expr, sympy.Integer):
            return Number.of(int(expr))
        if isinstance(expr, sympy.Float):
            return Number.of(float(expr))
        if expr in (sympy.true, sympy.false):
            return Number.of(bool(expr))
        rule = _RULES.get(type(expr))
        if rule is None:
            raise NoTree(str(expr))
        return rule(self, *expr.args)

    def tree_or_none(self, expr: Any) -> Tree | None:
        try:
            return self.tree(expr)
        except NoTree:
            return None

    def relations(self) -> Iterator[Guard]:
        """The guards that torch added while tracing, as RELATION guards; a PREDICATE guard where there is no tree."""
        for assumed in self.guards:
            line = getattr(assumed.sloc.framework_loc, "line", None)
            trees = {symbol: self.tree(symbol) for symbol in sorted(assumed.expr.free_symbols, key=str)}
            read = tuple(dict.fromkeys(source for tree in trees.values() for source in sources(tree)))
            try:
                yield Guard(read[0], "RELATION", self.tree(assumed.expr), line)
            except NoTree:
                payload = (SympyHolds(assumed.expr, trees, read), read[1:], str(assumed.expr))
                yield Guard(read[0], "PREDICATE", payload, line)


class SympyHolds:
    """Guard predicate: whether a sympy expression is true. `trees` computes its symbols from `read`, the sources whose
    values it is called with."""

    def __init__(self, expr: Any, trees: dict[sympy.Symbol, Tree], read: Sequence[Source]) -> None:
        self.expr, self.trees, self.read = expr, trees, read

    def __call__(self, *values: int) -> bool:
        given = dict(zip(self.read, values, strict=True))
        known = {symbol: sympy.Integer(evaluate(tree, given)) for symbol, tree in self.trees.items()}
        return self.expr.xreplace(known) == sympy.true


# ---- from sympy -------------------------------------------------------------------------------------------


def _plain(op: str) -> Callable[..., Tree]:
    return lambda shapes, *args: Expr(op, tuple(map(shapes.tree, args)))


def _folded(op: str) -> Callable[..., Tree]:
    """A rule that turns an n-ary operator into nested binary ones."""
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
    sympy.Max: _folded("max"), sympy.Min: _folded("min"), sympy.Mod: _plain("%"),
    functions.FloorDiv: _plain("//"), functions.CleanDiv: _plain("//"), functions.CeilDiv: _ceil_div,
    functions.Mod: _plain("%"), functions.PythonMod: _plain("%"), functions.ModularIndexing: _modular,
    functions.Max: _folded("max"), functions.Min: _folded("min"),
    functions.PowByNatural: _plain("**"), functions.FloatPow: _plain("**"),
    functions.IntTrueDiv: _plain("/"), functions.FloatTrueDiv: _plain("/"), functions.ToFloat: _plain("float"),
    functions.TruncToInt: _plain("int"), functions.CeilToInt: _plain("ceil"), functions.FloorToInt: _plain("floor"),
    functions.RoundToInt: _plain("round"), functions.RoundDecimal: _plain("round"),
    functions.OpaqueUnaryFn_sqrt: _plain("sqrt"), functions.LShift: _plain("<<"), functions.RShift: _plain(">>"),
    functions.BitwiseFn_bitwise_and: _plain("&"), functions.BitwiseFn_bitwise_or: _plain("|"),
    functions.Identity: lambda shapes, inner: shapes.tree(inner),
}  # fmt: skip
