"""Directions that a program gives to torch.compile, and that captures follow, too: calls such as
`torch._dynamo.graph_break()`, and marks on functions such as `torch.compiler.allow_in_graph`.

torch._dynamo, which defines them, is not imported here: a program that gives a direction has imported it. torch's own
code gives directions that concern only torch's tracer. They are left out: calls in torch's files, and marks on
functions and classes that torch defines.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.source import CallSource, ConstSource, Source
from ..objects.functions import FunctionVar
from ..objects.originals import in_torch, torchs_class
from ..protocol.base import NotConstant, Var
from ..protocol.const import ConstVar
from ..protocol.slots import constant_or
from ..tracer import Tracer
from .config_patches import SwitchSettingsVar

# Functions of torch._dynamo.decorators, and whether each excludes the rest of its frame.
_CALLS = {"graph_break": False, "step_unsupported": False, "skip_frame": True}


def is_allowed(value: Any) -> bool:
    """Whether the program has marked a function or class with `torch.compiler.allow_in_graph`."""
    return _is_marked(value, "_allowed_callable_ids") and not _is_torchs(value)


def is_disallowed(value: Any) -> bool:
    """Whether the program has marked a function of its own, or an operator, with `torch._dynamo.disallow_in_graph`."""
    return _is_marked(value, "_disallowed_callable_ids") and not _is_torchs(value)


def is_disallowed_node(value: Any) -> bool:
    """`is_disallowed` for a function that would be a node of the graph. It may also be a Python function of torch; the
    functions that torch itself marks are traced."""
    return _is_marked(value, "_disallowed_callable_ids")


def _is_marked(value: Any, kind: str) -> bool:
    return id(value) in getattr(sys.modules.get("torch._dynamo.trace_rules"), kind, ())


def _is_torchs(value: Any) -> bool:
    """Whether torch defines a Python function or a class."""
    if isinstance(value, types.FunctionType):
        return in_torch(value.__code__)
    return isinstance(value, type) and torchs_class(value)


def wrap_direction(value: types.FunctionType, source: Source | None) -> Var | None:
    """The Var of a function whose calls are directions; None for any other."""
    decorators = sys.modules.get("torch._dynamo.decorators")
    if decorators is not None and value.__globals__ is vars(decorators):
        for name, whole_frame in _CALLS.items():
            if getattr(decorators, name, None) is value:
                return DirectionVar(value, source, whole_frame)
        if getattr(decorators, "patch_dynamo_config", None) is value:
            return PatchSettingsVar(value, source)
        patch = vars(getattr(decorators, "DynamoConfigPatchProxy", object))
        if value in (patch.get("__enter__"), patch.get("__exit__")):
            return SwitchSettingsVar(value, source, leaves=value is patch.get("__exit__"))
    utilities = sys.modules.get("torch._dynamo.utils")
    if utilities is not None and value.__globals__ is vars(utilities):
        for name, kind in _ABOUT_BREAKS.items():
            if getattr(utilities, name, None) is value:
                return kind(value, source)
    package = sys.modules.get("torch._dynamo")
    if package is not None and value.__globals__ is vars(package) and getattr(package, "reset", None) is value:
        return ResetVar(value, source)
    if getattr(value, "_dynamo_forbidden", False) and not in_torch(value.__code__):
        return ForbiddenVar(value, source)
    return None


def substitutes() -> list[tuple[Any, types.FunctionType, bool]]:
    """What the program has passed to `torch.compiler.substitute_in_graph` since the last call: the original function,
    its replacement, and whether calls with constants may be evaluated."""
    functions = sys.modules.get("torch._dynamo.variables.functions")
    variable = getattr(functions, "PolyfilledFunctionVariable", None)
    if variable is None or len(handlers := variable._get_polyfill_handlers()) == len(_substituted):
        return []
    found = []
    for original, wrapper in list(handlers.items()):
        if id(wrapper) in _substituted and id(original) in _substituted:
            continue
        _substituted.update((id(original), id(wrapper)))  # the table of torch keeps both alive
        replacement = getattr(wrapper, "__torch_dynamo_polyfill__", None)
        if original is wrapper or not isinstance(replacement, types.FunctionType):
            continue
        if not in_torch(replacement.__code__):
            found.append((original, replacement, wrapper.__torch_dynamo_can_constant_fold_through__))
    return found


_substituted: set[int] = set()


class DirectionVar(FunctionVar):
    """A function that asks for a graph break or, with `whole_frame`, for running the frame that calls it eagerly."""

    __slots__ = ("whole_frame",)

    def __init__(self, value: types.FunctionType, source: Source | None, whole_frame: bool) -> None:
        super().__init__(value, source)
        self.whole_frame = whole_frame

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        if in_torch(tx.frames[-1].code) or _is_nonstrict(tx):
            return ConstVar(None)
        message = constant_or(args[0] if args else kwargs.get("msg", ConstVar("")), "")
        what = f"torch._dynamo.{self.name} was called" + (f": {message}" if message else "")
        if self.whole_frame and len(tx.frames) == 1:
            tx.run_eagerly(what)
        return tx.graph_break("explicit-break", what)


def _is_nonstrict(tx: Tracer) -> bool:
    """Whether a function marked with `torch._dynamo.nonstrict_trace` is being traced: torch does not read its code."""
    nonstrict = getattr(sys.modules.get("torch._dynamo.decorators"), "nonstrict_trace", None)
    if nonstrict is None:
        return False
    return any(frame.code in nonstrict.__code__.co_consts for frame in tx.frames)


class PatchSettingsVar(FunctionVar):
    """`torch._dynamo.patch_dynamo_config`, which `dont_skip_tracing` and others call: it creates a context manager for
    settings of torch.compile, which have no effect on captures."""

    __slots__ = ()

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        assert self.fn is not None
        try:
            names = {name: value.constant() for name, value in kwargs.items()}
            created = self.fn(*(arg.constant() for arg in args), **names)
        except (NotConstant, ValueError, AttributeError):  # the last two: torch has no such setting
            return tx.graph_break("unsupported-context-manager", f"{self.name} of these arguments")
        return tx.wrap(created, ConstSource.of(created, self.name))


class ResetVar(FunctionVar):
    """`torch._dynamo.reset`."""

    __slots__ = ()

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return tx.graph_break("compiler-switch", "torch._dynamo.reset was called")


class ForbiddenVar(FunctionVar):
    """A function marked `torch._dynamo.forbid_in_graph`: calling it in compiled code is an error."""

    __slots__ = ()

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        tx.error_on_break = True
        return tx.graph_break("disallowed-function", f"{self.name}, marked torch._dynamo.forbid_in_graph, was called")


class BreaksAreErrorsVar(FunctionVar):
    """The function by which the contexts of `torch._dynamo.error_on_graph_break` read the state that they set."""

    __slots__ = ()

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        assert self.fn is not None
        source = CallSource(ConstSource.of(self.fn, self.name), _called, "")
        tx.guard(source, "EQUALS", self.fn())
        return ConstVar(tx.error_on_break)


class SetBreaksAreErrorsVar(FunctionVar):
    """The function by which the contexts of `torch._dynamo.error_on_graph_break` set the state."""

    __slots__ = ()

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        tx.error_on_break = args[0].constant()
        tx.effects.add("CALL", None, (self.fn, list(args), {}), tx.user_line())
        return ConstVar(None)


def _called(function: Any) -> Any:
    return function()


_ABOUT_BREAKS: dict[str, type[FunctionVar]] = {
    "_get_error_on_graph_break": BreaksAreErrorsVar, "_set_error_on_graph_break": SetBreaksAreErrorsVar,
}  # fmt: skip
