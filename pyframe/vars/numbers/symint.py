"""Numbers that are not constants of the capture: dynamic sizes, ints that vary between calls, and float inputs.

An int is represented by a torch SymInt, which tensor operators accept as a size; comparisons of it become guards.  A
float is represented by the expression that computes it and its value in the current call.  The value decides the types
of results, and the outcomes of comparisons, which are guarded when the program branches on them.
"""

from __future__ import annotations

import math
import numbers as abstract
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...core import symbolic
from ...core.expr import OPS, Expr, Holds, Number, Tree, sources
from ...core.source import Source, is_drawn
from ..codegen import Codegen
from ..protocol import result_size_bounds, slots
from ..protocol.base import NotRebuildable, Var
from ..protocol.const import COMPARE, ConstVar, MethodVar, fold, make, maker
from ..protocol.number_text import text_of_number
from ..registry import Handler, register
from ..tracer import Tracer
from . import float_order

NUMBERS = (int, float, bool)
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_TYPES = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
# Operators that accept SymInts and may be called in graphs; those not listed are the same as in OPS.
SYMBOLIC_OPS: dict[str, Callable[..., Any]] = {
    **OPS, "min": torch.sym_min, "max": torch.sym_max, "not": torch.sym_not, "int": torch.sym_int,
    "float": torch.sym_float, "sqrt": torch._sym_sqrt,  # type: ignore[attr-defined]  # not in torch's stubs
    "and": operator.and_, "or": operator.or_,
}  # fmt: skip
del SYMBOLIC_OPS["float32"]
_WHY = "which is computed from tensor data, drawn at random or marked as unbacked"
_UNARY = {"-": "neg", "+": "pos"}
_DIVIDES = ("/", "//", "%")
_DEEPEST = 100  # trees are evaluated and compared recursively
_ROUNDS = ("int", "floor", "ceil", "round")  # they raise for floats that are infinite or not a number
_OF_BOOLS = ("and", "or", "not")  # the only operators that torch supports on a SymBool
_METHODS = {"__abs__": "abs", "__float__": "float", "__floor__": "floor", "__ceil__": "ceil"}
_INT_METHODS = {"__int__": "int", "__trunc__": "int", "__round__": "round"}


class NumberVar(Var):
    """A number that `tree` computes from sources.  `sym` is a SymInt, SymFloat or SymBool.  It is None if a float takes
    part in the computation; `example` is then the value in the current call."""

    __slots__ = ("_example", "sym", "tree", "tx")

    def __init__(
        self, tx: Tracer, tree: Tree, sym: Any = None, example: Any = None, source: Source | None = None
    ) -> None:
        super().__init__(source)
        self.tx, self.tree, self.sym, self._example = tx, tree, sym, example

    @property
    def example(self) -> Any:
        return self._example if self.sym is None else self.sym.node.hint

    def python_type(self) -> type:
        return type(self._example) if self.sym is None else _TYPES[type(self.sym)]

    def describe(self) -> str:
        return f"{self.tree}, which varies between calls"

    # ---- specialization to the value of this call ----
    def is_constant(self) -> bool:
        return self.sym is not None and bool(self.sym.node.expr.is_number)

    def constant(self) -> Any:
        """The value in the current call.  A guard specializes the capture to this value."""
        if self.sym is not None:
            return self._specialized(self.sym, self.python_type())
        if self._is_drawn():
            return self._predicted(self.python_type())
        for source in sources(self.tree):
            value = self.tx.graph.numbers.values[source]
            self.tx.guard(source, "EQUALS", value if type(value) is float else int(value))
        return self._example

    def _specialized(self, sym: Any, kind: type) -> Any:
        try:
            return kind(sym)
        except symbolic.data_dependent():
            return self._predicted(kind)

    def _is_drawn(self) -> bool:
        return any(map(is_drawn, sources(self.tree)))

    def _predicted(self, kind: type) -> Any:
        """The value computed from random draws, if a guard can predict the draws; else breaks the graph."""
        found = self.tx.predict(self.tree, kind)
        if found is None:
            self.tx.graph_break("data-dependent-branch", f"the program needs the value of {self.tree}, {_WHY}")
        return found

    def known(self) -> ConstVar:
        return ConstVar(self.constant())

    # ---- slots ----
    def unary(self, tx: Tracer, op: str) -> Var:
        if op != "~":
            return apply(tx, _UNARY[op], self)
        if not isinstance(self.sym, torch.SymInt):
            return self.known().unary(tx, op)
        return apply(tx, "-", apply(tx, "neg", self), ConstVar(1))

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        if op.endswith("="):
            return None
        if not is_number(other):
            if not isinstance(other, ConstVar) or other.takes_numbers:
                return None
            return self.known().binary(tx, op, other, reflected)
        if op == "@" or op in ("<<", ">>") and float in (self.python_type(), other.python_type()):
            return None  # unlike Python's floats, torch's symbolic ones can be shifted
        return apply(tx, op, *((other, self) if reflected else (self, other)))

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if is_number(other):
            return apply(tx, op, self, other)
        if not isinstance(other, ConstVar) or other.takes_numbers:
            return None
        if isinstance(other.value, abstract.Number):
            return fold(tx, COMPARE[op], self.constant(), other.value)
        try:  # with what is no number, the result depends only on the type
            return make(COMPARE[op](self.python_type()(0), other.value))
        except TypeError:
            return None

    def truth(self, tx: Tracer) -> bool:
        if self.sym is not None:
            return bool(self._specialized(self.sym if isinstance(self.sym, torch.SymBool) else self.sym != 0, bool))
        if self._is_drawn():
            return bool(self._predicted(bool))
        outcome = bool(self._example)
        tree = self.tree if type(self._example) is bool else Expr("!=", (self.tree, Number.of(0)))
        tx.guard(sources(tree)[0], "RELATION", Holds(tree if outcome else Expr("not", (tree,))))
        return outcome

    def getattr_(self, tx: Tracer, name: str) -> Var:
        found = getattr(self.python_type(), name, None)
        return MethodVar(self, name) if callable(found) else self.known().getattr_(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if name in _METHODS and not args:
            return apply(tx, _METHODS[name], self)
        if name in _INT_METHODS and self.sym is not None and not args and not kwargs:
            return apply(tx, _INT_METHODS[name], self)
        if name == "__round__" and isinstance(self.sym, torch.SymFloat) and len(args) == 1 and not kwargs:
            if isinstance(args[0], ConstVar) and type(args[0].value) is int:
                return apply(tx, "round", self, args[0])
        if name == "__divmod__" and len(args) == 1 and is_number(args[0]) and args[0].truth(tx):
            return make((apply(tx, "//", self, args[0]), apply(tx, "%", self, args[0])))
        if name == "__format__":
            return self.format_(tx, args[0] if args else ConstVar(""))
        return self.known().call_method(tx, name, args, kwargs)

    def format_(self, tx: Tracer, spec: Var) -> Var:
        words = spec.constant()
        tx.limit_size(result_size_bounds.widths(words), "a text")
        return self._text(tx, words) or fold(tx, format, self.constant(), words)

    def str_(self, tx: Tracer) -> Var | None:
        return self._text(tx, "")

    def repr_(self, tx: Tracer) -> Var | None:
        return self._text(tx, "")

    def _text(self, tx: Tracer, spec: str) -> Var | None:
        """The number as text, made at run time; None if it has to be made now."""
        if self.is_constant() or self._is_drawn() or is_unbacked(self):
            return None
        return text_of_number(tx, self, self.example, spec)

    def reconstruct(self, cg: Codegen) -> None:
        load_tree(cg, self.tree)


def _may_raise(op: str, args: Sequence[Var]) -> bool:
    """Whether an operator raises for some values of the numbers, which guards do not exclude."""
    if op in _ROUNDS or op == "sqrt":
        return args[0].python_type() is float and is_unbacked(args[0])
    return op == "**" and float in {arg.python_type() for arg in args}


def is_unbacked(var: Var) -> bool:
    """Whether a number depends on an unbacked symbol, so that no guard can check it."""
    return isinstance(var, NumberVar) and var.sym is not None and symbolic.is_unbacked(var.sym)


def is_number(var: Var) -> bool:
    if isinstance(var, ConstVar):
        return not var.takes_numbers and type(var.value) in NUMBERS
    return isinstance(var, NumberVar)


def assume(tx: Tracer, tree: Tree) -> None:
    """Add a guard that `tree`, a relation between integers, is true."""
    tx.guard(sources(tree)[0], "RELATION", tree)


def apply(tx: Tracer, op: str, *args: Var) -> Var:
    """Apply an operator of `core.expr` to numbers, at least one of them a NumberVar.  If the operator fails on symbols,
    it is evaluated on the values of this call, which specializes the capture to them."""
    numbers = [arg for arg in args if isinstance(arg, NumberVar)]
    if op not in _OF_BOOLS and any(isinstance(number.sym, torch.SymBool) for number in numbers):
        args = tuple(_number_of_bool(arg) for arg in args)
        numbers = [arg for arg in args if isinstance(arg, NumberVar)]
    try:
        if op in _DIVIDES and not args[1].truth(tx):
            raise ZeroDivisionError
        if tx.error_is_observable and _may_raise(op, args):
            return fold(tx, OPS[op], *(arg.constant() for arg in args))
        if not numbers:
            return make(OPS[op](*(arg.constant() for arg in args)))
        if op in SYMBOLIC_OPS and all(number.sym is not None for number in numbers):
            values = [arg.sym if isinstance(arg, NumberVar) else _number(arg.constant()) for arg in args]
            found = SYMBOLIC_OPS[op](*values)
            return _of_floats_perhaps(tx, op, args, found)
        example = OPS[op](*(arg.example if isinstance(arg, NumberVar) else arg.constant() for arg in args))
        if type(example) not in NUMBERS or not _stays_real(tx, op, args):
            raise ValueError(op)
    except (ArithmeticError, NotImplementedError, TypeError, ValueError):  # evaluate with the values of this call
        return fold(tx, OPS[op], *(arg.constant() for arg in args))
    return NumberVar(tx, Expr(op, tuple(map(tree_of, args))), None, example)


def _of_floats_perhaps(tx: Tracer, op: str, args: Sequence[Var], found: Any) -> Var:
    """The Var of `found`, which torch has computed of numbers, at least one of them symbolic. Floats are computed at
    run time by the operators that the program applied, in their order: torch simplifies expressions as if floats were
    real numbers, so that `a + 1e308 - 1e308` is `a`, `0 - a` is `-a`, and `a != a` is False."""
    kinds = {arg.python_type() for arg in args}
    returned = _TYPES.get(type(found), type(found))
    if float not in kinds and returned is not float:
        return make(found)
    tree = Expr(op, tuple(map(tree_of, args)))
    if returned is not float and not any(map(is_unbacked, args)):
        return make(found) if _is_kept(tx, tree, found) else _computed(tx, tree, op, args)
    if not any(map(is_unbacked, args)):
        varies = isinstance(found, torch.SymFloat) and not found.node.expr.is_number
        return NumberVar(tx, tree, found) if varies and tree.depth <= _DEEPEST else make(found)
    if returned is float:
        floats = tx.graph.numbers
        return make(floats.shapes.float_of(tree) if tree.depth <= _DEEPEST else floats.computed_float(tree))
    same = len(args) == 2 and tree.args[0] == tree.args[1]
    if same or not isinstance(found, SYMBOLIC) or found.node.expr.is_number:
        tx.graph_break("data-dependent-branch", f"the program needs the value of {tree}, {_WHY}")
    return make(found)


def _is_kept(tx: Tracer, tree: Expr, found: Any) -> bool:
    """Whether `found`, which torch has computed, has the value of `tree` for other values of the symbols too."""
    if tree.depth > _DEEPEST:
        return False
    is_symbolic = isinstance(found, SYMBOLIC)
    return float_order.is_kept(tree, tx.graph.numbers.shapes.tree_or_none(found.node.expr) if is_symbolic else None)


def _computed(tx: Tracer, tree: Expr, op: str, args: Sequence[Var]) -> Var:
    """The int or bool that `tree` computes from floats, about which nothing else is known while tracing."""
    example = OPS[op](*(_known_value(arg) for arg in args))
    if tree.depth > _DEEPEST:
        return fold(tx, OPS[op], *(arg.constant() for arg in args))
    if type(example) is bool:
        return NumberVar(tx, tree, None, example)
    return NumberVar(tx, tree, tx.graph.numbers.shapes.computed(tree, example))


def _known_value(var: Var) -> Any:
    return var.example if isinstance(var, NumberVar) else var.constant()


def _number_of_bool(var: Var) -> Var:
    return var.known() if isinstance(var, NumberVar) and isinstance(var.sym, torch.SymBool) else var


def _number(value: Any) -> Any:
    """A bool as an int, since sympy cannot compare booleans with numbers."""
    return int(value) if type(value) is bool else value


def _stays_real(tx: Tracer, op: str, args: Sequence[Var]) -> bool:
    """Whether a power or root is real for all values that pass the guard on the sign of its base, added here."""
    if op not in ("**", "sqrt"):
        return True
    if not isinstance(args[0], NumberVar):
        return bool(args[0].constant() > 0)
    return apply(tx, ">", args[0], ConstVar(0)).truth(tx)


def place_from_start(tx: Tracer, index: Var, size: int | torch.SymInt) -> Var:
    """An int that may be negative, as an index into `size` items, counted from the first one: one capture serves both
    signs. Returns `index` itself if its sign is known, or if it is out of range, which is an error of the operator."""
    if not isinstance(index, NumberVar) or index.is_constant() or is_unbacked(index):
        return index
    if symbolic.surely_true(index.sym >= 0) or symbolic.surely_true(index.sym < 0):
        return index
    count = make(size)
    if is_unbacked(count):
        return index
    if not apply(tx, "<", index, count).truth(tx) or not apply(tx, ">=", index, apply(tx, "neg", count)).truth(tx):
        return index
    return apply(tx, "%", index, count)


def tree_of(var: Var) -> Tree:
    return var.tree if isinstance(var, NumberVar) else Number.of(var.constant())


def load_tree(cg: Codegen, tree: Tree) -> None:
    """Emit instructions that push the value of `tree`."""
    if isinstance(tree, Source):
        cg.load_source(tree)
    elif isinstance(tree, Number):
        cg.load_const(tree.value)
    else:
        cg.load_const(OPS[tree.op])
        cg.call_top(*(lambda arg=arg: load_tree(cg, arg) for arg in tree.args))


class NestedIntVar(Var):
    """The ragged size of a jagged tensor. It equals that of tensors with the same offsets: guards check that tensors
    have the same, but not that they have others. `load` emits instructions that read it at run time, and `of` is the
    tensor and the dimension, if it is a size of a tensor."""

    __slots__ = ("load", "of", "value")

    def __init__(
        self, value: torch.SymInt, load: Callable[[Codegen], None] | None = None, of: tuple[Var, int] | None = None
    ) -> None:
        super().__init__()
        self.value, self.load, self.of = value, load, of

    def python_type(self) -> type:
        return torch.SymInt

    def describe(self) -> str:
        return "the ragged size of a jagged tensor"

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if op in ("==", "!=") and isinstance(other, NestedIntVar) and bool(self.value == other.value):
            return ConstVar(op == "==")
        return self.unsupported(tx, f"{op} of a number and")

    def binary(self, tx: Tracer, op: str, other: Var, reflected: bool) -> Var | None:
        return self.unsupported(tx, f"{op} of a number and")

    def reconstruct(self, cg: Codegen) -> None:
        if self.load is None:
            raise NotRebuildable(f"{self.describe()} cannot be rebuilt")
        self.load(cg)


@maker(*SYMBOLIC)
def from_symbolic(value: Any) -> Var:
    """The Var of a SymInt, SymFloat or SymBool that torch returned."""
    node = value.node
    if node.is_nested_int():
        return NestedIntVar(value)
    if node.is_constant() or node.expr.is_number:
        return ConstVar(_TYPES[type(value)](value))
    shapes = node.shape_env
    tree = shapes.tree_or_none(node.expr)
    if tree is None:  # no tree for this operator: specialize to the value
        try:
            return ConstVar(_TYPES[type(value)](value))
        except symbolic.data_dependent():
            return shapes.tx.graph_break("data-dependent-branch", f"the program needs the value of {node.expr}, {_WHY}")
    return NumberVar(shapes.tx, tree, value)


# ---- functions of math ------------------------------------------------------------------------------------


def _of_math(function: Callable[..., Any], op: str) -> Handler:
    def run(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
        (arg,) = args
        arg = getattr(arg, "number", arg)  # of a numpy scalar that varies
        if isinstance(arg, NumberVar) and (arg.sym is not None or op == "sqrt"):
            return apply(tx, op, arg)
        return fold(tx, function, arg.constant())

    return run


# Comparisons of the argument that must hold for a function of floats to return a float and not raise.
_DOMAINS: dict[str, tuple[tuple[str, float], ...]] = {
    "exp": (("<=", 700.0),), "log": ((">", 0.0),), "log2": ((">", 0.0),), "log10": ((">", 0.0),),
    "sin": (("<", math.inf), (">", -math.inf)), "cos": (("<", math.inf), (">", -math.inf)),
    "tan": (("<", math.inf), (">", -math.inf)), "tanh": (), "atan": (), "erf": (),
}  # fmt: skip


def _of_floats(op: str) -> Handler:
    """The model of a function of `math` that maps floats to floats, such as `exp`; its result is a NumberVar."""
    function = OPS[op]

    def run(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
        arg = getattr(args[0], "number", args[0])  # of a numpy scalar that varies
        base: Any = args[1].value if len(args) == 2 and isinstance(args[1], ConstVar) else None
        if isinstance(arg, NumberVar) and type(base) in (int, float) and base > 0 and base != 1:  # as in math.log
            return slots.binary(tx, "/", run(tx, [arg], {}), ConstVar(math.log(base)))
        if len(args) > 1 or not isinstance(arg, NumberVar) or arg.is_constant() or is_unbacked(arg):
            return fold(tx, function, *(each.constant() for each in (arg, *args[1:])))
        if not all(apply(tx, how, arg, ConstVar(bound)).truth(tx) for how, bound in _DOMAINS[op]):
            return fold(tx, function, arg.constant())
        return NumberVar(tx, Expr(op, (arg.tree,)), None, function(arg.example))

    return run


for _op in _DOMAINS:
    register(OPS[_op])(_of_floats(_op))
for _function, _op in ((math.sqrt, "sqrt"), (math.floor, "floor"), (math.ceil, "ceil"), (math.trunc, "int")):
    register(_function)(_of_math(_function, _op))
