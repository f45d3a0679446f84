"""Handles functions that the user marked with `disable`, `assume_constant_result`, `substitute_in_graph` or the
equivalents of torch.compiler.

Pyframe's decorators, in `api`, enter a function in the sets `SKIPPED` and `CONSTANT_RESULTS` or call `substitute` here;
torch's set attributes on the function. `wrap` calls `wrap_marked` for every function it meets.
"""

from __future__ import annotations

import inspect
import sys
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph_placeholder

from ... import _C
from ...core import guard_explain, weak_codes
from ...core.guard_reference import CallContext
from ...core.source import ConstSource, Source
from ...core.trace_reliances import note_fact
from ...core.weak_codes import WeakCodes
from ...errors import UserError
from ..objects.functions import FunctionVar
from ..protocol.base import NotConstant, Var
from ..protocol.const import ConstVar, fold
from ..registry import call_model, register
from ..tracer import Tracer
from . import torch_functions
from .tensor import TensorVar
from .torch_directions import substitutes, wrap_direction

SKIPPED: weakref.WeakSet[Any] = weakref.WeakSet()  # disable(recursive=False)
# The code of the wrappers that torch.compiler.disable(recursive=False) makes: what they call runs eagerly.
EAGER_CALLERS: WeakCodes = {}
CONSTANT_RESULTS: weakref.WeakSet[Any] = weakref.WeakSet()
_substituted: list[Any] = []


def any_given() -> bool:
    """Whether the program has marked a function by a decorator of pyframe, or substituted one."""
    marked = _substituted or SKIPPED or CONSTANT_RESULTS or torch_functions.IN_GRAPH
    return bool(marked) or torch_functions.changed_breaks()


def all_given() -> tuple[Any, ...]:
    """What the program has marked and substituted so far, to be compared with what it has at another time."""
    marked = (frozenset(map(id, each)) for each in (SKIPPED, CONSTANT_RESULTS, torch_functions.IN_GRAPH))
    return (*marked, len(_substituted), torch_functions.breaks_of_torch())


def wrap_marked(value: types.FunctionType, source: Source | None) -> Var | None:
    """The Var of a Python function that pyframe or torch.compiler has marked; None if it is not marked."""
    if value in CONSTANT_RESULTS or getattr(value, "_dynamo_marked_constant", False):
        return ConstantResultVar(value, source)
    if getattr(value, "_torchdynamo_disable", False):
        # The wrapper of torch.compiler.disable turns off only torch's own hook.
        wraps = hasattr(value, "_torchdynamo_orig_callable")
        recursive = wraps and getattr(value, "_torchdynamo_disable_recursive", True)
        _C.skip_code(value.__code__, recursive=recursive)
        if wraps and not recursive:
            weak_codes.add(EAGER_CALLERS, value.__code__)
        return torch_functions.DisabledVar(value, source)
    if value in SKIPPED:
        return torch_functions.DisabledVar(value, source)
    return wrap_direction(value, source)


def disabled_for_dynamo(value: types.FunctionType) -> types.FunctionType | None:
    """The original of a torch.optim function that the first torch.compile call of the process marked as disabled.

    That mark means that torch's tracer cannot handle the function. It is not the user's, and this tracer can.
    """
    original = getattr(value, "_torchdynamo_orig_callable", None)
    if isinstance(original, types.FunctionType) and any(value is each for each in _of_optimizers()):
        return original
    return None


def _of_optimizers() -> list[Any]:
    """`_init_group` of each of torch's optimizers, and the functions that their modules define."""
    classes = [value for value in vars(torch.optim).values() if isinstance(value, type)]
    found = [cls for cls in classes if issubclass(cls, torch.optim.Optimizer)]
    functions = [value for cls in found for value in vars(sys.modules[cls.__module__]).values()]
    return [*(vars(cls).get("_init_group") for cls in found), *functions]


_MARKED = torch._disable_dynamo(lambda: None).__code__


def behind_mark(value: types.FunctionType) -> types.FunctionType:
    """The original of a function that torch itself excludes from tracing, such as `torch.manual_seed` once
    `torch._dynamo` is imported."""
    return value.__wrapped__ if value.__code__ is _MARKED else value  # type: ignore[attr-defined]


class ConstantResultVar(FunctionVar):
    """A function marked assume_constant_result: it is called while tracing, and its result is a constant of the
    capture."""

    __slots__ = ()

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        try:
            values = [existing(tx, arg) for arg in args]
            named = {name: existing(tx, arg) for name, arg in kwargs.items()}
        except NotConstant as unknown:
            tx.graph_break("unsupported-object", f"{self.name}, marked assume_constant_result, called with {unknown}")
        note_fact(f"the result of {self.name}, marked assume_constant_result")
        try:
            assert self.fn is not None
            result = self.fn(*values, **named)
        except Exception as error:  # noqa: BLE001  the program sees whatever the function raises
            tx.raise_(type(error), *error.args)
        return tx.wrap(result, ConstSource.of(result, f"{self.name}()"))


@register(invoke_subgraph_placeholder)
def _region(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """A function marked `torch.compiler.nested_compile_region` is traced like any other."""
    return tx.call(args[0], args[1:], kwargs)


def existing(tx: Tracer, var: Var) -> Any:
    """The object of a Var: a constant, or an object that existed before the frame and is unchanged."""
    if var.is_constant():
        return var.constant()
    if var.source is None or len(tx.effects) or isinstance(var, TensorVar) and not _is_unwritten_input(tx, var):
        raise NotConstant(var.describe())
    return guard_explain.read(var.source, CallContext(tx.func, tx.entry_locals))


def _is_unwritten_input(tx: Tracer, tensor: TensorVar) -> bool:
    """Whether a tensor existed before the frame and the graph has not written to its memory."""
    is_input = tensor.source in tx.graph.inputs.originals
    return is_input and not tensor.fake.is_inference() and tensor.fake._version == 0


@register(torch.compiler.cudagraph_mark_step_begin)
def _mark_step(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """Recorded graphs keep no results across steps that would have to be given up, so that there is nothing to do."""
    return ConstVar(None)


def substitute(original: Any, replacement: types.FunctionType, may_fold: bool, check_signature: bool) -> None:
    """Trace `replacement` where the program calls `original`. `may_fold`: call `original` if all arguments are
    constants."""
    if call_model(original) is not None:
        raise UserError(f"{original!r} already has a model; calls of it are traced already")
    if check_signature:
        _check_signatures(original, replacement)
    _substituted.append(original)

    @register(original)
    def handler(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
        if may_fold and all(arg.is_constant() for arg in (*args, *kwargs.values())):
            named = {name: arg.constant() for name, arg in kwargs.items()}
            return fold(tx, original, *[arg.constant() for arg in args], **named)
        return tx.inline(replacement, args, kwargs)


def follow_substitutes() -> None:
    """Substitute what the program has given to `torch.compiler.substitute_in_graph`, where there is no model."""
    for original, replacement, may_fold in substitutes():
        if call_model(original) is None:
            substitute(original, replacement, may_fold, check_signature=False)


def _check_signatures(original: Callable[..., Any], replacement: Callable[..., Any]) -> None:
    try:
        expected = inspect.signature(original)
    except ValueError:
        return  # functions written in C may have none
    found = inspect.signature(replacement)
    if _calls(expected) != _calls(found):
        raise UserError(
            f"the replacement takes {found}, {original!r} takes {expected}; make the parameters agree in name, kind "
            "and default, or pass skip_signature_check=True"
        )


def _calls(signature: inspect.Signature) -> list[tuple[Any, ...]]:
    """What matters to callers about each parameter."""
    positional = inspect.Parameter.POSITIONAL_ONLY
    return [
        (p.kind, None if p.kind is positional else p.name, p.default is p.empty) for p in signature.parameters.values()
    ]
