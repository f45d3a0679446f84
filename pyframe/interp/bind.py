"""Binding call arguments to parameters by CPython's rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..vars.base import Var
from ..vars.function import FunctionVar
from ..vars.mapping import DictVar
from ..vars.sequence import TupleVar

CO_VARARGS, CO_VARKEYWORDS = 0x04, 0x08


def bind(tx: Any, fn: FunctionVar, args: Sequence[Var], kwargs: Mapping[str, Var]) -> dict[str, Var]:
    """Parameter name -> Var; raises TypeError in the traced program where CPython would."""
    code = fn.code
    positional = code.co_varnames[: code.co_argcount]
    keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    rest_at = code.co_argcount + code.co_kwonlyargcount
    bound: dict[str, Var] = dict(zip(positional, args, strict=False))
    extra = list(args[len(positional) :])
    if extra and not code.co_flags & CO_VARARGS:
        tx.raise_(
            TypeError, f"{fn.name}() takes {len(positional)} positional arguments but {len(args)} were given"
        )
    by_name = set(positional[code.co_posonlyargcount :]) | set(keyword_only)
    unknown: dict[str, Var] = {}
    for name, value in kwargs.items():
        if name not in by_name:
            unknown[name] = value
        elif name in bound:
            tx.raise_(TypeError, f"{fn.name}() got multiple values for argument {name!r}")
        else:
            bound[name] = value
    if unknown and not code.co_flags & CO_VARKEYWORDS:
        tx.raise_(TypeError, f"{fn.name}() got an unexpected keyword argument {next(iter(unknown))!r}")
    if any(name not in bound for name in (*positional, *keyword_only)):
        _defaults(tx, fn, positional, keyword_only, bound)
    if code.co_flags & CO_VARARGS:
        bound[code.co_varnames[rest_at]] = TupleVar(extra)
        rest_at += 1
    if code.co_flags & CO_VARKEYWORDS:
        bound[code.co_varnames[rest_at]] = DictVar(unknown)
    return bound


def _defaults(
    tx: Any,
    fn: FunctionVar,
    positional: tuple[str, ...],
    keyword_only: tuple[str, ...],
    bound: dict[str, Var],
) -> None:
    values, named = fn.default_values(tx)
    if values:
        for name, value in zip(positional[-len(values) :], values, strict=True):
            bound.setdefault(name, value)
    for name, value in named.items():
        bound.setdefault(name, value)
    missing = [name for name in (*positional, *keyword_only) if name not in bound]
    if missing:
        names = ", ".join(map(repr, missing))
        tx.raise_(TypeError, f"{fn.name}() missing required arguments: {names}")
