"""Binds the arguments of a call to the parameters of a Python function, by CPython's rules and with CPython's error
messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..vars.containers.mapping import DictVar
from ..vars.containers.sequence import TupleVar
from ..vars.objects.functions import FunctionVar
from ..vars.protocol.base import Var

if TYPE_CHECKING:
    from .trace import Trace

CO_VARARGS, CO_VARKEYWORDS = 0x04, 0x08


def bind(tx: Trace, fn: FunctionVar, args: Sequence[Var], kwargs: Mapping[str, Var]) -> dict[str, Var]:
    """Map parameter names to Vars; raises TypeError in the traced program where CPython would."""
    code = fn.code
    positional = code.co_varnames[: code.co_argcount]
    keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    rest_at = code.co_argcount + code.co_kwonlyargcount
    bound: dict[str, Var] = dict(zip(positional, args, strict=False))
    extra = list(args[len(positional) :])
    shown = fn.qualname
    by_name = set(positional[code.co_posonlyargcount :]) | set(keyword_only)
    unknown: dict[str, Var] = {}
    for name, value in kwargs.items():
        if name not in by_name:
            unknown[name] = value
        elif name in bound:
            tx.raise_(TypeError, f"{shown}() got multiple values for argument {name!r}")
        else:
            bound[name] = value
    if unknown and not code.co_flags & CO_VARKEYWORDS:
        by_position = [name for name in positional[: code.co_posonlyargcount] if name in unknown]
        if by_position:
            names = ", ".join(by_position)
            text = f"got some positional-only arguments passed as keyword arguments: {names!r}"
            tx.raise_(TypeError, f"{shown}() {text}")
        tx.raise_(TypeError, f"{shown}() got an unexpected keyword argument {next(iter(unknown))!r}")
    if extra and not code.co_flags & CO_VARARGS:
        _too_many(tx, fn, shown, len(args), [name for name in keyword_only if name in bound])
    if any(name not in bound for name in (*positional, *keyword_only)):
        _defaults(tx, fn, positional, keyword_only, bound)
    if code.co_flags & CO_VARARGS:
        bound[code.co_varnames[rest_at]] = TupleVar(extra)
        rest_at += 1
    if code.co_flags & CO_VARKEYWORDS:
        bound[code.co_varnames[rest_at]] = DictVar(unknown)
    return bound


def _defaults(
    tx: Trace,
    fn: FunctionVar,
    positional: tuple[str, ...],
    keyword_only: tuple[str, ...],
    bound: dict[str, Var],
) -> None:
    values, named = fn.default_values(tx)
    for name, value in zip(reversed(positional), reversed(values), strict=False):  # extra defaults are allowed
        bound.setdefault(name, value)
    for name, value in named.items():
        bound.setdefault(name, value)
    for kind, names in (("positional", positional), ("keyword-only", keyword_only)):
        missing = [repr(name) for name in names if name not in bound]
        if missing:
            plural = "s" if len(missing) > 1 else ""
            what = f"missing {len(missing)} required {kind} argument{plural}: {_listed(missing)}"
            tx.raise_(TypeError, f"{fn.qualname}() {what}")


def _listed(names: Sequence[str]) -> str:
    if len(names) < 3:
        return " and ".join(names)
    return f"{', '.join(names[:-1])}, and {names[-1]}"


def _too_many(tx: Trace, fn: FunctionVar, shown: str, given: int, named: Sequence[str]) -> None:
    code = fn.code
    values, _ = fn.default_values(tx)
    most, least = code.co_argcount, code.co_argcount - len(values)
    plural = "s" if most != 1 or values else ""
    takes = f"from {least} to {most}" if values else str(most)
    also = ""
    if named:
        also = f" positional argument{'s' if given != 1 else ''} (and {len(named)} keyword-only argument"
        also += f"{'s' if len(named) != 1 else ''})"
    verb = "was" if given == 1 and not named else "were"
    text = f"takes {takes} positional argument{plural} but {given}{also} {verb} given"
    tx.raise_(TypeError, f"{shown}() {text}")
