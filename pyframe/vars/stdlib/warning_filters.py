"""Models `warnings.catch_warnings` and the functions that add filters inside of it.

The filters of the process do not change while tracing, nor after the graph: `warnings.warn` looks at those of the
traced contexts first (`stdlib.warnings`). At a graph break inside the block the real context is entered, with these
filters. A block that records warnings gets a list, to which the model of `warnings.warn` appends.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..codegen import Codegen
from ..containers.iterator import NotRebuilt
from ..containers.sequence import ListVar
from ..objects.originals import changed_by_models
from ..protocol import slots
from ..protocol.base import NotConstant, Var
from ..protocol.const import ConstVar
from ..registry import Args, Handler, Kwargs, register
from ..torch_objects.contexts import ContextVar
from ..tracer import Tracer

Filter = tuple[Any, ...]  # an item of `warnings.filters`

for _name in ("filters", "showwarning", "_showwarnmsg_impl"):  # `catch_warnings` restores them
    changed_by_models(warnings, _name)


class Filtered(warnings.catch_warnings):
    """A `catch_warnings` that adds filters before those of the process when it is entered."""

    def __init__(self, filters: Sequence[Filter]) -> None:
        super().__init__(record=False)
        self._added = filters

    def __enter__(self) -> None:
        super().__enter__()
        present: Any = warnings.filters  # a list
        for each in reversed(self._added):
            if each in present:
                present.remove(each)
            present.insert(0, each)


class Recording(Filtered):
    """A `Filtered` that appends warnings to `log`, which the program has already."""

    def __init__(self, filters: Sequence[Filter], log: list[Any]) -> None:
        super().__init__(filters)
        self._log = log

    def __enter__(self) -> None:
        super().__enter__()
        module: Any = warnings
        module._showwarnmsg_impl, module.showwarning = self._log.append, module._showwarning_orig


def forget_printed() -> None:
    """What entering and leaving a context does besides: a warning that was printed once is printed again."""
    with warnings.catch_warnings():
        pass


class CatchWarningsVar(ContextVar):
    """A `catch_warnings`. `filters`: those that it has added, the last first. `records`: whether it records warnings;
    `log` is then the list of them. `can_rebuild`: whether it is entered, and no warning that is issued after the graph
    depends on the filters around it."""

    __slots__ = ("can_rebuild", "filters", "first", "log", "records", "step")

    def __init__(self, first: Sequence[Filter], step: int, records: bool = False) -> None:
        super().__init__(warnings.catch_warnings)
        self.first, self.step, self.records = first, step, records
        self.log: ListVar | None = None
        self.filters: list[Filter] = []
        self.can_rebuild = False

    def describe(self) -> str:
        return "a warnings.catch_warnings"

    def truth(self, tx: Tracer) -> bool:
        return True

    def clone(self) -> ContextVar:
        return CatchWarningsVar(self.first, self.step, self.records)

    def enter(self, tx: Tracer) -> Var:
        if self in tx.warning_contexts or tx.graph.stack.is_nested:
            self.unsupported(tx, "__enter__()")
        self.can_rebuild = not any(map(_warns, tx.effects))
        self.filters = list(self.first)
        tx.warning_contexts.insert(0, self)
        tx.effects.add("CALL", None, (forget_printed, [], {}), tx.user_line())
        self.log = ListVar([]) if self.records else None
        return self.log or ConstVar(None)

    def exit(self, tx: Tracer) -> Var:
        if tx.warning_contexts[:1] != [self]:
            self.unsupported(tx, "__exit__()")
        del tx.warning_contexts[0]
        self.can_rebuild = False
        return ConstVar(None)

    def reconstruct(self, cg: Codegen) -> None:
        if not self.can_rebuild:
            raise NotRebuilt(self.describe(), self.step, "unsupported-object")
        log = self.log
        cg.load_const(Filtered if log is None else Recording)
        arguments = [lambda: cg.load_const(tuple(self.filters))]
        cg.call_top(*arguments, *(() if log is None else (lambda: cg.load(log),)))


def warn_under(filters: Sequence[Filter], warn: Any) -> None:
    """Issue a warning under these filters."""
    with Filtered(filters):
        warn()


@contextlib.contextmanager
def issued_warnings(asked: bool) -> Iterator[list[warnings.WarningMessage]]:
    """The warnings that are issued inside if `asked`, whatever the filters of the process; they are not printed."""
    if not asked:
        yield []
        return
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        yield issued


def _warns(effect: Any) -> bool:
    """Whether an effect issues a warning under the filters of the process."""
    function = effect.detail[0] if effect.kind == "CALL" and effect.target is None else None
    return getattr(function, "issues_warning", False)


def filters_of(tx: Tracer) -> list[Filter]:
    """The filters that traced contexts have added, those that apply first first."""
    return [each for context in tx.warning_contexts for each in context.filters]


def _added_by(tx: Tracer, function: Any, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Filter | None:
    """The filter that a call of `warnings.simplefilter` or `filterwarnings` adds before all others; None if it adds
    none there."""
    try:
        values, named = [arg.constant() for arg in args], {name: arg.constant() for name, arg in kwargs.items()}
    except NotConstant:
        return None
    with warnings.catch_warnings():
        mark = ("default", None, CatchWarningsVar, None, 0)
        warnings.filters[:0] = [mark]  # type: ignore[index]  # a list
        try:
            function(*values, **named)
        except (AssertionError, ValueError, TypeError):  # for arguments that it rejects
            return None
        added: Filter = warnings.filters[0]
        return None if added is mark else added


@register(warnings.catch_warnings)
def _catch_warnings(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    action, record = kwargs.get("action"), slots.constant_or(kwargs.get("record", ConstVar(False)), None)
    module = kwargs.get("module")
    if args or not isinstance(record, bool) or module is not None and slots.constant_or(module, module) is not None:
        return tx.graph_break("unsupported-object", "catch_warnings() with these arguments")
    if record and hasattr(warnings, "_get_context"):  # CPython 3.14 and later: the context keeps the list
        return tx.graph_break("unsupported-object", "catch_warnings() that records")
    rest = {name: value for name, value in kwargs.items() if name not in ("record", "module", "action")}
    first: list[Filter] = []
    if action is not None and not (action.is_constant() and action.constant() is None):
        added = _added_by(tx, warnings.simplefilter, [action], rest)
        if added is None:
            return tx.graph_break("unsupported-object", "catch_warnings() with these arguments")
        first.append(added)
    return CatchWarningsVar(first, tx.steps, record)


def _adding(function: Any) -> Handler:
    def model(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
        added = _added_by(tx, function, args, kwargs) if tx.warning_contexts else None
        if added is None:
            return tx.inline(function, args, kwargs)
        filters = tx.warning_contexts[0].filters
        filters[:] = [added, *(each for each in filters if each != added)]
        return ConstVar(None)

    return model


for _function in (warnings.simplefilter, warnings.filterwarnings):
    register(_function)(_adding(_function))
