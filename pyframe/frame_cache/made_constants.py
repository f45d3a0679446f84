"""Constants of replacement code that a capture has made, as data: resume functions, and what is said about breaks.

A resume function is described by what it was made for, a place in the code of a function, and is made again from the
code that this process has: the frame's own code, the code that the frame continues, code within one of these, or that
of a function which a guard has compared.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

from .. import _C
from ..core.break_reason import BreakReason
from ..core.guard import UserLine
from ..core.source import AttrSource, LocalSource, SeqItemSource, Source
from ..emit.described_resume import described_resume, raise_at
from ..emit.loops import LoopBodySpec
from ..emit.resume import Continuation, ResumeKey, continuation, parts_of
from .described import NotKept, describe, has_name, resolve

_OWN_NAMES = ("move_args", "raise_in")  # functions in C that have no names of their own
# Where code is found: that of the frame, the one that it continues, that of a function, a code object by itself.
OWN, CONTINUED, FUNCTION, OBJECT = "own", "continued", "function", "object"
Number = Callable[[Any], tuple[str, int]]  # how to find code in the table of a record: FUNCTION or OBJECT, and a number
Object = Callable[[int], Any]


def as_data(value: Any, code: types.CodeType, number: Number) -> tuple[Any, ...] | None:
    """The description of a constant in the replacement of a frame that runs `code`; None for one that existed
    before."""
    if isinstance(value, types.CodeType) and (known := continuation(value)) is not None:
        return "resume", *_resume(known, code, number)
    if type(value) is functools.partial and value.func is raise_at:
        (key,) = value.args
        return "raise", _key(key.code, parts_of(key), code, number)
    if type(value) is type(_C.move_args):
        return "own", next(name for name in _OWN_NAMES if getattr(_C, name) is value)
    if type(value) is BreakReason:
        return "reason", value.kind, value.detail, tuple(map(_line, value.stack))
    return None


def remade(data: tuple[Any, ...], code: types.CodeType, object_of: Object) -> Any:
    """The constant of this description for a frame that runs `code`."""
    kind, *parts = data
    if kind == "resume":
        return _remade_resume(parts, code, object_of)
    if kind == "raise":
        return functools.partial(raise_at, _remade_key(parts[0], code, object_of))
    if kind == "own":
        return getattr(_C, parts[0])
    reason, detail, lines = parts
    return BreakReason(reason, detail, tuple(UserLine(*line) for line in lines))


def _resume(known: Continuation, code: types.CodeType, number: Number) -> tuple[Any, ...]:
    assert known.key is not None
    made_from = known.key[0]()
    if made_from is None:
        raise NotKept("a resume function of code that is gone")
    varying = tuple(sorted(_varying(known), key=repr))
    sizes = tuple(sorted((path, dim) for source, dim in known.sizes if (path := _path(source)) is not None))
    after = None if known.after is None else _line(known.after)
    return _key(made_from, known.key[1], code, number), known.loops, known.handled, varying, sizes, after


def _remade_resume(parts: Sequence[Any], code: types.CodeType, object_of: Object) -> types.CodeType:
    key, loops, handled, varying, sizes, after = parts
    lines = () if after is None else (UserLine(*after),)
    made, known = described_resume(_remade_key(key, code, object_of), loops, lines)
    known.handled = handled
    for path, kinds in varying:
        known.varying.setdefault(_source(path), tuple(map(resolve, kinds)))
    known.sizes.update((_source(path), dim) for path, dim in sizes)
    return made


def _key(made_from: types.CodeType, parts: tuple[Any, ...], code: types.CodeType, number: Number) -> tuple[Any, ...]:
    at, nulls, live, first, maybe, cut, handled, raised_at = parts
    loop = None if cut is None else (cut.head, cut.carried, cut.maybe, cut.nulls)
    return _place(made_from, code, number), at, nulls, live, first, maybe, loop, handled, raised_at


def _place(wanted: types.CodeType, code: types.CodeType, number: Number) -> tuple[Any, ...]:
    for kind, root in ((OWN, code), (CONTINUED, _continued(code))):
        path = None if root is None else _path_to(wanted, root)
        if path is not None:
            return kind, path
    return number(wanted)


def _path_to(wanted: types.CodeType, code: types.CodeType) -> tuple[int, ...] | None:
    """The indices of constants that lead from one code object to another in it; None if it is not in it."""
    if code is wanted:
        return ()
    for at, const in enumerate(code.co_consts):
        if isinstance(const, types.CodeType) and (path := _path_to(wanted, const)) is not None:
            return (at, *path)
    return None


def _code_at(place: tuple[Any, ...], code: types.CodeType, object_of: Object) -> types.CodeType:
    kind, where = place
    found: Any
    if kind in (FUNCTION, OBJECT):
        found = object_of(where)
        return found if kind == OBJECT else found.__code__
    found = code if kind == OWN else _continued(code)
    for at in where:
        found = found.co_consts[at]
    return found


def _remade_key(data: tuple[Any, ...], code: types.CodeType, object_of: Object) -> ResumeKey:
    place, at, nulls, live, first, maybe, loop, handled, raised_at = data
    cut = None if loop is None else LoopBodySpec(*loop)
    return ResumeKey(
        _code_at(place, code, object_of), at, nulls, live, first, maybe, cut, handled, raised_at
    )


def _continued(code: types.CodeType) -> types.CodeType | None:
    """The code that a resume function continues."""
    known = continuation(code)
    return None if known is None or known.original is None else known.original[0]()


def _varying(known: Continuation) -> list[tuple[Any, ...]]:
    found = []
    for source, kinds in known.varying.items():
        path, described = _path(source), tuple(map(describe, kinds))
        if path is not None and all(map(has_name, described)):
            found.append((path, described))
    return found


def _path(source: Source) -> tuple[Any, ...] | None:
    """The source of a parameter, or of what is read from one, as data; None for another source."""
    steps: list[tuple[str, Any]] = []
    while isinstance(source, AttrSource | SeqItemSource):
        steps.append(("attribute", source.attr) if isinstance(source, AttrSource) else ("item", source.index))
        source = source.parent
    return (source.local, source.index, *reversed(steps)) if isinstance(source, LocalSource) else None


def _source(path: tuple[Any, ...]) -> Source:
    name, index, *steps = path
    source: Source = LocalSource(name, index)
    for kind, step in steps:
        source = AttrSource(source, step) if kind == "attribute" else SeqItemSource(source, step)
    return source


def _line(line: UserLine) -> tuple[Any, ...]:
    return line.filename, line.lineno, line.function, line.text
