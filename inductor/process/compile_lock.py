"""The lock that lets only one thread of the process capture, trace and generate code at a time.

torch's tracing patches classes and modules while it runs, so two threads must not trace at once. Building kernels (the
C++ compiler, Triton's workers) only waits for other processes, so it runs outside the lock, by `without_lock`. While
one thread builds, others may take the lock; `make_once` keeps them from compiling the same thing again.

A fork waits until no other thread holds the lock, so that a child never starts from a half-finished trace.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Hashable
from operator import call
from typing import Any, TypeVar

from .garbage import as_program_set, end_in_child, without_full_collections

T = TypeVar("T")

_FORK_SECONDS = 60  # the longest time that a fork waits for other threads to release the lock

_lock: Any = threading.RLock()
_changed = threading.Condition(_lock)
_makers: dict[Hashable, int] = {}  # keys that are being made, and the id of the thread that makes each

compile_lock = _lock
"""For `with compile_lock:`.  Reentrant; a signal cannot interrupt between taking the lock and entering the block."""


def without_lock(work: Callable[[], T]) -> T:
    """Run `work()` with the lock released, however often this thread has acquired it; then acquire it again."""
    if not _lock._is_owned():
        return work()
    return as_program_set(lambda: _released(work))


def _released(work: Callable[[], T]) -> T:
    state: list[Any] = []
    try:
        state.extend(map(call, (_lock._release_save,)))  # one C call: no signal handler between release and bookkeeping
        return work()
    finally:
        if state:
            _lock._acquire_restore(state[0])


def importing(load: Callable[[], T]) -> T:
    """Run `load()`, which imports modules, without full garbage collections. If another thread holds the lock, `load()`
    runs at once with them: whoever imports may hold the locks of other modules, for which that thread may wait."""
    taken: list[bool] = []
    try:
        taken.extend(map(call, (functools.partial(_lock.acquire, False),)))  # one C call, as in `_released`
        return without_full_collections(load) if taken[0] else load()
    finally:
        if taken and taken[0]:
            _lock.release()


def make_once(key: Hashable, find: Callable[[], T | None], make: Callable[[], T]) -> T:
    """Return `find()` or, if that is None, `make()`. Both run under the lock, and for a key in one thread at a time.

    A thread that is already making something does not wait for another key, because two threads might then wait for
    each other; instead, both make it.
    """
    me = threading.get_ident()
    with _lock:
        if me not in _makers.values():
            while key in _makers:
                _changed.wait()
        found = find()
        if found is not None:
            return found
        outer = _makers.get(key)
        try:
            _makers[key] = me
            return without_full_collections(make)
        finally:
            if outer is None:
                _makers.pop(key, None)
            else:
                _makers[key] = outer
            _changed.notify_all()


# ---- fork

_forking: list[bool] = []  # whether the forking thread holds the lock; only that thread changes it


def _before_fork() -> None:
    """Wait for the other threads, but not forever: a thread that holds the lock may be waiting for this one."""
    _forking.append(_lock.acquire(timeout=_FORK_SECONDS))


def _after_fork_in_parent() -> None:
    if _forking.pop():
        _lock.release()


def _after_fork_in_child() -> None:
    """Discard what other threads were making and the locks that they held: these threads do not exist in the child."""
    global _changed
    if _forking.pop():
        _lock.release()
    elif not _lock._is_owned():
        _lock._at_fork_reinit()
        end_in_child()
    _forking.clear()
    me = threading.get_ident()
    for key in [key for key, maker in _makers.items() if maker != me]:
        del _makers[key]
    _changed = threading.Condition(_lock)


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
