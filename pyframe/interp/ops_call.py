"""Handlers of the instructions for calls, function creation and imports."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import sys
import types
from typing import Any, cast

from torch.utils._python_dispatch import _disable_current_modes

from ..core.source import ConstSource, DictItemSource
from ..vars.containers.mapping import DictVar, pairs_of
from ..vars.objects.functions import CellVar, FunctionVar
from ..vars.objects.instances import InstanceVar
from ..vars.objects.originals import in_torch
from ..vars.protocol import slots
from ..vars.protocol.base import NotConstant, Var
from ..vars.protocol.const import MethodVar
from ..vars.protocol.null import NULL
from ..vars.torch_objects.torch_functions import TorchFunctionVar
from .frame import Frame, op


@op("LOAD_METHOD")
def load_method(frame: Frame, name: str) -> None:
    obj = frame.pop()
    # Containers and tensors resolve methods of their class when called, all other objects when loaded.
    lazy = name != "__class__" and not isinstance(obj, InstanceVar) and type(obj).call_method is not Var.call_method
    with contextlib.suppress(NotConstant):
        lazy = lazy and hasattr(obj.python_type(), name)
    bound = MethodVar(obj, name) if lazy else frame.tx.getattr(obj, name)
    frame.push_callable(bound)


def _callee(frame: Frame, args: list[Var]) -> tuple[Var, list[Var]]:
    """The callable below the arguments on the stack, and its arguments, including self of a method."""
    first, second = frame.popn(2)
    if first is NULL:
        return second, args
    if second is NULL:
        return first, args
    return first, [second, *args]


def _push_result(frame: Frame, callee: Var, args: list[Var], named: dict[str, Var]) -> None:
    frame.calling = callee
    frame.push(frame.tx.call(callee, args, named))
    frame.calling = None


@op("CALL")
def call(frame: Frame, count: int) -> None:
    args = frame.popn(count)
    callee, args = _callee(frame, args)
    _push_result(frame, callee, args, {})


@op("CALL_KW")
def call_kw(frame: Frame, count: int) -> None:
    names = frame.pop().constant()
    args = frame.popn(count)
    callee, positional = _callee(frame, args[: count - len(names)])
    named = dict(zip(names, args[count - len(names) :], strict=True))
    _push_result(frame, callee, positional, named)


@op("CALL_FUNCTION_EX")
def call_function_ex(frame: Frame, flags: int) -> None:
    named: dict[str, Var] = {}
    if flags & 1:
        pairs = pairs_of(frame.tx, frame.pop())
        if not all(isinstance(key, str) for key, _ in pairs):
            frame.tx.raise_(TypeError, "keywords must be strings")
        named = dict(pairs)
    args = frame.pop().unpack(frame.tx)
    callee, args = _callee(frame, args)
    if flags & 1 and not named and isinstance(callee, TorchFunctionVar):
        frame.push(callee.call_keywords(frame.tx, args, {}))
        return
    _push_result(frame, callee, args, named)


def _set_part(fn: FunctionVar, flag: int, value: Var, frame: Frame) -> None:
    if flag == 1:
        fn.defaults = value
    elif flag == 2:
        assert isinstance(value, DictVar)
        fn.kwdefaults = value
    elif flag == 4:
        fn.annotations = value if isinstance(value, DictVar) else _annotations(value, frame)
    elif flag == 8:
        fn.closure = cast(list[CellVar], value.unpack(frame.tx))
    elif flag == 16:
        fn.annotate = value


def _annotations(flat: Var, frame: Frame) -> DictVar:
    """Annotations in the form that CPython uses up to 3.13: names and values alternate."""
    items = flat.unpack(frame.tx)
    return DictVar({name.constant(): value for name, value in zip(items[::2], items[1::2], strict=True)})


@op("MAKE_FUNCTION")
def make_function(frame: Frame, flags: int) -> None:
    code = frame.pop().constant()
    fn = FunctionVar.create(code, frame.globals, frame.globals_source)
    for flag in (16, 8, 4, 2, 1):
        if flags & flag:
            _set_part(fn, flag, frame.pop(), frame)
    frame.push(fn)


@op("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(frame: Frame, flag: int) -> None:
    value, fn = frame.popn(2)
    assert isinstance(fn, FunctionVar)
    _set_part(fn, flag, value, frame)
    frame.push(fn)


_MODULES = sys.modules  # the import system uses this dict even if `sys.modules` is replaced
_LOADED, _BUILTINS = ConstSource.of(_MODULES, "sys.modules"), ConstSource.of(vars(builtins), "builtins.__dict__")
_IMPORT = builtins.__import__


@op("IMPORT_NAME")
def import_name(frame: Frame, name: str) -> None:
    level, names = frame.popn(2)
    package = frame.globals.get("__package__") or frame.globals.get("__name__", "")
    try:
        full = importlib.util.resolve_name("." * level.constant() + name, package)
        loaded = full in sys.modules
    except ImportError as error:
        frame.tx.raise_(ImportError, *error.args)
    if builtins.__import__ is not _IMPORT:
        frame.tx.graph_break("builtin-side-effect", f"import of {full} by a replaced __import__")
    if not loaded and in_torch(frame.code) and full.partition(".")[0] == package.partition(".")[0]:
        importlib.import_module(full)  # torch imports parts of itself where it first needs them
    elif not loaded:
        _import_now(frame, full)
    frame.tx.guard(DictItemSource(_BUILTINS, "__import__"), "ID", _IMPORT)
    _loaded(frame, full)
    if not names.truth(frame.tx) and level.constant() == 0:
        full = full.partition(".")[0]
    module = _loaded(frame, full)
    for part in names.plain() or () if hasattr(module, "__path__") else ():
        if not hasattr(module, part):  # may be a submodule
            _import_now(frame, f"{full}.{part}")
    frame.push(frame.tx.wrap(module, ConstSource.of(module, full)))


def _import_now(frame: Frame, full: str) -> None:
    """Import a module that is not loaded yet, as the program is about to do. Break the graph if its code might see what
    the trace has put off until after the graph, or if the import fails."""
    if not len(frame.tx.effects) and not frame.tx.overrides.in_mode:
        try:
            with _disable_current_modes():
                importlib.import_module(full)
        except Exception:  # noqa: BLE001  raised again where the program imports the module
            pass
        else:
            return
    frame.tx.graph_break("builtin-side-effect", f"import of {full}, which is not loaded yet")


def _loaded(frame: Frame, full: str) -> Any:
    """The entry of `sys.modules` for a name, guarded by identity."""
    module = _MODULES.get(full)
    frame.tx.guard(DictItemSource(_LOADED, full), "ID", module)
    if module is None:
        frame.tx.graph_break("builtin-side-effect", f"import of {full}, which is None in sys.modules")
    return module


@op("IMPORT_FROM")
def import_from(frame: Frame, name: str) -> None:
    module = frame.stack[-1]
    if frame.tx.has_attribute(module, name):
        frame.push(frame.tx.getattr(module, name))
        return
    known = slots.constant_or(module, None)
    inner = f"{getattr(known, '__name__', '')}.{name}"
    if not isinstance(known, types.ModuleType) or inner in _MODULES:
        frame.tx.graph_break(
            "builtin-side-effect", f"import of {name}, which is not an attribute of {module.describe()}"
        )
    frame.tx.guard(_LOADED, "DICT_LACKS", inner)
    place = getattr(known, "__file__", None) or "unknown location"
    frame.tx.raise_(ImportError, f"cannot import name {name!r} from {known.__name__!r} ({place})")
