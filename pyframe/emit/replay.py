"""Turns the log of side effects into instructions. The code first computes every new value into a temporary, then
performs all writes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from inductor.modes import SET_GRAD

from ..core.effects import Effect
from ..vars.objects.builtin_instances import fill, set_items
from ..vars.objects.functions import CellVar
from .reconstruct import ValueEmitter

Commit = Callable[[], None]


def distinct(effects: Iterable[Effect]) -> list[Effect]:
    """One effect per location written, in the order of first writes (the Vars hold the final state). An attribute that
    was deleted in between moves to its last write."""
    seen: dict[Any, Effect] = {}
    for number, effect in enumerate(effects):
        key = number if effect.kind in ("CALL", "HANDLED") else (effect.kind, id(effect.target), effect.detail)
        if effect.kind == "ATTR" and effect.detail in effect.target.dropped:
            seen.pop(key, None)
        seen.setdefault(key, effect)
    return list(seen.values())


def compute(cg: ValueEmitter, effects: Iterable[Effect]) -> list[Commit]:
    """Emit the computation of all new values; returns functions that emit the writes."""
    return [_COMPUTE[effect.kind](cg, effect) for effect in _modes_first(distinct(effects))]


def _modes_first(effects: Sequence[Effect]) -> list[Effect]:
    """Switches of grad mode before the writes that precede them, so that no exception in a write leaves the mode of a
    block that the program has left. The writes do not depend on it: their values are computed before."""
    ordered: list[Effect] = []
    for effect in effects:
        at = len(ordered)
        if effect.kind == "CALL" and effect.detail[0] is SET_GRAD:
            while at and ordered[at - 1].kind not in ("CALL", "HANDLED"):
                at -= 1
        ordered.insert(at, effect)
    return ordered


def _container(cg: ValueEmitter, effect: Effect) -> Commit:
    target = effect.target
    place = cg.load_to_local(target)
    if effect.kind in ("DICT", "SET"):
        target.load_contents(cg)
    else:
        cg.sequence("BUILD_LIST", target.items)
    values = [cg.asm.store_fast()]
    if effect.kind == "DICT":
        target.load_set_again(cg)
        values.append(cg.asm.store_fast())

    def refill() -> None:
        cg.load_const(set_items if effect.kind == "DEQUE" and not target.rearranged else fill)
        kind = target.python_type()
        loads = [functools.partial(cg.asm.load_fast, name) for name in values]
        cg.call_top(lambda: cg.asm.load_fast(place), lambda: cg.load_const(kind), *loads)
        cg.emit("POP_TOP")

    return refill


def _attr(cg: ValueEmitter, effect: Effect) -> Commit:
    target, name = effect.target, effect.detail
    place = cg.load_to_local(target)
    value = target.written(name)
    temp = None if value is None else cg.load_to_local(value)

    def commit() -> None:
        if temp is None or name in target.dropped:
            cg.load_const(_discard)
            cg.call_top(
                lambda: cg.load_const(target.setter("__delattr__", name) or delattr),
                lambda: cg.asm.load_fast(place),
                lambda: cg.load_const(name),
            )
            cg.emit("POP_TOP")
        if temp is None:
            return
        setter = target.setter("__setattr__", name)
        if setter is not None:
            cg.load_const(setter)
            cg.call_top(lambda: cg.asm.load_fast(place), lambda: cg.load_const(name), lambda: cg.asm.load_fast(temp))
            cg.emit("POP_TOP")
            return
        cg.asm.load_fast(temp)
        cg.asm.load_fast(place)
        cg.emit("STORE_ATTR", name)

    return commit


def _discard(delete: Callable[[Any, str], None], target: Any, name: str) -> None:
    """Delete an attribute that the program has deleted; it may be missing if the program also created it."""
    try:
        delete(target, name)
    except AttributeError:
        pass


def _global(cg: ValueEmitter, effect: Effect) -> Commit:
    value = cg.load_to_local(effect.target.written[effect.detail])

    def commit() -> None:
        cg.asm.load_fast(value)
        cg.load_globals(effect.target.value)
        cg.load_const(effect.detail)
        cg.emit("STORE_SUBSCR")

    return commit


def _cell(cg: ValueEmitter, effect: Effect) -> Commit:
    cell: CellVar = effect.target
    place = cg.load_to_local(cell)
    value = None if cell.content is None else cg.load_to_local(cell.content)

    def commit() -> None:
        if value is not None:
            cg.asm.load_fast(value)
        cg.asm.load_fast(place)
        cg.emit("DELETE_ATTR" if value is None else "STORE_ATTR", "cell_contents")

    return commit


def _call(cg: ValueEmitter, effect: Effect) -> Commit:
    fn, args, kwargs = effect.detail
    temps = [cg.load_to_local(arg) for arg in (*args, *kwargs.values())]

    def commit() -> None:
        cg.load_const(fn)
        cg.call_top(*(lambda name=name: cg.asm.load_fast(name) for name in temps), names=tuple(kwargs))
        cg.emit("POP_TOP")

    return commit


def _handled(cg: ValueEmitter, effect: Effect) -> Commit:
    before = cg.load_to_local(effect.detail)

    def commit() -> None:
        cg.asm.load_fast(before)
        cg.emit("POP_EXCEPT")

    return commit


_COMPUTE: dict[str, Callable[[ValueEmitter, Effect], Commit]] = {
    **dict.fromkeys(("LIST", "DICT", "SET", "DEQUE"), _container),
    "ATTR": _attr,
    "GLOBAL": _global,
    "CELL": _cell,
    "CALL": _call,
    "HANDLED": _handled,
}
