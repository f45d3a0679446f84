"""Random number generators of Python and numpy; their draws become inputs of the graph.

A draw changes the state of its generator, so it cannot happen while tracing.  The new bytecode makes all draws first,
in program order, and then calls the graph.  This is correct because a graph never reads these generators; code that
cannot be captured breaks the graph, and so runs after the draws before it.  The trace learns the type of a result by
making the same draw from another generator.
"""

from __future__ import annotations

import functools
import random
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import torch

from ... import _C
from ...core.expr import sources
from ...core.source import CallSource, DrawnSource, SeqItemSource, Source, UnbackedSource
from ..codegen import Codegen
from ..containers.ranges import RangeVar
from ..containers.sequence import ListVar, SequenceVar
from ..numbers.numpy_scalars import NUMPY_NUMBERS
from ..numbers.symint import NumberVar
from ..objects.lookup import class_source, guarded_lookup
from ..protocol.base import HeldVar, NotConstant, Var
from ..protocol.class_reads import MISSING, lookup
from ..protocol.const import ConstVar, MethodVar
from ..registry import register
from ..torch_objects.numpy_arrays import NdArrayVar, is_array, tensor_of
from ..tracer import Tracer

_INT64 = 1 << 63
MAX_VALUES = 4  # of an int whose value the program branches on: each value needs its own capture
_OF_ITEMS = ("choice", "choices", "sample")  # methods that choose from given items
_ITEMS = (int, float, bool, str, type(None))
_ARGUMENTS = (*_ITEMS, bytes, range, list, tuple, type)  # a type: the dtype of the elements
_NUMBERS = (
    "random uniform randint randrange getrandbits gauss normalvariate lognormvariate expovariate betavariate "
    "gammavariate paretovariate vonmisesvariate weibullvariate binomialvariate choice choices sample"
).split()
_OF_NUMPY = (
    "rand randn random random_sample randint integers uniform normal standard_normal beta gamma binomial poisson "
    "exponential laplace lognormal standard_exponential standard_gamma standard_t geometric gumbel logistic weibull "
    "triangular pareto power rayleigh vonmises wald chisquare f dirichlet multinomial multivariate_normal permutation "
    "choice"
).split()


@dataclass(slots=True)
class Draw:
    """A call `fn(*args, **kwargs)` that the new bytecode makes before the graph.

    `bounds`: the smallest and the largest int that it can return, if known.  `repeats`: whether it returns the same
    value again from the same state of the generator.
    """

    fn: Callable[..., Any]
    args: list[Var]
    kwargs: dict[str, Var] = field(default_factory=dict)
    bounds: tuple[int, int] | None = None
    repeats: bool = False

    def load(self, cg: Codegen) -> None:
        """Push the result."""
        cg.load_const(_C.run_disabled(self.fn))
        loads = [lambda arg=arg: _load(cg, arg) for arg in (*self.args, *self.kwargs.values())]
        cg.call_top(*loads, names=tuple(self.kwargs))


def _load(cg: Codegen, arg: Var) -> None:
    if isinstance(arg, RngVar | NumberVar | StateVar):
        cg.load(arg)
    else:
        cg.load_const(known(arg))


def draw(tx: Tracer, label: str, fn: Callable[..., Any], args: Sequence[Var], kwargs: Mapping[str, Var]) -> DrawnSource:
    """Record a draw and return the source of its result; breaks the graph for arguments that are unknown."""
    if tx.graph.stack.is_nested:
        tx.graph_break("unsupported-object", f"{label} in a function that is the argument of an operator")
    for arg in (*args, *kwargs.values()):
        unbacked = isinstance(arg, NumberVar) and any(isinstance(each, UnbackedSource) for each in sources(arg.tree))
        if unbacked or not (isinstance(arg, RngVar | NumberVar | StateVar) or _is_known(arg)):
            tx.graph_break("unsupported-object", f"{label} with {arg.describe()}")
    tx.draws.append(Draw(fn, list(map(_as_now, args)), {name: _as_now(arg) for name, arg in kwargs.items()}))
    return DrawnSource(len(tx.draws) - 1, label)


def _as_now(arg: Var) -> Var:
    """A copy of an argument, as the program may change the object before the draw is made."""
    return arg if isinstance(arg, RngVar | NumberVar | StateVar) else ConstVar(known(arg))


class StateVar(Var):
    """The result of `getstate` of a generator.  Its content is unknown; it can only be passed to `setstate`."""

    __slots__ = ()

    def python_type(self) -> type:
        return tuple

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        return self.unsupported(tx, op)


class RngVar(HeldVar):
    """A generator.  If the traced program creates it, `value` is another one, used for trying draws."""

    __slots__ = ()

    def describe(self) -> str:
        return f"{self.source or 'a generator'} of type {type(self.value).__name__}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if lookup(type(self.value), name) is MISSING:
            return self.unsupported(tx, f"attribute {name!r}")
        return MethodVar(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        kind = type(self.value)
        raw: Any = guarded_lookup(tx, kind, name)
        label = f"{'random' if kind is random.Random else 'numpy.random'}.{name}()"
        if kind is random.Random and name == "shuffle" and raw is random.Random.__dict__["shuffle"]:
            return self._shuffle(tx, label, args, kwargs)
        modelled = _METHODS.get((kind, name))
        if modelled is None or raw is not modelled:
            return self.unsupported(tx, f"method {name!r}")
        if isinstance(raw, types.FunctionType):
            tx.wrap(raw, class_source(kind, name))
        if name == "seed":
            draw(tx, label, raw, [self, *args], kwargs)
            return ConstVar(None)
        if name in ("getstate", "get_state"):
            return StateVar(draw(tx, label, raw, [self, *args], kwargs))
        if name in ("setstate", "set_state"):
            if not all(isinstance(arg, StateVar) for arg in args):
                return self.unsupported(tx, "setting a state that was not read in this frame")
            draw(tx, label, raw, [self, *args], kwargs)
            return ConstVar(None)
        if kind is random.Random and name == "choice" and len(args) == 1 and _of_objects(args[0]):
            return self._chosen(tx, raw, args[0])
        example = self._example(tx, label, raw, args, kwargs)
        bounds = _bounds(kind, name, example, args, kwargs)
        if not _modelled(tx, example) or (kind is random.Random and name in _OF_ITEMS and not _one_type(args, kwargs)):
            return tx.graph_break("unknown-c-function", f"{label} returns a {type(example).__name__}")
        source = draw(tx, label, raw, [self, *args], kwargs)
        tx.draws[-1].bounds, tx.draws[-1].repeats = bounds, True
        return _result(tx, example, source, bounds)

    def _chosen(self, tx: Tracer, raw: Any, population: SequenceVar) -> Var:
        """`choice` from objects: an index is drawn, whose value must be predicted."""
        before = len(tx.draws)
        last = len(population.items) - 1
        source = draw(tx, "random.choice()", raw, [self, ConstVar(range(last + 1))], {})
        tx.draws[-1].bounds, tx.draws[-1].repeats = (0, last), True
        index = tx.predict(source, int)
        if index is None:
            del tx.draws[before:]
            return tx.graph_break(
                "data-dependent-branch", f"the program needs the value of which of {last + 1} items is drawn"
            )
        return population.items[index]

    def _shuffle(self, tx: Tracer, label: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        """`shuffle` of known numbers of one type: the result of the draw is the shuffled list."""
        given = args[0] if len(args) == 1 and not kwargs else None
        if not isinstance(given, ListVar) or given.python_type() is not list:
            return tx.graph_break("unsupported-object", f"{label} of anything but a list")
        items = [item.value for item in given.items if isinstance(item, ConstVar)]
        if len(items) != len(given.items) or not _modelled(tx, items) or len({type(item) for item in items}) != 1:
            return tx.graph_break("unsupported-object", f"{label} of anything but known numbers of one type")
        tx.wrap(random.Random.__dict__["shuffle"], class_source(random.Random, "shuffle"))
        source = draw(tx, label, _shuffled, [self, given], {})
        bounds = (min(items), max(items)) if type(items[0]) is int else None
        given.items = [_result(tx, item, SeqItemSource(source, at), bounds) for at, item in enumerate(items)]
        given.changed(tx)
        return ConstVar(None)

    def _example(self, tx: Tracer, label: str, raw: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Any:
        """An example result, drawn from another generator."""
        try:
            values = [_value(arg) for arg in args]
            named = {key: _value(arg) for key, arg in kwargs.items()}
        except NotConstant:
            return tx.graph_break("unsupported-object", f"{label} with arguments known only at run time")
        try:
            return raw(_FRESH[type(self.value)](), *values, **named)
        except (TypeError, ValueError, ArithmeticError, LookupError) as error:
            return tx.graph_break("exception-in-traced-code", f"{label}: {type(error).__name__}: {error}")

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(self.value)


def _shuffled(rng: random.Random, items: Sequence[Any]) -> list[Any]:
    """A copy of `items`, shuffled."""
    shuffled = list(items)
    rng.shuffle(shuffled)
    return shuffled


def known(arg: Var) -> Any:
    """A copy of the value of an argument; NotConstant unless it is of one of the types `_ARGUMENTS`."""
    value = arg.plain()
    items = value if type(value) in (list, tuple) else ()
    if not isinstance(value, _ARGUMENTS) or not all(map(_plain, items)):
        raise NotConstant(arg.describe())
    return value


def _plain(value: Any) -> bool:
    return type(value) in _ITEMS


def _is_known(arg: Var) -> bool:
    try:
        known(arg)
    except NotConstant:
        return False
    return True


def _value(arg: Var) -> Any:
    if not isinstance(arg, NumberVar):
        return known(arg)
    if arg.is_constant():
        return arg.constant()
    if arg.sym is not None and not arg.sym.node.has_hint():
        raise NotConstant(arg.describe())
    return arg.example


def _one_type(args: Sequence[Var], kwargs: Mapping[str, Var]) -> bool:
    """Whether all items to choose from have one type."""
    items = known(args[0]) if args else known(next(iter(kwargs.values())))
    return isinstance(items, range) or len({type(item) for item in items}) == 1


def _of_objects(given: Var) -> TypeGuard[SequenceVar]:
    """Whether `given` is a sequence whose items are not all constant numbers of one type."""
    if not isinstance(given, SequenceVar) or isinstance(given, RangeVar) or not given.items:
        return False
    types_ = {type(item.value) if isinstance(item, ConstVar) else None for item in given.items}
    return len(types_) > 1 or not types_ <= {int, float}


def _bounds(
    kind: type, name: str, example: Any, args: Sequence[Var], kwargs: Mapping[str, Var]
) -> tuple[int, int] | None:
    """The smallest and the largest int that a draw can return, if known."""
    if type(example) is not int or kwargs or not all(map(_is_known, args)):
        return None
    values = [known(arg) for arg in args]
    if kind is not random.Random:
        return (0, *values) if name == "randint" and len(values) == 1 else tuple(values) if name == "randint" else None
    match name, values:
        case "randint", [least, most]:
            return least, most
        case "randrange", _:
            return _ends(range(*values))
        case "getrandbits", [bits]:
            return 0, (1 << bits) - 1
        case "choice", [items]:
            return _ends(items)
    return None


def _ends(items: Sequence[int]) -> tuple[int, int]:
    """The smallest and the largest item; `min` and `max` would go through all items of a range."""
    ends = (items[0], items[-1]) if isinstance(items, range) else items
    return min(ends), max(ends)


def _modelled(tx: Tracer, example: Any) -> bool:
    """Whether a result like `example` can be an input of the graph."""
    if type(example) is list:
        return bool(example) and all(type(item) in (int, float) and _modelled(tx, item) for item in example)
    if type(example) is int:
        return bool(tx.graph.numbers.makes_numbers) and abs(example) < _INT64
    if type(example) is float:
        return bool(tx.options.float_inputs)
    return _array(example) is not None


def _array(example: Any) -> torch.Tensor | None:
    """A numpy array or number as a tensor; None for anything else."""
    if isinstance(example, NUMPY_NUMBERS):
        return _of_number(example)
    return tensor_of(example) if is_array(example) else None


def _result(tx: Tracer, example: Any, source: Source, bounds: tuple[int, int] | None) -> Var:
    """The Var of the result of a draw, which is read from `source`."""
    if type(example) is list:
        return ListVar([_result(tx, item, SeqItemSource(source, at), None) for at, item in enumerate(example)])
    if type(example) is float:
        tx.graph.numbers.values[source] = example
        return NumberVar(tx, source, None, example, source)
    if type(example) is int:
        return _integer(tx, source, bounds)
    tensor = _array(example)
    assert tensor is not None
    if not isinstance(example, NUMPY_NUMBERS):
        return NdArrayVar(tx.graph.input(CallSource(source, tensor_of, "torch.from_numpy"), tensor), source)
    return NdArrayVar(tx.graph.input(CallSource(source, _of_number, "torch.as_tensor"), tensor), source, scalar=True)


def _of_number(number: Any) -> torch.Tensor:
    return torch.from_numpy(number.reshape(1)).reshape(())


def _integer(tx: Tracer, source: Source, bounds: tuple[int, int] | None) -> Var:
    shapes = tx.graph.numbers.shapes
    sym = shapes.create_unbacked_symint()
    symbol = sym.node.expr
    shapes.source_of[symbol] = source
    shapes.pending_fresh_unbacked_symbols.clear()
    tx.graph.numbers.values[source] = sym
    if bounds is not None and max(map(abs, bounds)) < _INT64:
        shapes.constrain_symbol_range(symbol, *bounds)
    return NumberVar(tx, source, sym, source=source)


# ---- the generators ----
# For each type of generator: a function that creates one for example draws, and the original methods by name.
_FRESH: dict[type, Callable[[], Any]] = {}
_METHODS: dict[tuple[type, str], Any] = {}
_STATES = ("seed", "getstate", "setstate", "get_state", "set_state")


def _register(kind: type, fresh: Callable[[], Any], names: Sequence[str]) -> None:
    _FRESH[kind] = fresh
    for name in (*names, *_STATES):
        if (raw := lookup(kind, name)) is not MISSING:
            _METHODS[kind, name] = raw


def is_rng(value: Any) -> bool:
    """Whether an object is a generator with a model; registers the models of numpy.random once that is loaded."""
    kind = type(value)
    if kind not in _FRESH and "numpy.random" in sys.modules:
        _register_numpy()
    return kind in _FRESH


@functools.cache
def _register_numpy() -> None:
    """Register the generators of numpy.  Called once the program has loaded numpy.random: importing it is slow."""
    module = sys.modules["numpy.random"]
    legacy, modern = module.RandomState, module.Generator
    _register(legacy, functools.partial(legacy, 0), _OF_NUMPY)
    _register(modern, functools.partial(module.default_rng, 0), _OF_NUMPY)
    register(legacy)(_constructor(legacy, _FRESH[legacy]))
    register(module.default_rng)(_constructor(module.default_rng, _FRESH[modern]))
    register(module.seed)(_seeds(module.seed))


def wrap_rng(tx: Tracer, value: Any, source: Source | None) -> Var:
    """The Var of a generator that existed before the trace."""
    tx.guard(source, "TYPE", type(value))
    return RngVar(value, source)


def _constructor(cls: Any, fresh: Callable[[], Any]) -> Callable[[Tracer, list[Var], dict[str, Var]], Var]:
    """A handler for a call of `cls` that creates a generator; example draws are made from `fresh()`."""

    def run(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
        label = f"{cls.__name__}()"
        try:
            cls(*(known(arg) for arg in args), **{key: known(arg) for key, arg in kwargs.items()})
        except NotConstant:
            return tx.graph_break("unsupported-object", f"{label} with a seed known only at run time")
        except (TypeError, ValueError) as error:
            return tx.raise_(type(error), *error.args)
        return RngVar(fresh(), draw(tx, label, cls, args, kwargs))

    return run


def _seeds(function: Any) -> Callable[[Tracer, list[Var], dict[str, Var]], Var]:
    def run(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
        draw(tx, f"numpy.random.{function.__name__}()", function, args, kwargs)
        return ConstVar(None)

    return run


_register(random.Random, functools.partial(random.Random, 0), _NUMBERS)
register(random.Random)(_constructor(random.Random, _FRESH[random.Random]))
