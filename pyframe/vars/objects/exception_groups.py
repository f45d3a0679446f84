"""Exception groups: their construction, `split` and `subgroup`, and what `except*` makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..containers.sequence import ListVar, TupleVar
from ..protocol import slots
from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..registry import Args, Kwargs, register
from ..tracer import Tracer
from .exceptions import ExceptionVar, TracebackVar
from .functions import FunctionVar

_LINKS = ("__cause__", "__context__", "__suppress_context__")
_NONE = ConstVar(None)


def new_group(tx: Tracer, cls: type, args: Sequence[Var]) -> Var:
    """`BaseExceptionGroup.__new__(cls, *args)`."""
    if len(args) != 2 or not slots.has_type(args[0], str) or not slots.has_type(args[1], list, tuple):
        return tx.graph_break("unsupported-object", "creating an exception group with these arguments")
    items = args[1].unpack(tx)
    if not items:
        tx.raise_(ValueError, "second argument (exceptions) must be a non-empty sequence")
    for index, item in enumerate(items):
        if not slots.has_type(item, BaseException):
            tx.raise_(ValueError, f"Item {index} of second argument (exceptions) is not an exception")
    if all(slots.has_type(item, Exception) for item in items):
        cls = ExceptionGroup if cls is BaseExceptionGroup else cls
    elif issubclass(cls, Exception):
        named = "an ExceptionGroup" if cls is ExceptionGroup else repr(cls.__name__)
        tx.raise_(TypeError, f"Cannot nest BaseExceptions in {named}")
    group = ExceptionVar(cls, args)
    group.links["message"], group.links["exceptions"] = args[0], TupleVar(items)
    return group


def _is_group(var: Var) -> bool:
    return slots.has_type(var, BaseExceptionGroup)


def _test(tx: Tracer, condition: Var) -> Callable[[Var], bool]:
    """The function that says whether an exception satisfies the condition of `split`."""
    known = slots.constant_or(condition, None)
    kinds = known if isinstance(known, tuple) else (known,)
    if all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        return lambda exc: slots.has_type(exc, *kinds)
    if not isinstance(condition, FunctionVar):
        return tx.graph_break("unsupported-object", "the split of an exception group by something else")
    return lambda exc: tx.call(condition, [exc], {}).truth(tx)


def _split(tx: Tracer, group: Var, test: Callable[[Var], bool]) -> tuple[Var, Var]:
    """The groups of exceptions in `group` that do and do not pass the test; None for those that would be empty."""
    if test(group):
        return group, _NONE
    parts: tuple[list[Var], list[Var]] = ([], [])
    for exc in tx.getattr(group, "exceptions").unpack(tx):
        found = _split(tx, exc, test) if _is_group(exc) else (exc, _NONE) if test(exc) else (_NONE, exc)
        for part, each in zip(parts, found, strict=True):
            if each is not _NONE:
                part.append(each)
    match, rest = (_part(tx, group, part) for part in parts)
    return match, rest


def _part(tx: Tracer, group: Var, items: list[Var]) -> Var:
    """The group of some of the exceptions in `group`, with what else belongs to that."""
    if not items:
        return _NONE
    found = tx.call(tx.getattr(group, "derive"), [ListVar(items)], {})
    if not _is_group(found):
        tx.raise_(TypeError, "derive must return an instance of BaseExceptionGroup")
    if not isinstance(found, ExceptionVar) or not isinstance(group, ExceptionVar):
        return found.unsupported(tx, "the split")
    for name in _LINKS:
        if name in group.links:
            found.links[name] = group.links[name]
    if group.step or group.value is not None and "__traceback__" in group.links:
        found.links["__traceback__"] = TracebackVar(group)
    if tx.has_attribute(group, "__notes__"):
        notes = tx.getattr(group, "__notes__")
        if slots.has_type(notes, list, tuple):
            found.setattr_(tx, "__notes__", ListVar(notes.unpack(tx)))
    found.part_of = group.part_of or group
    return found


@register(BaseExceptionGroup.split)
def _split_model(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return TupleVar(list(_split(tx, args[0], _test(tx, args[1]))))


@register(BaseExceptionGroup.subgroup)
def _subgroup(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return _split(tx, args[0], _test(tx, args[1]))[0]


@register(BaseExceptionGroup.derive)
def _derive(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return new_group(tx, BaseExceptionGroup, [tx.getattr(args[0], "message"), args[1]])


def matched(tx: Tracer, exc: Var, kinds: Var) -> tuple[Var, Var]:
    """What `except* kinds` handles of an exception, and what it leaves."""
    if exc.is_constant() and exc.constant() is None:
        return _NONE, _NONE
    known = slots.constant_or(kinds, None)
    each_kind: Any = known if isinstance(known, tuple) else (known,)
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in each_kind):
        tx.raise_(TypeError, "catching classes that do not inherit from BaseException is not allowed")
    if any(issubclass(kind, BaseExceptionGroup) for kind in each_kind):
        tx.raise_(TypeError, "catching ExceptionGroup with except* is not allowed. Use except instead.")
    if slots.has_type(exc, *each_kind):
        whole = exc if _is_group(exc) else new_group(tx, BaseExceptionGroup, [ConstVar(""), TupleVar([exc])])
        return whole, _NONE
    if not _is_group(exc):
        return _NONE, exc
    match, rest = tx.call(tx.getattr(exc, "split"), [kinds], {}).unpack(tx)
    return match, rest


def left_over(tx: Tracer, original: Var, raised: Sequence[Var]) -> Var:
    """The exception that leaves a `try` statement with `except*` clauses for `original`, None if none does. `raised`:
    those that the clauses raised, and what they did not handle, with None for clauses that raised nothing."""
    if not raised or not _is_group(original):
        return raised[0] if raised else _NONE
    found = [exc for exc in raised if not (exc.is_constant() and exc.constant() is None)]
    again = [exc for exc in found if exc is original or getattr(exc, "part_of", None) is original]
    new = [exc for exc in found if not any(exc is each for each in again)]
    kept = [leaf for exc in again for leaf in _leaves(tx, exc)]
    rest = _split(tx, original, lambda exc: any(exc is leaf for leaf in kept))[0] if kept else _NONE
    if rest is not _NONE:
        new.append(rest)
    if len(new) > 1:
        return new_group(tx, BaseExceptionGroup, [ConstVar(""), ListVar(new)])
    return new[0] if new else _NONE


def _leaves(tx: Tracer, group: Var) -> list[Var]:
    if not _is_group(group):
        return [group]
    return [leaf for exc in tx.getattr(group, "exceptions").unpack(tx) for leaf in _leaves(tx, exc)]
