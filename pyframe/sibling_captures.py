"""Captures that results of `compile` share although they compile different objects: layers of one class that are
compiled one by one, bound methods of different objects, closures of one function.

A capture depends on the code and on what its guards test, nothing else. When a call fits no capture of its own
compiler, those of the compilers with equal settings are tried, of the same code: all functions that run a module of one
class have equal code. One that fits becomes an entry of the compiler that needs it, with the same graph and code.
"""

from __future__ import annotations

import functools
import sys
import types
import weakref
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from . import _C, config
from .core import break_errors, weak_codes
from .core.weak_codes import WeakCodes
from .metrics import counters
from .options import Options

if TYPE_CHECKING:
    from .driver import FrameCompiler
    from .lazy_compiler import LazyCompiler

Compiler: TypeAlias = "FrameCompiler | LazyCompiler"

_MAX_OFFERS = 64  # of one code; a call that fits none is captured, for which that many guard programs cost nothing
_WITHOUT_EFFECT = ("recompile_limit", "error_on_recompile", "fail_on_recompile_limit_hit", "progress", "verbose")
_groups: weakref.WeakValueDictionary[Hashable, Siblings] = weakref.WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class Offer:
    """An entry that other compilers may take over, made under these settings of the process."""

    entry: weakref.ref[_C.Entry]
    compiler: weakref.ref[Compiler]
    code: weakref.ref[types.CodeType]
    settings: tuple[Any, ...]  # see `_settings`


class Siblings:
    """The captures of the compilers of one backend and equal options. `options`: these; `records_calls`: whether the
    backend may record the calls of its graphs as CUDA graphs."""

    def __init__(self, options: Options, records_calls: bool) -> None:
        self.options, self.records_calls = options, records_calls
        self._offers: dict[Any, tuple[Offer, ...]] = {}  # by the id of the code, or of the class that a root runs
        self._class_of: dict[int, weakref.ref[type]] = {}
        self._roots: WeakCodes = {}

    def add_root(self, code: types.CodeType, cls: type) -> None:
        """Note that this code, equal to that of other roots, runs modules of a class."""
        weak_codes.add(self._roots, code)
        self._class_of[id(code)] = weakref.ref(cls)
        weakref.finalize(code, self._class_of.pop, id(code), None).atexit = False

    def _key(self, code: types.CodeType) -> Any:
        cls = self._class_of.get(id(code)) if id(code) in self._roots else None
        return ("code", id(code)) if cls is None else ("class", id(cls()))

    def offer(self, compiler: Compiler, code: types.CodeType, entry: _C.Entry) -> None:
        """Let other compilers use an entry of this code."""
        key = self._key(code)
        gone = functools.partial(_remove_dead, self._offers, key)
        made = Offer(weakref.ref(entry, gone), weakref.ref(compiler), weakref.ref(code), _settings())
        self._offers[key] = (*self._offers.get(key, ())[1 - _MAX_OFFERS :], made)

    def take_over(
        self, compiler: Compiler, func: types.FunctionType, locals_: tuple[Any, ...],
        note: Callable[[_C.Entry, Compiler, types.CodeType], None],
    ) -> _C.Entry | None:
        """An entry for this call, which no entry of the compiler fits, that is like one of another compiler; None if no
        entry fits. It is installed. `note` is called before, with the entry and what `find` gives beside it."""
        found = None if break_errors.is_error() else self.find(compiler, func, locals_)  # tracing finds such breaks
        if found is None:
            return None
        note(*found)
        entry = found[0]
        self.install(compiler, func.__code__, entry)
        counters["captures_shared"] += 1
        return entry

    def install(self, compiler: Compiler, code: types.CodeType, entry: _C.Entry) -> None:
        """Install an entry of this code, and let other compilers use it."""
        _C.install(code, entry)
        self.offer(compiler, code, entry)

    def find(
        self, compiler: Compiler, func: types.FunctionType, locals_: tuple[Any, ...]
    ) -> tuple[_C.Entry, Compiler, types.CodeType] | None:
        """An entry for this call that is like one of another compiler, with that compiler and the code that has the
        other one; None if no entry fits."""
        settings = _settings()
        for offer in self._for(func.__code__):
            entry, other, code = offer.entry(), offer.compiler(), offer.code()
            if entry is None or other is None or code is None or entry.owner is compiler.owner or not entry.valid:
                continue
            if offer.settings != settings:
                continue
            failed, inputs = entry.guards.check(func, locals_, False)
            if failed < 0 and not self._has_own_recording(inputs):
                return _C.Entry(compiler.owner, entry.guards.copy(), entry.code, entry.direct, entry.tag), other, code
        return None

    def _for(self, code: types.CodeType) -> Iterator[Offer]:
        """What may serve a call of this code, the latest first."""
        key = self._key(code)
        for offer in reversed(self._offers.get(key, ())):
            if key[0] == "class" or offer.code() is code:
                yield offer

    def _has_own_recording(self, inputs: tuple[Any, ...]) -> bool:
        """Whether the graph, called with these inputs, may be recorded as a CUDA graph: a recording has the addresses
        of parameters, which differ between modules."""
        asked = self.options.cudagraphs
        if not self.records_calls or asked is False:
            return False
        tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
        if all(each.device.type == "cpu" for each in tensors):
            return False
        return bool(asked) or not (torch.is_grad_enabled() and any(each.requires_grad for each in tensors))


def _remove_dead(offers: dict[Any, tuple[Offer, ...]], key: Any, _: weakref.ref[_C.Entry]) -> None:
    left = tuple(each for each in offers.get(key, ()) if each.entry() is not None)
    if left:
        offers[key] = left
    else:
        offers.pop(key, None)


def siblings_of(backend: Hashable, options: Options, records_calls: bool) -> Siblings | None:
    """The siblings of a compiler, with these settings; None if its captures are for the objects of their first call."""
    if options.freezing:  # parameters are constants of graphs
        return None
    try:
        return _groups.setdefault((backend, options), Siblings(options, records_calls))
    except TypeError:  # settings of a backend that is not pyframe's own may be unhashable
        return None


def _settings() -> tuple[Any, ...]:
    """What captures depend on and no guard tests: the settings of the process, and what the program has marked, for
    which there is a module once the compiler is imported."""
    directives = sys.modules.get(f"{__package__}.vars.torch_objects.user_directives")
    settings = {name: getattr(config, name) for name in config.SETTINGS if name not in _WITHOUT_EFFECT}
    copies = {name: set(value) if isinstance(value, set) else value for name, value in settings.items()}
    return copies, directives.all_given() if directives is not None and directives.any_given() else ()
