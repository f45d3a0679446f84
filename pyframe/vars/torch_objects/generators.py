"""`torch.Generator` objects, and the functions that seed random number generators.

A generator is an input of the graph or is created by a node. Operations that change or read its state are nodes too, in
program order. Tracing never changes a generator of the program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...core.in_order import in_order
from ...core.source import AttrSource, ConstSource, Source
from ..numbers.symint import NumberVar
from ..protocol.base import NotConstant, Var
from ..protocol.class_reads import MISSING, lookup
from ..protocol.const import ConstVar, MethodVar, make
from ..protocol.graph_object import GraphObjectVar
from ..registry import Args, Handler, Kwargs, method_model, register
from ..tracer import Tracer
from .tensor import TensorVar

_INT64 = 1 << 63


@in_order
def make_generator(device: torch.device) -> torch.Generator:
    return torch.Generator(device)


@in_order
def clone_state(generator: torch.Generator) -> torch.Generator:
    return generator.clone_state()


@in_order
def manual_seed(generator: torch.Generator, seed: int) -> None:
    generator.manual_seed(seed)


@in_order
def get_state(generator: torch.Generator) -> tuple[torch.Tensor]:
    return (generator.get_state(),)


@in_order
def set_state(generator: torch.Generator, state: torch.Tensor) -> None:
    generator.set_state(state)


@in_order
def seed(generator: torch.Generator) -> tuple[int]:
    return (generator.seed(),)


@in_order
def initial_seed(generator: torch.Generator) -> tuple[int]:
    return (generator.initial_seed(),)


@in_order
def seed_all() -> tuple[int]:
    return (torch.seed(),)


class TorchGeneratorVar(GraphObjectVar):
    """A `torch.Generator`; `example` is another one on the same device."""

    __slots__ = ()

    def __init__(self, device: torch.device, node: Any, source: Source | None = None) -> None:
        super().__init__(torch.Generator, node, torch.Generator(device), source)

    def truth(self, tx: Tracer) -> bool:
        return True

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        return None  # compared by identity

    def getattr_(self, tx: Tracer, name: str) -> Var:
        if name == "device":
            return make(self.example.device)
        if lookup(torch.Generator, name) is MISSING:
            return tx.raise_(AttributeError, f"'torch._C.Generator' object has no attribute {name!r}")
        return MethodVar(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        model = method_model(torch.Generator, name)
        if model is None or kwargs or len(args) != (name in _TAKE_ONE):
            return self.unsupported(tx, f"method {name!r}")
        _not_nested(tx, f"Generator.{name}()")
        return model(tx, [self, *args], {})


def wrap_generator(tx: Tracer, value: torch.Generator, source: Source | None) -> Var:
    """The Var of a generator that exists before the frame."""
    if source is None:
        source = ConstSource.of(value, "<generator>")
    tx.guard(source, "TYPE", torch.Generator)
    tx.guard(AttrSource(source, "device"), "EQUALS", value.device)
    return TorchGeneratorVar(value.device, None, source)


def _not_nested(tx: Tracer, label: str) -> None:
    if tx.graph.stack.is_nested:
        tx.graph_break("unsupported-object", f"{label} in a function that is the argument of an operator")


def _seed_of(tx: Tracer, seed: Var, label: str) -> Var:
    """The Var of an int that is a valid seed; breaks the graph for anything else."""
    if isinstance(seed, NumberVar) and not seed.is_constant() and seed.python_type() is int:
        return seed  # symbolic ints have 64 bits
    try:
        value = seed.constant()
    except NotConstant:
        value = None
    if type(value) is not int or not -_INT64 <= value < 2 * _INT64:
        tx.graph_break("unsupported-object", f"{label} of {seed.describe()}")
    return seed


def _generator_of(args: Args) -> TorchGeneratorVar:
    assert isinstance(args[0], TorchGeneratorVar)
    return args[0]


@register(torch.Generator, method="manual_seed")
def _manual_seed(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    generator, given = args
    tx.graph.call_for_effect(manual_seed, [generator, _seed_of(tx, given, "Generator.manual_seed()")], {})
    return generator


@register(torch.Generator, method="get_state")
def _get_state(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    generator = _generator_of(args)
    fake = tx.graph.fake_mode.from_tensor(generator.example.get_state(), static_shapes=True)
    return tx.graph.record(get_state, [generator], [fake])[0]


@register(torch.Generator, method="set_state")
def _set_state(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    generator, state = _generator_of(args), args[1]
    expected = generator.example.get_state()
    fake = state.fake if isinstance(state, TensorVar) else None
    if fake is None or (fake.dtype, fake.device, fake.shape) != (expected.dtype, expected.device, expected.shape):
        tx.graph_break("exception-in-traced-code", "Generator.set_state() of something that is not a generator state")
    tx.graph.call_for_effect(set_state, [generator, state], {})
    return generator


@register(torch.Generator, method="clone_state")
def _clone_state(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    generator = _generator_of(args)
    return _new_generator(tx, clone_state, generator, generator.example.device)


def _new_generator(tx: Tracer, make_it: Callable[..., torch.Generator], given: Any, device: torch.device) -> Var:
    var = TorchGeneratorVar(device, None)
    var.node = tx.graph.call_for_effect(make_it, [given], {})
    var.node.meta["val"] = var.example
    return var


def _number(tx: Tracer, read: Callable[..., tuple[int]], args: Sequence[Var]) -> Var:
    """An int that a graph node returns."""
    if not tx.graph.numbers.makes_numbers:
        tx.graph_break("unsupported-object", f"{read.__name__}() where the graph may not hold unbacked numbers")
    return tx.graph.record(read, args, [None])[0]


@register(torch.Generator, method="seed")
def _seed(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return _number(tx, seed, args)


@register(torch.Generator, method="initial_seed")
def _initial_seed(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return _number(tx, initial_seed, args)


_TAKE_ONE = ("manual_seed", "set_state")


# ---- functions ----
@register(torch.Generator)
def _generator(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """`torch.Generator(device)`."""
    _not_nested(tx, "torch.Generator()")
    try:
        values, named = [arg.constant() for arg in args], {name: value.constant() for name, value in kwargs.items()}
        device = torch.Generator(*values, **named).device
    except (NotConstant, RuntimeError, TypeError) as error:
        return tx.graph_break("unsupported-object", f"torch.Generator(): {error}")
    return _new_generator(tx, make_generator, device, device)


def _seeding(fn: Callable[[int], Any], gives_default: bool = False) -> Handler:
    """The model of a function that seeds the process's generators."""

    @in_order
    @functools.wraps(fn)
    def node(seed: int) -> None:
        fn(seed)

    def run(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
        label = f"{fn.__module__}.{fn.__name__}()"
        _not_nested(tx, label)
        arguments = (*args, *kwargs.values())
        if len(arguments) != 1 or not set(kwargs) <= {"seed"}:
            return tx.graph_break("exception-in-traced-code", f"{label} takes one seed")
        tx.graph.call_for_effect(node, [_seed_of(tx, arguments[0], label)], {})
        default = torch.default_generator
        return tx.wrap(default, ConstSource.of(default, "torch.default_generator")) if gives_default else ConstVar(None)

    return run


@register(torch.seed)
def _torch_seed(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    _not_nested(tx, "torch.seed()")
    return _number(tx, seed_all, [])


register(torch.manual_seed)(_seeding(torch.manual_seed, gives_default=True))
for _fn in (
    torch.cuda.manual_seed, torch.cuda.manual_seed_all, torch.xpu.manual_seed, torch.xpu.manual_seed_all,
    torch.mps.manual_seed,
):  # fmt: skip
    register(_fn)(_seeding(_fn))
