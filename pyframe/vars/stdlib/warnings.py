"""Models `warnings.warn`.

A warning that would only be printed or ignored is issued after the graph, under the filters in force at that time.
What a `catch_warnings` of the frame makes of it is done while tracing: its filters may turn the warning into an
exception, and it may record it. The graph breaks, and the real call is made, where filters of the process do so.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from ...core.files import our_file
from ...core.guard import UserLine
from ...core.source import ConstSource
from ..protocol.base import NotConstant, Raised, Var
from ..protocol.const import ConstVar, make
from ..registry import register
from ..tracer import Tracer
from .warning_filters import Filter, filters_of, warn_under

_PARAMETERS = ("message", "category", "stacklevel", "source")


def _only_prints() -> bool:
    """Whether warnings that pass the filters are printed by the original functions of `warnings`."""
    show, shown = warnings.showwarning, getattr(warnings, "_showwarnmsg_impl", None)
    stock = show is getattr(warnings, "_showwarning_orig", None) and isinstance(shown, types.FunctionType)
    context = getattr(warnings, "_get_context", None)
    return stock and (context is None or context() is context.__globals__["_global_context"])  # CPython 3.14 and later


class _Prints:
    """Guard predicate: the warning is only printed or ignored.  Instances for the same warning compare equal."""

    def __init__(self, text: str, category: type, module: str, lineno: int) -> None:
        self.asked = (text, category, module, lineno)

    def __call__(self, _: Any) -> bool:
        if not _only_prints():
            return False
        action = self.action(warnings.filters) or getattr(warnings, "defaultaction", "default")
        return bool(action != "error")

    def action(self, filters: Iterable[Filter]) -> str | None:
        """What the first of these filters that applies says; None if none applies."""
        text, category, module, lineno = self.asked
        for action, message, kind, where, line in filters:
            known = (message is None or _matches(message, text)) and (where is None or _matches(where, module))
            if known and issubclass(category, kind) and line in (0, lineno):
                return action
        return None

    def __hash__(self) -> int:
        return hash(self.asked)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Prints) and self.asked == other.asked


def _matches(pattern: Any, text: str) -> bool:
    return pattern == text if isinstance(pattern, str) else pattern.match(text) is not None


def _warn(globals_: dict[str, Any], text: str, category: type, filename: str, lineno: int, module: str) -> None:
    registry = globals_.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, category, filename, lineno, module, registry)


@register(warnings.warn)
def _model(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    arguments = dict(zip(_PARAMETERS, args), **kwargs)
    unknown = not set(arguments) <= set(_PARAMETERS) or len(args) > len(_PARAMETERS)
    try:
        known = {name: var.constant() for name, var in arguments.items()}
    except NotConstant:
        unknown = True
    if unknown:
        return _for_real(tx, "with values known only at run time")
    text, level = known.get("message"), known.get("stacklevel", 1)
    category = UserWarning if known.get("category") is None else known["category"]
    kinds = type(level) is int and isinstance(category, type) and issubclass(category, Warning)
    if not isinstance(text, str) or not kinds or known.get("source") is not None:
        return _for_real(tx, "with arguments of other types")
    frames = tx.frames[::-1][: max(level, 1)]
    if len(frames) < level or any(our_file(frame.file) for frame in frames):
        return _for_real(tx, "for a line outside of the compiled function")
    where: UserLine = frames[-1].user_line()
    globals_ = frames[-1].globals
    module = globals_.get("__name__", "<string>")
    prints = _Prints(text, category, module, where.lineno)
    filters = filters_of(tx)
    action = prints.action(filters)
    if action == "ignore":
        return ConstVar(None)
    if action == "error":
        raise Raised(tx.call(make(category), [ConstVar(text)], {}))
    if (log := _log(tx)) is not None:
        if action not in ("always", "all"):
            return _for_real(tx, "that is recorded once")
        issued = [tx.call(make(category), [ConstVar(text)], {}), make(category)]
        place = [ConstVar(where.filename), ConstVar(where.lineno)]
        log.call_method(tx, "append", [tx.call(make(warnings.WarningMessage), [*issued, *place], {})], {})
        return ConstVar(None)
    if not prints(warnings):
        return _for_real(tx, "that may do more than print")
    tx.guard(ConstSource.of(warnings, "warnings"), "PREDICATE", (prints, (), f"only prints {text!r}"))
    warn: Callable[..., None] = functools.partial(
        _warn, globals_, text, category, where.filename, where.lineno, module
    )
    if filters:
        warn = functools.partial(warn_under, filters, warn)
    else:
        warn.issues_warning = True  # type: ignore[attr-defined]
    tx.effects.add("CALL", None, (warn, [], {}), where)
    return ConstVar(None)


def _log(tx: Tracer) -> Var | None:
    """The list of the innermost context that records warnings; None if there is none."""
    return next((context.log for context in tx.warning_contexts if context.log is not None), None)


def _for_real(tx: Tracer, what: str) -> Var:
    return tx.graph_break("builtin-side-effect", f"warnings.warn() {what}")


